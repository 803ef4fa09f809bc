"""Reads at places that another input names, and their gradient."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from graphc.errors import GraphError
from graphc.ir import Type
from graphc.ops.base import Array, Index, Tensors, check_dtype

PLACES = ("i32", "i64")
"""The dtypes of indices."""


@dataclass(frozen=True)
class Take(Index):
    """y[a..., i..., b...] = table[a..., indices[i...], b...]: the indices' axes in place of `axis`.

    An index below 0 or not below the extent of `axis` gives 0.
    """

    axis: int
    name: ClassVar[str] = "take"

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

    def grad(self, inputs: Tensors, outputs: Tensors, grads: Tensors) -> Tensors:
        from graphc.trace import emit

        table, indices = inputs
        return emit(TakeGrad(self.axis, table.shape[self.axis]), indices, grads[0]), None


@dataclass(frozen=True)
class TakeAlongAxis(Index):
    """y[a..., i, b...] = table[a..., indices[a..., i, b...], b...], i and the index on `axis`.

    An index below 0 or not below the extent of `axis` gives 0.
    """

    axis: int
    name: ClassVar[str] = "take_along_axis"

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

    def grad(self, inputs: Tensors, outputs: Tensors, grads: Tensors) -> Tensors:
        """Each element of the table adds, in ascending order, what the indices took from it."""
        from graphc.functions.gathering import sum_by_index

        table, indices = inputs
        return sum_by_index(indices, grads[0], self.axis, table.shape[self.axis]), None


@dataclass(frozen=True)
class TakeGrad(Index):
    """dtable[a..., j, b...] = sum of dy[a..., i..., b...] over the i with indices[i...] = j, in
    row-major order of i; `extent` is that of j. Indices out of range add nothing."""

    axis: int
    extent: int
    name: ClassVar[str] = "take_grad"
    own_template: ClassVar[str] = "index"

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

    def grad(self, inputs: Tensors, outputs: Tensors, grads: Tensors) -> Tensors:
        from graphc.trace import emit

        return None, emit(Take(self.axis), grads[0], inputs[0])
