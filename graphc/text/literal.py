"""Literals in the text of a graph: attributes of ops and elements of constants."""

from __future__ import annotations

import ast
import math
from typing import Any

import numpy as np

from graphc.ir import FLOATS, Layout


def literal_of(text: str) -> Any:
    """Return the value of a literal: Python's, a layout, `inf`, `nan` or `nan0x...`."""

    def build(node: ast.expr) -> Any:
        match node:
            case ast.Constant(int() as value) if abs(value) < 2**64:
                return value
            case ast.Constant(float() | str() | None as value):
                return value
            case ast.Tuple(items):
                return tuple(map(build, items))
            case ast.UnaryOp(
                ast.USub(), ast.Constant(int() | float()) | ast.Name("inf") as operand
            ):
                return -build(operand)
            case ast.Call(
                ast.Name("Layout"),
                [ast.Constant(int() | None as axis), ast.Constant(int(width))],
                [],
            ):
                return Layout(axis, width)
            case ast.Name("inf"):
                return math.inf
            case ast.Name("nan"):
                return math.nan
            case ast.Name(name) if name.startswith("nan0x"):
                bits = np.frombuffer(bytes.fromhex(name[len("nan0x") :])[::-1], np.uint8)
                kinds = {2: np.float16, 4: np.float32, 8: np.float64}
                if bits.size in kinds:
                    return bits.view(kinds[bits.size])[0]
        raise ValueError(text)

    return build(ast.parse(text, mode="eval").body)


def fits(value: Any, kind: str) -> bool:
    """Return whether a literal fits a field annotated as `kind`; True for unknown kinds."""
    integers = isinstance(value, tuple) and all(map(_is_integer, value))
    fitting = {
        "bool": isinstance(value, bool),
        "int": _is_integer(value),
        "float": _is_integer(value) or isinstance(value, float),
        "str": isinstance(value, str),
        "tuple[int, ...]": integers,
        "Pair": integers and len(value) == 2,
        "Layout": isinstance(value, Layout),
    }
    return fitting.get(kind, True)


def element_of(value: Any, dtype: str) -> Any:
    """Return `value` as an element of a constant of this dtype, or raise ValueError."""
    if dtype == "bool":
        fits = isinstance(value, bool)
    elif dtype in FLOATS:
        fits = _is_integer(value) or isinstance(value, float | np.floating)
    else:
        fits = _is_integer(value)
    if not fits:
        raise ValueError(value)
    return value


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
