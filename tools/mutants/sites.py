"""The places of a file that may be mutated, with their replacements."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

TURNED = {
    "<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==",
    "in": "not in", "not in": "in", "is": "is not", "is not": "is",
    "+": "-", "-": "+", "*": "+", "//": "*", "/": "*", "%": "//", "&": "|", "|": "&",
    "and": "or", "or": "and", "&&": "||", "||": "&&", "<<": ">>", ">>": "<<",
}  # fmt: skip
"""The replacement of each operator."""
NAMES = {"min": "max", "max": "min", "all": "any", "any": "all"}
"""The replacement of each function."""
DTYPES = {"f32": "f64", "f64": "f32", "i32": "i64", "i64": "i32", "bf16": "f16", "f16": "bf16"}
"""The replacement of each dtype."""
SILENT = ("error", "note", "tell", "log", "cast", "TypeVar", "fail")
"""Calls whose arguments are only messages."""
KEPT = ("isinstance", "getattr", "zip", "replace", "min", "max")
"""Calls whose arguments are not swapped: it would be an error, or change nothing."""


@dataclass(frozen=True)
class Site:
    """A place in a file, in bytes, with its replacement."""

    kind: str
    start: int
    stop: int
    new: str


class PythonSites(ast.NodeVisitor):
    """The places of a Python file that may be mutated."""

    def __init__(self, text: str) -> None:
        self.raw = text.encode()
        self.sites: list[Site] = []
        self._starts = [0]
        for line in text.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line.encode()))
        self.visit(ast.parse(text))

    def visit(self, node: ast.AST) -> None:
        """Visit a node; module-level tables and aliases are skipped."""
        if isinstance(node, ast.Raise | ast.Assert | ast.Import | ast.ImportFrom):
            return
        if isinstance(node, ast.Module):
            for child in node.body:
                if isinstance(child, ast.FunctionDef | ast.ClassDef):
                    self.visit(child)
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            for child in node.body:
                if not (isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant)):
                    self.visit(child)
        elif isinstance(node, ast.AnnAssign):
            if node.value is not None:
                self.visit(node.value)
        elif not (isinstance(node, ast.Call) and _is_silent(node)):
            self._change(node)
            self.generic_visit(node)

    def _change(self, node: ast.AST) -> None:
        if isinstance(node, ast.Compare) and len(node.ops) == 1:
            self._turn("compare", node.left, node.comparators[0])
        elif isinstance(node, ast.BinOp):
            self._turn("operator", node.left, node.right)
            if isinstance(node.op, ast.Sub | ast.FloorDiv | ast.Div | ast.Mod):
                sign = self._gap(node.left, node.right).strip(" ()\n")
                new = f"({self._text(node.right)} {sign} {self._text(node.left)})"
                self._replace("operands", node, new)
        elif isinstance(node, ast.BoolOp):
            self._turn("and-or", node.values[0], node.values[1])
        elif isinstance(node, ast.Constant):
            if isinstance(node.value, bool):
                self._replace("constant", node, str(not node.value))
            elif isinstance(node.value, int):
                self._replace("constant", node, str(node.value + 1))
            elif isinstance(node.value, str) and node.value in DTYPES:
                self._replace("dtype", node, repr(DTYPES[node.value]))
        elif isinstance(node, ast.Call):
            self._change_call(node)
        elif isinstance(node, ast.IfExp):
            parts = (self._text(part) for part in (node.orelse, node.test, node.body))
            self._replace("branches", node, "({} if {} else {})".format(*parts))
        elif isinstance(node, ast.If):
            self._replace("condition", node.test, "False")
            self._replace("condition", node.test, "True")
        elif isinstance(node, ast.comprehension):
            for test in node.ifs:
                self._replace("filter", test, "True")
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.Not):
            self._replace("sign", node, f"({self._text(node.operand)})")
        elif isinstance(node, ast.AugAssign | ast.Continue | ast.Break) or _is_call(node):
            self._replace("statement", node, "pass")
        elif isinstance(node, ast.JoinedStr):
            text, start = self._text(node), self._start(node)
            if ";" in text or "(" in text:
                self.sites += _operators(text, start, "text")

    def _change_call(self, node: ast.Call) -> None:
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        if name in NAMES:
            self._replace("name", node.func, NAMES[name])
        pair = node.args[:2]
        if len(pair) < 2 or name in KEPT or any(isinstance(a, ast.Starred) for a in pair):
            return
        first, second = map(self._text, pair)
        if first != second:
            span = self._start(pair[0]), self._stop(pair[1])
            self.sites.append(Site("arguments", *span, f"{second}, {first}"))

    def _turn(self, kind: str, left: ast.expr, right: ast.expr) -> None:
        """Replace the operator between two operands."""
        start = self._stop(left)
        for sign in sorted(TURNED, key=len, reverse=True):
            word = re.compile(rf"(?<![\w<>=!/*]){re.escape(sign)}(?![\w<>=!/*])")
            if found := word.search(self._gap(left, right)):
                span = start + found.start(), start + found.end()
                self.sites.append(Site(kind, *span, TURNED[sign]))
                return

    def _replace(self, kind: str, node: ast.AST, new: str) -> None:
        self.sites.append(Site(kind, self._start(node), self._stop(node), new))

    def _gap(self, left: ast.AST, right: ast.AST) -> str:
        return self.raw[self._stop(left) : self._start(right)].decode()

    def _text(self, node: ast.AST) -> str:
        return self.raw[self._start(node) : self._stop(node)].decode()

    def _start(self, node: ast.AST) -> int:
        start: int = self._starts[node.lineno - 1] + node.col_offset  # type: ignore[attr-defined]
        return start

    def _stop(self, node: ast.AST) -> int:
        stop: int = self._starts[node.end_lineno - 1] + node.end_col_offset  # type: ignore[attr-defined]
        return stop


def _is_call(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)


def _is_silent(node: ast.Call) -> bool:
    name = node.func.id if isinstance(node.func, ast.Name) else ""
    return name in SILENT or name.endswith("Error")


def _operators(text: str, start: int, kind: str) -> Iterator[Site]:
    """C++ operators between spaces; `text` begins at byte `start`."""
    for found in re.finditer(r" (<=|>=|==|<<|>>|&&|\|\||[<>+\-*/%&|]) ", text):
        before, sign = len(text[: found.start(1)].encode()), found.group(1)
        yield Site(kind, start + before, start + before + len(sign), TURNED[sign])


def header_sites(text: str) -> list[Site]:
    """The places of a kernel header that may be mutated."""
    sites: list[Site] = []
    start = 0
    for line in text.splitlines(keepends=True):
        code = line.split("//")[0]
        if not code.strip().startswith(("#", "*", "/*", "static_assert", "template")):
            sites += _operators(code, start, "operator")
            spans = [("constant", m) for m in re.finditer(r"(?<![\w.])\d+(?![\w.])", code)]
            spans += [("name", m) for m in re.finditer(r"\b(?:min|max)(?=\()", code)]
            whole = r"(?<=\s)(?:\w[\w\[\].>-]* [+\-*]?= [^;]*;|[\w:]+\([^;]*\);)(?=\s*$)"
            spans += [("statement", m) for m in re.finditer(whole, code) if "return" not in code]
            for kind, found in spans:
                old = found.group()
                new = NAMES.get(old, str(int(old) + 1) if kind == "constant" else ";")
                sites.append(Site(kind, start + found.start(), start + found.end(), new))
        start += len(line.encode())
    return sites
