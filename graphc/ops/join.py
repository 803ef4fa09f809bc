"""Ops whose elements come from one of several places: padding and concatenation."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from graphc.base.errors import GraphError
from graphc.ir import Type
from graphc.ir.affine import Sections
from graphc.ir.vocabulary import Gradients, Tensors, Vocabulary
from graphc.ops.axes import Axes, all_but, all_stacked
from graphc.ops.base import Array, Flags, Op, same_dtype


@dataclass(frozen=True)
class Pad(Op):
    """y[low + (interior + 1) * i] = x[i], `value` elsewhere; one of each per axis.

    The extent of an axis is low + n + interior * (n - 1) + high.
    """

    low: tuple[int, ...]
    high: tuple[int, ...]
    interior: tuple[int, ...]
    value: float = 0.0
    name: ClassVar[str] = "pad"
    takes_narrow: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if math.isnan(self.value):  # two fields that are NaN are equal if they are one object
            object.__setattr__(self, "value", math.nan)

    def infer(self, *inputs: Type) -> tuple[Type, ...]:
        (x,) = inputs
        assert len(self.low) == len(self.high) == len(self.interior) == x.rank
        assert min((*self.low, *self.high, *self.interior), default=0) >= 0, self
        shape = tuple(
            low + n + interior * max(n - 1, 0) + high
            for n, low, high, interior in zip(
                x.shape, self.low, self.high, self.interior, strict=True
            )
        )
        return (Type(shape, x.dtype),)

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        (x,) = inputs
        (kind,) = self.infer(Type(x.shape))
        y = np.full(kind.shape, self.value, x.dtype)
        y[self._places(x.shape)] = x
        return (y,)

    def grad(self, f: Vocabulary, inputs: Tensors, outputs: Tensors, grads: Tensors) -> Gradients:
        return (grads[0][self._places(inputs[0].shape)],)

    @property
    def moves_sums(self) -> bool:
        return self.value == 0

    def axis_map(self, *inputs: Type) -> tuple[tuple[Axes, ...], ...]:
        gaps = zip(self.low, self.high, self.interior, strict=True)
        return ((tuple(None if any(gap) else d for d, gap in enumerate(gaps)),),)

    def batched(self, f: Vocabulary, inputs: Tensors, stacked: Flags, size: int) -> Tensors:
        low, high, interior = ((0, *x) for x in (self.low, self.high, self.interior))
        return (f.emit(Pad(low, high, interior, self.value), inputs[0]),)

    def _places(self, shape: tuple[int, ...]) -> tuple[slice, ...]:
        """Where the elements of x lie in y."""
        return tuple(
            slice(low, low + (n - 1) * (interior + 1) + 1 if n else low, interior + 1)
            for n, low, interior in zip(shape, self.low, self.interior, strict=True)
        )


@dataclass(frozen=True)
class Concat(Op):
    """The inputs one behind the other along `axis`; their other extents are equal."""

    axis: int
    name: ClassVar[str] = "concat"
    takes_narrow: ClassVar[bool] = True
    moves_sums: ClassVar[bool] = True

    @property
    def concat_axis(self) -> int:
        return self.axis

    def infer(self, *inputs: Type) -> tuple[Type, ...]:
        first, axis = inputs[0], self.axis
        assert 0 <= axis < first.rank, (axis, first)
        for x in inputs:
            others = (x.shape[:axis], x.shape[axis + 1 :])
            if x.rank != first.rank or others != (first.shape[:axis], first.shape[axis + 1 :]):
                raise GraphError(f"concat: {first} and {x} differ in more than axis {axis}")
        shape = list(first.shape)
        shape[axis] = sum(x.shape[axis] for x in inputs)
        return (Type(tuple(shape), same_dtype("concat", inputs)),)

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        return (np.concatenate(inputs, self.axis),)

    def grad(self, f: Vocabulary, inputs: Tensors, outputs: Tensors, grads: Tensors) -> Gradients:
        (d,) = grads
        parts, start = [], 0
        for x in inputs:
            stop = start + x.shape[self.axis]
            parts.append(d[(*(slice(None),) * self.axis, slice(start, stop))])
            start = stop
        return parts

    def axis_map(self, *inputs: Type) -> tuple[tuple[Axes, ...], ...]:
        return (tuple(all_but(self.axis, x.rank) for x in inputs),)

    def batched(self, f: Vocabulary, inputs: Tensors, stacked: Flags, size: int) -> Tensors:
        return (f.emit(Concat(self.axis + 1), *all_stacked(f, inputs, stacked, size)),)

    def sections(self, *inputs: Type) -> Sections | None:
        shape = inputs[0].shape
        if 0 in shape or any(x.shape != shape for x in inputs):
            return None
        return Sections(self.axis, len(inputs), shape[self.axis])
