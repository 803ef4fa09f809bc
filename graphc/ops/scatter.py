"""Elements put, or combined, into the places of an axis that indices name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from graphc.ir import Type
from graphc.ir.vocabulary import Gradients, Tensor, Tensors, Vocabulary
from graphc.ops.axes import Axes, all_but, all_stacked
from graphc.ops.base import ANY, COMBINES, NUMBERS, Array, Flags, Index, check_dtype
from graphc.ops.constant import Iota
from graphc.ops.indexing import PLACES, TakeAlongAxis


@dataclass(frozen=True)
class Scatter(Index):
    """y = a with c[..., i, ...] combined at index b[..., i, ...] along `axis`.

    Elements are combined in ascending order of i; `combine` is replace, sum, prod, max or min.
    Indices out of range change nothing.
    """

    axis: int
    combine: str
    name: ClassVar[str] = "scatter"
    own_template: ClassVar[str] = "scatter"

    @property
    def accumulates(self) -> bool:
        return self.combine in ("sum", "prod")

    def infer(self, *inputs: Type) -> tuple[Type, ...]:
        x, indices, source = inputs
        assert self.combine == "replace" or self.combine in COMBINES, self.combine
        check_dtype("scatter", indices.dtype, PLACES, inputs)
        check_dtype("scatter", x.dtype, ANY if self.combine == "replace" else NUMBERS, inputs)
        others = [[n for a, n in enumerate(t.shape) if a != self.axis] for t in inputs[:2]]
        assert x.rank == indices.rank and others[0] == others[1], (self, x, indices)
        assert source == Type(indices.shape, x.dtype), (self, x, indices, source)
        return (Type(x.shape, x.dtype),)

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        x, indices, source = (np.moveaxis(a, self.axis, 0) for a in inputs)
        y = x.astype(np.result_type(x, source))
        rest = np.indices(x.shape[1:], sparse=True)
        for row, elements in zip(indices, source, strict=True):
            inside = (row >= 0) & (row < len(x))
            if len(x):
                at = (np.where(inside, row, 0), *rest)
                new = (
                    elements
                    if self.combine == "replace"
                    else COMBINES[self.combine](y[at], elements)
                )
                y[at] = np.where(inside, new, y[at])
        return (np.ascontiguousarray(np.moveaxis(y, 0, self.axis)),)

    def grad(self, f: Vocabulary, inputs: Tensors, outputs: Tensors, grads: Tensors) -> Gradients:
        (x, places, source), (y,), (d,) = inputs, outputs, grads

        def taken(tensor: Tensor) -> Tensor:
            return f.emit(TakeAlongAxis(self.axis), tensor, places)

        def scattered(combine: str, into: Tensor, what: Tensor) -> Tensor:
            return f.emit(Scatter(self.axis, combine), into, places, what)

        if self.combine == "sum":
            return d, None, taken(d)
        if self.combine == "replace":
            ramp = f.emit(Iota(places.shape, self.axis, "i32"))
            last = scattered("replace", f.zeros(x.shape, "i32"), ramp)
            kept = f.where(taken(last) == ramp, taken(d), 0)
            return scattered("replace", d, f.zeros(places.shape, d.dtype)), None, kept
        if self.combine == "prod":
            return self._of_product(f, x, source, y, d, taken, scattered)
        # Those that equal the extreme share its gradient.
        mine, theirs = (f.astype(s == e, d.dtype) for s, e in ((x, y), (source, taken(y))))
        part = d / scattered("sum", mine, theirs)
        return mine * part, None, theirs * taken(part)

    def axis_map(self, *inputs: Type) -> tuple[tuple[Axes, ...], ...]:
        return (tuple(all_but(self.axis, x.rank) for x in inputs),)

    def batched(self, f: Vocabulary, inputs: Tensors, stacked: Flags, size: int) -> Tensors:
        op = replace(self, axis=self.axis + 1)
        return (f.emit(op, *all_stacked(f, inputs, stacked, size)),)

    def _of_product(
        self,
        f: Vocabulary,
        x: Tensor,
        source: Tensor,
        y: Tensor,
        d: Tensor,
        taken: Callable[[Tensor], Tensor],
        scattered: Callable[[str, Tensor, Tensor], Tensor],
    ) -> Gradients:
        """d times the product of the others: without one's zero, as long as no other is 0."""
        zero, zeros = source == 0, source * 0
        count = scattered("sum", x * 0, f.where(zero, zeros + 1, zeros))
        alone = f.logical_and(zero, taken(count) == 1)
        without = scattered("prod", x, f.where(alone, 1, source))
        others = f.where(zero, 0, taken(d * y) / f.where(zero, 1, source))
        dsource = f.where(alone, taken(d * without), others)
        return d * scattered("prod", x * 0 + 1, source), None, dsource
