"""The page of ops says what the classes say."""

from __future__ import annotations

import importlib.util

from graphc import functions
from graphc.ops import REGISTRY
from tests.tools import ROOT

PAGE = ROOT / "docs" / "ops.md"


def written() -> str:
    path = ROOT / "tools" / "write_ops_page.py"
    spec = importlib.util.spec_from_file_location("write_ops_page", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return str(module.page())


def test_the_page_of_ops_is_up_to_date() -> None:
    assert PAGE.read_text() == written(), "run python tools/write_ops_page.py"


def test_the_page_lists_every_op_and_every_function() -> None:
    text = PAGE.read_text()
    ours = {n for n, op in REGISTRY.items() if op.__module__.startswith("graphc.")}
    assert all(
        f"| `{name}` |" in text
        for name in ours - {"kernel", "relayout", "widen", "round_tf32", "read_tf32"}
    )
    assert all(f"| `{name}(" in text for name in functions.__all__)


def test_every_function_says_what_it_returns() -> None:
    silent = [n for n in functions.__all__ if not (getattr(functions, n).__doc__ or "").strip()]
    assert silent == []
