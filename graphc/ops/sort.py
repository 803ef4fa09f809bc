"""Elements in order, their places, and places among elements in order."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from graphc.base.errors import GraphError
from graphc.ir import Type
from graphc.ir.vocabulary import Gradients, Tensors, Vocabulary
from graphc.ops.axes import Axes, all_but, all_stacked
from graphc.ops.base import NUMBERS, Array, Flags, Index, Op, check_dtype, same_dtype


@dataclass(frozen=True)
class Sort(Op):
    """The first `count` elements along `axis` in ascending order, and their i64 indices.

    The order is descending if `descending`. Equal elements keep their order; NaN is the largest
    value.
    """

    axis: int
    count: int
    descending: bool = False
    name: ClassVar[str] = "sort"
    own_template: ClassVar[str] = "sort"
    computes_reads: ClassVar[bool] = True

    def infer(self, *inputs: Type) -> tuple[Type, ...]:
        (x,) = inputs
        assert 0 <= self.axis < x.rank and 0 <= self.count <= x.shape[self.axis], (self, x)
        shape = (*x.shape[: self.axis], self.count, *x.shape[self.axis + 1 :])
        return Type(shape, x.dtype), Type(shape, "i64")

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        (x,) = inputs
        if self.descending:
            # The last of equal ones first, from the axis's end: in all, the first one first.
            order = np.flip(np.argsort(np.flip(x, self.axis), self.axis, stable=True), self.axis)
            order = x.shape[self.axis] - 1 - order
        else:
            order = np.argsort(x, self.axis, stable=True)
        places = np.take(order, np.arange(self.count), self.axis).astype(np.int64)
        return np.take_along_axis(x, places, self.axis), places

    def grad(self, f: Vocabulary, inputs: Tensors, outputs: Tensors, grads: Tensors) -> Gradients:
        (x,), (_, places), (d, _) = inputs, outputs, grads
        return (
            f.sum_by_index(places, d, self.axis, x.shape[self.axis]) if d is not None else None,
        )

    def axis_map(self, *inputs: Type) -> tuple[tuple[Axes, ...], ...]:
        return ((all_but(self.axis, inputs[0].rank),),) * 2

    def batched(self, f: Vocabulary, inputs: Tensors, stacked: Flags, size: int) -> Tensors:
        return f.emit_all(replace(self, axis=self.axis + 1), *inputs)


@dataclass(frozen=True)
class Searchsorted(Index):
    """y[..., i] = the number of a[..., j] that are less than b[..., i] (or equal, if `right`).

    It is a binary search in ascending a; NaN is the largest value.
    """

    right: bool = False
    name: ClassVar[str] = "searchsorted"
    in_memory: ClassVar[slice] = slice(1)

    def infer(self, *inputs: Type) -> tuple[Type, ...]:
        table, values = inputs
        check_dtype("searchsorted", same_dtype("searchsorted", inputs), NUMBERS, inputs)
        if not table.rank or table.rank != values.rank or table.shape[:-1] != values.shape[:-1]:
            raise GraphError(
                f"searchsorted: {table} and values {values} differ in more than the last axis"
            )
        return (Type(values.shape, "i64"),)

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        table, values = inputs
        low = np.zeros(values.shape, np.int64)
        high = np.full(values.shape, table.shape[-1], np.int64)
        while (searching := low < high).any():
            middle = (low + high) // 2
            x = np.take_along_axis(table, np.minimum(middle, table.shape[-1] - 1), -1)
            before = (x <= values if self.right else x < values) | np.isnan(values)
            if not self.right:
                before &= ~np.isnan(x)
            low = np.where(searching & before, middle + 1, low)
            high = np.where(searching & ~before, middle, high)
        return (low,)

    def axis_map(self, *inputs: Type) -> tuple[tuple[Axes, ...], ...]:
        return (tuple(all_but(x.rank - 1, x.rank) for x in inputs),)

    def batched(self, f: Vocabulary, inputs: Tensors, stacked: Flags, size: int) -> Tensors:
        return (f.emit(self, *all_stacked(f, inputs, stacked, size)),)
