"""Sums over the processes that train one model together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from graphc.base.errors import GraphError
from graphc.ir import FLOATS, Type
from graphc.ir.vocabulary import Gradients, Tensors, Vocabulary
from graphc.ops.axes import Axes
from graphc.ops.base import Array, Op, check_dtype, same_dtype


@dataclass(frozen=True)
class AllReduce(Op):
    """The sum of each input over all ranks, in the order of the ranks.

    With `pieces` > 1 an input has that many pieces along its first axis, and the sum is over the
    pieces of all ranks: those of rank 0 in order, then those of rank 1, and so on. `early` says
    that results are needed soon, as within a forward pass; else they wait for no kernel and no
    kernel of a gradient waits for them.
    """

    ranks: int
    """The number of processes."""
    pieces: int = 1
    """The pieces of each rank."""
    early: bool = False
    name: ClassVar[str] = "all_reduce"
    is_planned: ClassVar[bool] = True
    communicates: ClassVar[bool] = True

    def infer(self, *inputs: Type) -> tuple[Type, ...]:
        check_dtype(self.name, same_dtype(self.name, inputs), FLOATS, inputs)
        if self.pieces == 1:
            return tuple(Type(x.shape, x.dtype) for x in inputs)
        for x in inputs:
            if x.shape[:1] != (self.pieces,):
                raise GraphError(f"all_reduce: expected {self.pieces} pieces, got {x}")
        return tuple(Type(x.shape[1:], x.dtype) for x in inputs)

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        """What one rank contributes; the sum itself where there is one rank."""
        return tuple(self._local(x) for x in inputs)

    def _local(self, x: Array) -> Array:
        if self.pieces == 1:
            return x
        total: Array = x[0].copy()
        for piece in x[1:]:
            total += piece
        return total

    def grad(self, f: Vocabulary, inputs: Tensors, outputs: Tensors, grads: Tensors) -> Gradients:
        """What all ranks' losses change by: the sum of the gradients, the same for each piece."""
        known = [n for n, d in enumerate(grads) if d is not None]
        if self.pieces > 1:
            raise GraphError("all_reduce: a sum of pieces has no gradient")
        summed = f.emit_all(AllReduce(self.ranks, early=True), *(grads[n] for n in known))
        found = dict(zip(known, summed, strict=True))
        return tuple(found.get(n) for n in range(len(inputs)))

    def axis_map(self, *inputs: Type) -> tuple[tuple[Axes, ...], ...]:
        """Nothing is known, so that the operands lie in memory as they are."""
        return tuple(tuple((None,) * x.rank for x in inputs) for _ in inputs)
