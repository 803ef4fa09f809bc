"""Random kernels that are more than pointwise: running results, sorts, gradients of gathers,
scatters and pooling, of odd shapes and all dtypes, for devices to compare their bits."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import graphc
from graphc import ops
from graphc.base.dtypes import convert
from graphc.ir import FLOATS, Type
from graphc.ops.base import Array, Op
from graphc.trace import current_builder
from tests.kernels.harness import traced

EXTENTS = (1, 2, 3, 5, 8, 15, 16, 17, 33, 40, 100)
NUMBERS = ("u8", "i8", "i32", "i64", "f32", "f32", "f64")
FAMILIES = ("running", "sort", "gather", "scatter", "pooling")
RUNNING: tuple[type[ops.Prefix], ...] = (ops.Cumsum, ops.Cumprod, ops.Cummax, ops.Cummin)
COMBINES = ("replace", "sum", "prod", "max", "min")
READS: tuple[Callable[[Any], Any], ...] = (
    lambda x: x,
    lambda x: x * 2 + x,
    lambda x: graphc.flip(x, -1),
    lambda x: graphc.permute_dims(x, tuple(reversed(range(x.ndim)))),
    lambda x: graphc.pad(x, [(0, 0)] * (x.ndim - 1) + [(2, 1)], value=1),
)
"""How the op's operand is made of an input: exact arithmetic, and views."""


def emit_all(op: Op, *inputs: Any) -> tuple[Any, ...]:
    """All outputs of an op."""
    return tuple(current_builder().emit(op, *inputs))


class RandomFamily:
    """A kernel `node` of one of `families`, and arrays for its inputs; the same seed makes the
    same."""

    def __init__(self, seed: int, families: Sequence[str] = FAMILIES) -> None:
        self.random, self.generator = random.Random(seed), np.random.default_rng(seed)
        self.family = self.random.choice(families)
        function, kinds = getattr(self, f"_{self.family}")()
        self.arrays = [self._array(kind) for kind in kinds]
        self.node: Any = traced(f"{self.family}_{seed}", function, kinds)
        if self._places is not None:
            size, extent = kinds[self._places].size, self._extent
            indices = self.generator.integers(-extent, extent + 2, size)
            self.arrays[self._places] = indices.reshape(kinds[self._places].shape).astype(
                kinds[self._places].numpy_dtype
            )

    _places: int | None = None
    """The input that holds indices, some beyond `_extent`."""
    _extent = 0

    def _shape(self, rank: int = 0, extents: Sequence[int] = EXTENTS) -> tuple[int, ...]:
        rank = rank or self.random.randint(1, 3)
        return tuple(self.random.choice(extents) for _ in range(rank))

    def _array(self, kind: Type) -> Array:
        """Small whole numbers, so that equal ones meet, or numbers around 1; and special floats."""
        if kind.dtype == "bool":
            return self.generator.random(kind.shape) < 0.5
        if kind.dtype not in FLOATS:
            least = 0 if kind.dtype == "u8" else -5
            return self.generator.integers(least, 9, kind.shape).astype(kind.numpy_dtype)
        numbers = np.asarray(self.generator.normal(1, 0.5, kind.shape))
        if self.random.random() < 0.3:
            numbers = np.round(2 * numbers)
        for special in (0, -0.0, np.inf, -np.inf, np.nan, 1e30, 1e-42):
            if self.random.random() < 0.1:
                numbers[self.generator.random(kind.shape) < 0.1] = special
        return convert(numbers, kind.numpy_dtype)

    def _running(self) -> tuple[Callable[..., Any], list[Type]]:
        kind, read = Type(self._shape(), self.random.choice(NUMBERS)), self.random.choice(READS)
        make, reverse = self.random.choice(RUNNING), self.random.random() < 0.5
        axis, which = self.random.randrange(len(kind.shape)), self.random.randrange(3)

        def function(x: Any) -> Any:
            made = emit_all(make(axis, reverse), read(x))
            return made if which == 2 else made[min(which, len(made) - 1)]

        return function, [kind]

    def _sort(self) -> tuple[Callable[..., Any], list[Type]]:
        kind = Type(self._shape(), self.random.choice((*NUMBERS, "bool")))
        read = self.random.choice(READS) if kind.dtype != "bool" else READS[0]
        axis, descending = self.random.randrange(len(kind.shape)), self.random.random() < 0.5
        share = self.random.choice((0.1, 0.5, 1))

        def function(x: Any) -> Any:
            x = read(x)
            return emit_all(ops.Sort(axis, int(x.shape[axis] * share), descending), x)

        return function, [kind]

    def _gather(self) -> tuple[Callable[..., Any], list[Type]]:
        shape, dtype = self._shape(), self.random.choice(("i32", "i64", "f32", "f32", "f64"))
        axis = self.random.randrange(len(shape))
        count = self.random.randint(1, len(shape) - axis)
        self._places, self._extent = 0, self.random.choice((1, 4, 9))
        op: Op = ops.TakeGrad(axis, self._extent)
        indices = Type(shape[axis : axis + count], self.random.choice(("i32", "i64")))
        return lambda i, dy: emit_all(op, i, dy), [indices, Type(shape, dtype)]

    def _scatter(self) -> tuple[Callable[..., Any], list[Type]]:
        shape, dtype = self._shape(), self.random.choice(NUMBERS)
        axis = self.random.randrange(len(shape))
        self._places, self._extent = 1, shape[axis]
        source = (*shape[:axis], self.random.choice((1, 3, 20)), *shape[axis + 1 :])
        op: Op = ops.Scatter(axis, self.random.choice(COMBINES))
        kinds = [Type(shape, dtype), Type(source, "i64"), Type(source, dtype)]
        return lambda x, i, y: emit_all(op, x, i, y), kinds

    def _pooling(self) -> tuple[Callable[..., Any], list[Type]]:
        image = Type((*self._shape(2, (1, 2, 3)), *self._shape(2, (6, 7, 9, 16, 19))), "f32")
        size = self._shape(2, (2, 3))
        stride = self._shape(2, (1, 2, 3))
        padding = self._shape(2, (0, 1))
        counts, relu = self.random.random() < 0.5, self.random.random() < 0.5
        ops_of: list[Op] = [ops.MaxPool2d(size, stride, padding)]
        ops_of.append(ops.AvgPool2d(size, stride, padding, counts))
        op, turn = self.random.choice(ops_of), self.random.random() < 0.5
        if not turn:
            return lambda x: self._pooled(op, x, relu), [image]
        if isinstance(op, ops.AvgPool2d):
            grad: Op = ops.AvgPool2dGrad(size, stride, padding, counts, image.shape[2:])
            return lambda dy: self._pooled(grad, dy, relu), [*op.infer(image)]
        self._places, self._extent = 1, size[0] * size[1]
        slope: Op = ops.MaxPool2dGrad(size, stride, padding, image.shape[2:])
        return lambda dy, i: emit_all(slope, dy, i), [*op.infer(image)]

    def _pooled(self, op: Op, x: Any, relu: bool) -> Any:
        """The op, and perhaps a pointwise op behind it."""
        made = emit_all(op, x)
        return (graphc.relu(made[0]), *made[1:]) if relu else made
