"""Sums over the processes that train one model together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from graphc.base.errors import GraphError
from graphc.ir import FLOATS, Type
from graphc.ir.vocabulary import Gradients, Tensors, Vocabulary
from graphc.ops.axes import Axes
from graphc.ops.base import Array, Op, check_dtype, same_dtype


class _Exchange(Op):
    """What all ranks do together, with as many results as inputs."""

    is_planned: ClassVar[bool] = True
    communicates: ClassVar[bool] = True

    def axis_map(self, *inputs: Type) -> tuple[tuple[Axes, ...], ...]:
        """Nothing is known, so that the operands lie in memory as they are."""
        return tuple(tuple((None,) * x.rank for x in inputs) for _ in inputs)


@dataclass(frozen=True)
class AllReduce(_Exchange):
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


@dataclass(frozen=True)
class ReduceScatter(_Exchange):
    """This rank's slice of the sum over all ranks, in the order of the ranks.

    The input has the slice of each rank along its first axis, behind an axis of `pieces` if these
    are more than one, as those of `AllReduce`.
    """

    ranks: int
    """The number of processes."""
    pieces: int = 1
    """The pieces of each rank."""
    name: ClassVar[str] = "reduce_scatter"

    def infer(self, *inputs: Type) -> tuple[Type, ...]:
        (x,) = inputs
        check_dtype(self.name, x.dtype, FLOATS, (x,))
        lead = (self.ranks,) if self.pieces == 1 else (self.pieces, self.ranks)
        if x.shape[: len(lead)] != lead:
            raise GraphError(f"reduce_scatter: expected {list(lead)} slices, got {x}")
        return (Type(x.shape[len(lead) :], x.dtype),)

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        """What one rank contributes to the first slice."""
        (x,) = inputs
        if self.pieces == 1:
            return (x[0],)
        total: Array = x[0, 0].copy()
        for piece in x[1:]:
            total += piece[0]
        return (total,)


@dataclass(frozen=True)
class AllToAll(_Exchange):
    """What each rank has for this one, in the order of the ranks.

    The input has a part for each rank along its first axis, and so has the result.
    """

    ranks: int
    """The number of processes."""
    name: ClassVar[str] = "all_to_all"

    def infer(self, *inputs: Type) -> tuple[Type, ...]:
        (x,) = inputs
        if x.shape[:1] != (self.ranks,):
            raise GraphError(f"all_to_all: expected {self.ranks} parts, got {x}")
        return (Type(x.shape, x.dtype),)

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        """What rank 0 receives where all ranks have the same input."""
        return (np.repeat(inputs[0][:1], self.ranks, axis=0),)


@dataclass(frozen=True)
class AllGather(_Exchange):
    """The inputs of all ranks, along a new first axis in the order of the ranks."""

    ranks: int
    """The number of processes."""
    name: ClassVar[str] = "all_gather"

    def infer(self, *inputs: Type) -> tuple[Type, ...]:
        (x,) = inputs
        return (Type((self.ranks, *x.shape), x.dtype),)

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        """What there is where all ranks have the same input."""
        return (np.repeat(inputs[0][None], self.ranks, axis=0),)
