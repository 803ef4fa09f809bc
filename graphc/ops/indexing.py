"""Reads at places that another input names, and their gradient."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from graphc.base.errors import GraphError
from graphc.ir import Type
from graphc.ir.vocabulary import Gradients, Tensors, Vocabulary
from graphc.ops.axes import Axes, all_but, all_stacked, from_front, repeated, to_front, unfolded
from graphc.ops.base import Array, Flags, Index, check_dtype
from graphc.ops.constant import Iota

PLACES = ("i32", "i64")
"""The dtypes of indices."""


@dataclass(frozen=True)
class Take(Index):
    """y[a..., i..., b...] = table[a..., indices[i...], b...]: the indices' axes in place of `axis`.

    An index below 0 or not below the extent of `axis` gives 0.
    """

    axis: int
    name: ClassVar[str] = "take"
    in_memory: ClassVar[slice] = slice(1)
    takes_narrow: ClassVar[bool] = True

    def infer(self, *inputs: Type) -> tuple[Type, ...]:
        table, indices = inputs
        assert 0 <= self.axis < table.rank, (self.axis, table)
        check_dtype("take", indices.dtype, PLACES, inputs)
        shape = (*table.shape[: self.axis], *indices.shape, *table.shape[self.axis + 1 :])
        return (Type(shape, table.dtype),)

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        table, indices = inputs
        extent, axis = table.shape[self.axis], self.axis
        shape = (*table.shape[:axis], *indices.shape, *table.shape[axis + 1 :])
        if extent == 0:
            return (np.zeros(shape, table.dtype),)
        inside = (indices >= 0) & (indices < extent)
        mask = inside.reshape((*indices.shape, *(1,) * (table.ndim - 1 - axis)))
        rows = np.take(table, np.where(inside, indices, 0), axis)
        return (np.where(mask, rows, table.dtype.type(0)),)

    def grad(self, f: Vocabulary, inputs: Tensors, outputs: Tensors, grads: Tensors) -> Gradients:
        table, indices = inputs
        return f.emit(TakeGrad(self.axis, table.shape[self.axis]), indices, grads[0]), None

    def axis_map(self, *inputs: Type) -> tuple[tuple[Axes, ...], ...]:
        table, indices = inputs
        shift = indices.rank - 1
        own = (None if d == self.axis else d + shift * (d > self.axis) for d in range(table.rank))
        return ((tuple(own), tuple(range(self.axis, self.axis + indices.rank))),)

    def batched(self, f: Vocabulary, inputs: Tensors, stacked: Flags, size: int) -> Tensors:
        table, indices = inputs
        axis = self.axis
        if not stacked[1]:
            return (f.emit(Take(axis + 1), table, indices),)
        if not stacked[0]:
            return (to_front(f, f.emit(Take(axis), table, indices), axis),)
        # Each sample's own rows: along the axis, at the same places before and behind it.
        before, after = table.shape[1 : axis + 1], table.shape[axis + 2 :]
        places = math.prod(indices.shape[1:])
        flat = f.reshape(indices, (size, *(1,) * axis, places, *(1,) * len(after)))
        flat = f.broadcast_to(flat, (size, *before, places, *after))
        rows = f.emit(TakeAlongAxis(axis + 1), table, flat)
        return (f.reshape(rows, (size, *before, *indices.shape[1:], *after)),)


@dataclass(frozen=True)
class TakeAlongAxis(Index):
    """y[a..., i, b...] = table[a..., indices[a..., i, b...], b...], i and the index on `axis`.

    An index below 0 or not below the extent of `axis` gives 0.
    """

    axis: int
    name: ClassVar[str] = "take_along_axis"
    in_memory: ClassVar[slice] = slice(1)
    takes_narrow: ClassVar[bool] = True

    def infer(self, *inputs: Type) -> tuple[Type, ...]:
        table, indices = inputs
        assert 0 <= self.axis < table.rank, (self.axis, table)
        check_dtype("take_along_axis", indices.dtype, PLACES, inputs)
        shapes = [[n for a, n in enumerate(t.shape) if a != self.axis] for t in inputs]
        if table.rank != indices.rank or shapes[0] != shapes[1]:
            raise GraphError(
                f"take_along_axis: {table} and indices {indices} differ in more than axis "
                f"{self.axis}"
            )
        return (Type(indices.shape, table.dtype),)

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        table, indices = inputs
        extent = table.shape[self.axis]
        if extent == 0:
            return (np.zeros(indices.shape, table.dtype),)
        inside = (indices >= 0) & (indices < extent)
        rows = np.take_along_axis(table, np.where(inside, indices, 0), self.axis)
        return (np.where(inside, rows, table.dtype.type(0)),)

    def grad(self, f: Vocabulary, inputs: Tensors, outputs: Tensors, grads: Tensors) -> Gradients:
        """Each element of the table adds, in ascending order, what the indices took from it."""
        table, indices = inputs
        return f.sum_by_index(indices, grads[0], self.axis, table.shape[self.axis]), None

    def axis_map(self, *inputs: Type) -> tuple[tuple[Axes, ...], ...]:
        return (tuple(all_but(self.axis, x.rank) for x in inputs),)

    def batched(self, f: Vocabulary, inputs: Tensors, stacked: Flags, size: int) -> Tensors:
        whole = all_stacked(f, inputs, stacked, size)
        return (f.emit(TakeAlongAxis(self.axis + 1), *whole),)


@dataclass(frozen=True)
class TakeGrad(Index):
    """dtable[a..., j, b...] = sum of dy[a..., i..., b...] over the i with indices[i...] = j.

    The sum is in row-major order of i; `extent` is the size of j. Indices out of range add nothing.
    """

    axis: int
    extent: int
    name: ClassVar[str] = "take_grad"
    own_template: ClassVar[str] = "index"

    @property
    def accumulates(self) -> bool:
        return True

    def infer(self, *inputs: Type) -> tuple[Type, ...]:
        indices, dy = inputs
        check_dtype("take_grad", indices.dtype, PLACES, inputs)
        behind = self.axis + indices.rank
        assert dy.shape[self.axis : behind] == indices.shape, (self, indices, dy)
        return (Type((*dy.shape[: self.axis], self.extent, *dy.shape[behind:]), dy.dtype),)

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        indices, dy = inputs
        before, after = dy.shape[: self.axis], dy.shape[self.axis + indices.ndim :]
        inside = ((indices >= 0) & (indices < self.extent)).ravel()
        rows = np.moveaxis(dy.reshape(*before, indices.size, *after), self.axis, 0)
        table = np.zeros((self.extent, *before, *after), dy.dtype)
        np.add.at(table, indices.ravel()[inside], rows[inside])
        return (np.moveaxis(table, 0, self.axis),)

    def grad(self, f: Vocabulary, inputs: Tensors, outputs: Tensors, grads: Tensors) -> Gradients:
        return None, f.emit(Take(self.axis), grads[0], inputs[0])

    def axis_map(self, *inputs: Type) -> tuple[tuple[Axes, ...], ...]:
        indices, dy = inputs
        behind = self.axis + indices.rank
        shift = indices.rank - 1
        own = (d if d < self.axis else None if d < behind else d - shift for d in range(dy.rank))
        return (((None,) * indices.rank, tuple(own)),)

    def batched(self, f: Vocabulary, inputs: Tensors, stacked: Flags, size: int) -> Tensors:
        """The samples' tables are one, of `size * extent` rows."""
        indices, dy = inputs
        if not stacked[0]:
            return (f.emit(TakeGrad(self.axis + 1, self.extent), indices, dy),)
        dy = from_front(f, dy if stacked[1] else repeated(f, dy, size), self.axis)
        first = f.emit(Iota((size, *(1,) * (indices.ndim - 1)), 0, "i64")) * self.extent
        inside = f.logical_and(indices >= 0, indices < self.extent)
        places = f.where(inside, f.astype(indices, "i64") + first, -1)
        table = f.emit(TakeGrad(self.axis, size * self.extent), places, dy)
        return (unfolded(f, table, size, self.axis),)
