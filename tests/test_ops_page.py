"""The page of ops says what the classes say."""

from __future__ import annotations

from graphc import functions
from graphc.ops import REGISTRY
from tools.write_ops_page import MADE_BY_PASSES, PAGE, page


def test_the_page_of_ops_is_up_to_date() -> None:
    assert PAGE.read_text() == page(), "run python tools/write_ops_page.py"


def test_the_page_lists_every_op_and_every_function() -> None:
    text = PAGE.read_text()
    ours = {n for n, op in REGISTRY.items() if op.__module__.startswith("graphc.")}
    assert all(f"| `{name}` |" in text for name in ours - MADE_BY_PASSES)
    assert all(f"| `{name}(" in text for name in functions.__all__)


def test_every_function_says_what_it_returns() -> None:
    silent = [n for n in functions.__all__ if not (getattr(functions, n).__doc__ or "").strip()]
    assert silent == []
