"""Elements in order, and their places."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from graphc.ir import Type
from graphc.ops.base import Array, Op, Tensors


@dataclass(frozen=True)
class Sort(Op):
    """The first `count` elements along `axis` in ascending order (descending if `descending`), and
    their places (i64). Equal elements keep their order; NaN is larger than anything."""

    axis: int
    count: int
    descending: bool = False
    name: ClassVar[str] = "sort"
    own_template: ClassVar[str] = "sort"

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

    def grad(self, inputs: Tensors, outputs: Tensors, grads: Tensors) -> Tensors:
        from graphc.functions.gathering import sum_by_index

        (x,), (_, places), (d, _) = inputs, outputs, grads
        return (sum_by_index(places, d, self.axis, x.shape[self.axis]) if d is not None else None,)
