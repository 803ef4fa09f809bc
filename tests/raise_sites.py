"""Every place in the sources that raises one of the four exceptions, with the words it says."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.tools import ROOT

EXCEPTIONS = ("GraphError", "CompileError", "PlanError", "RunError")
MAKERS = (*EXCEPTIONS, "UnsupportedError", "error")
"""The exceptions, and the functions and methods called `error` that make one of a message."""


@dataclass(frozen=True)
class Site:
    """A message in the sources: `words` are the runs of text between what is filled in."""

    place: str
    words: tuple[str, ...]


def sites() -> Iterator[Site]:
    """Those whose message stands in the call itself."""
    for folder in ("graphc", "kernels", "runtime"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            linked = (ROOT / "graphc" / name for name in ("kernels", "runtime"))
            if not any(path.is_relative_to(link) for link in linked):
                yield from _in_file(path)


def said(tree: ast.AST) -> str:
    """All text in a test's literals, a line for each, as a reader sees it: patterns without
    backslashes."""
    found = [
        _text(node) for node in ast.walk(tree) if isinstance(node, ast.Constant | ast.JoinedStr)
    ]
    return "\n".join(found)


def plain(text: str) -> str:
    """`text` without what patterns escape, and with single spaces."""
    return re.sub(r"\s+", " ", text.replace("\\", ""))


def _in_file(path: Path) -> Iterator[Site]:
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.Call) or not node.args:
            continue
        name = getattr(node.func, "id", getattr(node.func, "attr", ""))
        message = node.args[0]
        if name in MAKERS and isinstance(message, ast.Constant | ast.JoinedStr):
            lines = (part for run in _runs(message) for part in run.split("\n"))
            words = tuple(plain(part).strip(" (") for part in lines)
            yield Site(f"{path.relative_to(ROOT)}:{node.lineno}", words)


def _runs(message: ast.expr) -> list[str]:
    if isinstance(message, ast.JoinedStr):
        return [v.value for v in message.values if isinstance(v, ast.Constant)]
    return [message.value] if isinstance(message, ast.Constant) and message.value else []


def _text(node: ast.expr) -> str:
    runs = _runs(node) if not isinstance(node, ast.Constant) else [node.value]
    return plain("\0".join(run for run in runs if isinstance(run, str)))
