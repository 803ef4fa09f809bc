"""Updates that are divided among the ranks: each updates its slice of every parameter.

A slice has an n-th of the elements, in row-major order. The gradients of a bucket are reduced and
scattered, each rank updates its slices, and what these become is gathered by all.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np

from graphc import functions, ops
from graphc.base.dtypes import convert
from graphc.base.errors import GraphError
from graphc.ir import Array, Type
from graphc.ir.sliced_state import SlicedBuffer, slice_size
from graphc.ir.state import StateBuffer
from graphc.nn.parameter import Parameter
from graphc.trace import Builder, Tensor


@dataclass(frozen=True)
class Slices:
    """How updates are divided among ranks."""

    rank: int
    """The number of this process."""
    ranks: int
    """How many there are."""
    gathered: Callable[[Array], Array]
    """Returns the arrays of all ranks along a new first axis; all call it together."""
    by_kernels: bool
    """Whether kernels, rather than messages, add the gradients of ranks."""
    _bucket: dict[str, Tensor] = field(default_factory=dict)
    """This rank's slices of the sums of the bucket of each parameter, by name."""

    def moment(self, kind: Type, initial: float) -> SlicedBuffer:
        """Return the slice of a new moment of a parameter of type `kind`."""
        return SlicedBuffer(kind, self.rank, self.ranks, self.gathered, initial)

    def reduced(
        self, builder: Builder, gradients: Sequence[tuple[str, Tensor]], pieces: int
    ) -> list[Tensor]:
        """Return this rank's slices of the sums of a bucket's gradients, each [n].

        Args:
            builder: The program under construction.
            gradients: (name of a parameter, its gradient), of one dtype. With `pieces` > 1 they
                have these along their first axes.
            pieces: The pieces of each rank.
        """
        lead = () if pieces == 1 else (pieces,)
        tensors = [gradient for _, gradient in gradients]
        with _behind(builder, tensors):
            rows = [_rows(tensor, lead, self.ranks) for tensor in tensors]
            whole = functions.concat(rows, -1) if len(rows) > 1 else rows[0]
            if self.by_kernels:
                total = _slice_sum(builder, whole, self.ranks, pieces)
            else:
                (total,) = builder.emit(ops.ReduceScatter(self.ranks, pieces), whole, name="bucket")
        self._bucket.update((name, total) for name, _ in gradients)
        return list(functions.split(total, [row.shape[-1] for row in rows]))

    def of(self, builder: Builder, weight: Tensor, name: str) -> Tensor:
        """Return this rank's slice [n] of a parameter of that name."""
        size = slice_size(weight.value.type, self.ranks)
        flat = functions.reshape(weight, weight.size)
        if lack := self.ranks * size - flat.size:
            # What follows the last element does not matter. By the sums the copy waits for its
            # bucket, so that copies of all parameters are never there at once.
            rest = functions.broadcast_to(self._bucket[name][:1], lack)
            rest = functions.astype(rest, weight.dtype)
            flat = functions.concat([flat, rest])
        rows = functions.reshape(flat, (self.ranks, size))
        return functions.take(rows, builder.own_rank(), 0)

    def put(self, builder: Builder, news: Sequence[tuple[str, Tensor, Tensor]]) -> None:
        """Update parameters by the slices of all ranks.

        Args:
            builder: The program under construction.
            news: (its name, the parameter, this rank's new slice of it [n]).
        """
        alike: dict[tuple[str, str], list[tuple[Tensor, Tensor]]] = {}
        for name, old, new in news:
            alike.setdefault((self._bucket[name].value.name, old.dtype), []).append((old, new))
        for members in alike.values():
            parts = [new for _, new in members]
            whole = functions.concat(parts) if len(parts) > 1 else parts[0]
            (rows,) = builder.emit(ops.AllGather(self.ranks), whole, name="updated")
            sizes = [part.shape[0] for part in parts]
            for (old, _), part in zip(members, functions.split(rows, sizes, 1), strict=True):
                flat = functions.reshape(part, -1)[: old.size]
                builder.update(old, functions.reshape(flat, old.shape))


