"""Formulas of nests in NumPy: ops, and the functions that headers of all devices have."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from graphc.base.dtypes import convert
from graphc.base.errors import GraphError
from graphc.ir import DTYPES
from graphc.kernels.program.body.statement import Formula, Masked, NamedFunction
from graphc.ops.base import Array, Op

DTYPE_OF = {"uint8_t": "u8", "int8_t": "i8", "int32_t": "i32", "int64_t": "i64", "bool": "bool"}
DTYPE_OF |= {"float": "f32", "double": "f64", "half": "f16", "bfloat": "bf16"}
"""Of each type of C++ that a function is given."""


def computed(formula: Formula, values: Sequence[Array]) -> tuple[Array, ...]:
    """What a formula makes of the values of its operands. Raises GraphError for a function that has
    no meaning here."""
    if isinstance(formula, Masked):
        return computed(formula.formula, values)
    if isinstance(formula, NamedFunction):
        if formula.name not in FUNCTIONS:
            raise GraphError(f"{formula.name} has no meaning in NumPy as part of a nest")
        made = FUNCTIONS[formula.name](formula.settings, *values)
        return made if isinstance(made, tuple) else (made,)
    assert isinstance(formula, Op)
    return formula.reference(*values)


def _inside(settings: tuple[int, ...], place: Array) -> Array:
    _, high, divisor = settings
    found: Array = (place >= 0) & (place < high) & (place % divisor == 0)
    return found


def _largest(_: object, *window: Array) -> tuple[Array, Array]:
    """The largest of the places of a window, or NaN, and the number of the first that has it."""
    places = np.argmax(np.stack(window), axis=0)
    return np.choose(places, window), places


FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "": lambda _, x: x,
    "to_bool": lambda _, x: x != 0,
    "from_bool": lambda settings, x: convert(x, DTYPES[DTYPE_OF[settings[0]]]),
    "convert": lambda settings, x: convert(x, DTYPES[DTYPE_OF[settings[0]]]),
    "select": lambda _, condition, x, y: np.where(condition, x, y),
    "both": lambda _, x, y: x & y,
    "inside": _inside,
    "largest": _largest,
    "iota": lambda settings, place: place // settings[2],
}
"""Functions of the headers, by name: of their settings and of registers."""
