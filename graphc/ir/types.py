"""Dtypes, layouts, types, values, and source positions."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from graphc.base.dtypes import BFLOAT16
from graphc.base.dtypes import Array as Array
from graphc.base.errors import GraphError

DTypeLike = str | type | np.dtype[Any]
DTYPES: dict[str, np.dtype[Any]] = {
    "bool": np.dtype(np.bool_),
    "u8": np.dtype(np.uint8),
    "i8": np.dtype(np.int8),
    "i32": np.dtype(np.int32),
    "i64": np.dtype(np.int64),
    "f16": np.dtype(np.float16),
    "bf16": BFLOAT16,
    "f32": np.dtype(np.float32),
    "f64": np.dtype(np.float64),
}
"""The short name of each dtype, as types print it, and NumPy's dtype of an array in memory.

f16 and bf16 are stored in two bytes and computed in float32: each op widens its operands, rounds
its results to nearest even once, and reductions and contractions round their sums at the end. NumPy
has no bfloat16: programs take float32 arrays (rounded), or bfloat16 ones of other libraries, where
an input is bf16, and give float32 arrays that hold bf16 values. See graphc/base/dtypes.py.
"""

_LONG_NAMES = {d.name: short for short, d in DTYPES.items() if short != "bf16"}
_LONG_NAMES["bfloat16"] = "bf16"
FLOATS = ("f16", "bf16", "f32", "f64")
NARROW = ("f16", "bf16")
"""Floats of two bytes: stored, never computed in."""
INTEGERS = ("u8", "i8", "i32", "i64")


def dtype_name(dtype: DTypeLike) -> str:
    """Return the short name of `dtype`, a short or long name or a NumPy dtype."""
    if isinstance(dtype, str) and (dtype in DTYPES or dtype in _LONG_NAMES):
        return _LONG_NAMES.get(dtype, dtype)
    try:
        found = np.dtype(dtype)
        return "bf16" if found == BFLOAT16 else _LONG_NAMES[found.name]
    except (TypeError, KeyError):
        known = ", ".join(sorted(_LONG_NAMES))
        raise GraphError(f"unknown dtype {dtype!r}; expected one of {known}") from None


@dataclass(frozen=True)
class Layout:
    """How the elements of a value lie in memory.

    `Layout()` is row-major. `Layout(axis, width)` splits `axis` into blocks of `width` and lets
    the place within a block vary fastest: a value of shape [n, c, h, w] under `Layout(0, 16)` lies
    as [ceil(n / 16)][c][h][w][16]. The lanes beyond the axis's extent exist and hold zeros.
    """

    axis: int | None = None
    width: int = 1

    def __str__(self) -> str:
        return "" if self.axis is None else f"{{lanes={self.axis}x{self.width}}}"

    def in_one_block(self, shape: tuple[int, ...]) -> bool:
        """Return whether one block holds the whole axis, which is then the fastest."""
        return self.axis is not None and shape[self.axis] <= self.width

    def order(self, rank: int) -> tuple[int, ...]:
        """Return the axes from the slowest to the fastest; the blocked one is the last."""
        rest = tuple(d for d in range(rank) if d != self.axis)
        return rest if self.axis is None else (*rest, self.axis)


ROW_MAJOR = Layout()


@dataclass(frozen=True)
class Type:
    """Shape (elements per axis), dtype (a short name of `DTYPES`) and layout of a value."""

    shape: tuple[int, ...]
    dtype: str = "f32"
    layout: Layout = ROW_MAJOR

    def __str__(self) -> str:
        return f"{self.dtype}[{','.join(map(str, self.shape))}]{self.layout}"

    @property
    def numpy_dtype(self) -> np.dtype[Any]:
        return DTYPES[self.dtype]

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements, without the layout's padding."""
        return math.prod(self.shape)

    @property
    def storage_shape(self) -> tuple[int, ...]:
        """The sizes in memory, slowest first."""
        axis, width = self.layout.axis, self.layout.width
        if axis is None:
            return self.shape
        blocks = -(-self.shape[axis] // width)
        return (*self.shape[:axis], blocks, *self.shape[axis + 1 :], width)

    @property
    def strides(self) -> tuple[int, ...]:
        """The elements from one index to the next along each axis, of a value without blocks.

        It is row-major, or one block holds the axis with lanes.
        """
        assert self.layout.axis is None or self.layout.in_one_block(self.shape), f"blocks of {self}"
        strides, step = [0] * self.rank, 1
        for axis in reversed(self.layout.order(self.rank)):
            strides[axis] = step
            step *= self.layout.width if axis == self.layout.axis else self.shape[axis]
        return tuple(strides)

    @property
    def nbytes(self) -> int:
        """The bytes in memory, including the layout's padding."""
        return math.prod(self.storage_shape) * self.numpy_dtype.itemsize

    def with_layout(self, layout: Layout) -> Type:
        return Type(self.shape, self.dtype, layout)


@dataclass(frozen=True)
class NamedType:
    """The type of an input some of whose axes have a name in place of a size."""

    shape: tuple[int | str, ...]
    """Elements per axis, or the axis's name."""
    dtype: str = "f32"

    def __str__(self) -> str:
        return f"{self.dtype}[{','.join(map(str, self.shape))}]"

    @property
    def names(self) -> tuple[tuple[int, str], ...]:
        """(axis, name) of each axis that has a name."""
        return tuple((axis, n) for axis, n in enumerate(self.shape) if isinstance(n, str))

    def at(self, sizes: Mapping[str, int]) -> Type:
        """Return the type where the names have these sizes."""
        return Type(tuple(sizes[n] if isinstance(n, str) else n for n in self.shape), self.dtype)


@dataclass(frozen=True)
class Value:
    """A named, typed result of a node, input or state of a graph. Names are unique in a graph."""

    name: str
    type: Type

    def __hash__(self) -> int:
        # A name is enough, and strings know their hash: graphs are full of sets of values.
        return hash(self.name)

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return isinstance(other, Value) and self.name == other.name and self.type == other.type

    def __str__(self) -> str:
        return f"%{self.name}"


@dataclass(frozen=True)
class Where:
    """The source of a node: a module path such as `block1.conv2`, and the user's lines."""

    module: str = ""
    lines: tuple[str, ...] = ()
    derived: bool = False
    """True for a node of the backward pass or of an update rule."""
    function: str = ""
    """The function of several ops that it is part of, such as `cross_entropy`, or update rule."""
    turn: int = 0
    """When it runs: behind all of earlier turns, the first of which is 1. 0 for whenever it can."""
    batch: int = 0
    """The micro-batch that it belongs to, from 1 up: no kernel has nodes of two. 0 for none."""

    def __str__(self) -> str:
        parts = [f"@{self.turn}.{self.batch}"] if self.turn else []
        parts += ["d"] if self.derived else []
        parts += [self.module] if self.module else []
        parts += [f"{self.function}()"] if self.function else []
        return " ".join([*parts, *self.lines])

    @property
    def of_update_rule(self) -> bool:
        """Whether it belongs to an update rule, and not to a line of the user's model."""
        return self.derived and not self.lines

    def merge(self, other: Where) -> Where:
        lines = tuple(dict.fromkeys(self.lines + other.lines))
        function = self.function if self.function == other.function else ""
        derived = self.derived and other.derived
        turn = min(self.turn, other.turn) or self.turn or other.turn
        batch = self.batch or other.batch
        return Where(self.module or other.module, lines, derived, function, turn, batch)