def ordered_sums(
    builder: Builder, tensors: Sequence[Tensor], ranks: int, pieces: int
) -> list[Tensor]:
    """Return the sums of a bucket's tensors over all pieces, added in order by kernels.

    Each rank receives the pieces of its slice of the bucket, adds them, and collects all slices.

    Args:
        builder: The program under construction.
        tensors: The tensors, of one dtype; with `pieces` > 1 these are along their first axes.
        ranks: The number of processes.
        pieces: The pieces of each rank.
    """
    lead = () if pieces == 1 else (pieces,)
    with _behind(builder, tensors):
        rows = [_rows(tensor, lead, ranks) for tensor in tensors]
        whole = functions.concat(rows, -1) if len(rows) > 1 else rows[0]
        own = _slice_sum(builder, whole, ranks, pieces)
        (slices,) = builder.emit(ops.AllGather(ranks), own, name="bucket")
        sums = []
        parts = functions.split(slices, [row.shape[-1] for row in rows], 1)
        for tensor, part in zip(tensors, parts, strict=True):
            shape = tensor.shape[len(lead) :]
            flat = functions.reshape(part, -1)[: math.prod(shape)]
            sums.append(functions.reshape(flat, shape))
    return sums


def _slice_sum(builder: Builder, whole: Tensor, ranks: int, pieces: int) -> Tensor:
    """This rank's slice [n] of a sum of the pieces of all ranks [pieces, ranks, n]."""
    parts = whole if pieces == 1 else functions.swapaxes(whole, 0, 1)
    (received,) = builder.emit(ops.AllToAll(ranks), parts, name="pieces")
    terms = functions.unstack(functions.reshape(received, (ranks * pieces, -1)))
    return functools.reduce(operator.add, terms)


@contextmanager
def _behind(builder: Builder, tensors: Sequence[Tensor]) -> Iterator[None]:
    """Emit nodes behind those that make the tensors.

    So they are before the rest of the backward pass, beside which a bucket is sent.
    """
    begin = len(builder.nodes)
    yield
    own = builder.nodes[begin:]
    del builder.nodes[begin:]
    given = {tensor.value for tensor in tensors}
    made = [n for n, node in enumerate(builder.nodes) if not given.isdisjoint(node.outputs)]
    at = max(made, default=-1) + 1
    builder.nodes[at:at] = own


def _rows(tensor: Tensor, lead: tuple[int, ...], ranks: int) -> Tensor:
    """The slices of all ranks [*lead, ranks, n] of a tensor [*lead, ...]."""
    kind = Type(tensor.shape[len(lead) :], tensor.dtype)
    size = slice_size(kind, ranks)
    flat = functions.reshape(tensor, (*lead, kind.size))
    if lack := ranks * size - kind.size:
        flat = functions.pad(flat, [*((0, 0) for _ in lead), (0, lack)])
    return functions.reshape(flat, (*lead, ranks, size))


def is_elementwise(apply: Callable[[Type], Builder], kind: Type, ranks: int) -> bool:
    """Return whether a rule updates each element of a parameter by itself.

    Args:
        apply: Returns a graph of the update of a parameter of a type.
        kind: The type of a parameter.
        ranks: The number of slices that it is cut into.
    """
    found = []
    for size in (kind, Type((slice_size(kind, ranks),), kind.dtype)):
        nodes = [n for n in apply(size).nodes if not (n.op.moves and n.inputs[0].type.size == 1)]
        if not all(n.op.pointwise or (n.op.is_source and n.output.type.size == 1) for n in nodes):
            return False
        found.append([n.op for n in nodes])
    return str(found[0]) == str(found[1])


def first_moment(
    moment: str, parameter: Parameter, initial: float, slices: Slices | None
) -> StateBuffer:
    """Return the state of a moment before the first step; of `ema`, the parameter itself.

    Args:
        moment: Its name.
        parameter: The parameter.
        initial: The initial value of the elements of other moments.
        slices: How updates are divided among ranks; None if they are not.
    """
    kind = parameter.type
    if slices is not None:
        return slices.moment(kind, initial)
    if moment != "ema" and initial == 0:
        return StateBuffer.zeros(kind)
    first = parameter.numpy() if moment == "ema" else np.full(kind.shape, initial)
    return StateBuffer(convert(first, kind.numpy_dtype))


def check_alike(kept: Sequence[Mapping[str, StateBuffer]], slices: Slices | None) -> None:
    """Raise GraphError if moments that exist are divided among ranks and others are not.

    Args:
        kept: The moments of each parameter that a program updates.
        slices: How that program divides updates; None if it does not.
    """
    for moment in (moment for moments in kept for moment in moments.values()):
        if isinstance(moment, SlicedBuffer) is (slices is None):
            raise GraphError(
                "shard_optimizer_state: expected the same of all programs that update a parameter "
                "by one optimizer"
            )
