"""Join sums of padded pieces, which the gradients of slices add up to.

Slices that tile a value give gradients that are zero everywhere else. Their sum is their concat,
whose pieces a kernel writes in place: then no array of the full size holds zeros.
"""

from __future__ import annotations

from dataclasses import dataclass

from graphc.ir import Node, Value
from graphc.ops.join import Concat, Pad
from graphc.ops.pointwise.arithmetic import Add
from graphc.passes.simplify.sweep import Sweep

MOST_TERMS = 16
"""Of a sum that is looked at."""


@dataclass(frozen=True)
class _Piece:
    """`value`, with zeros before and behind it along `axis`."""

    axis: int
    start: int
    value: Value

    @property
    def stop(self) -> int:
        return self.start + self.value.type.shape[self.axis]


def concat_of_padded(node: Node, sweep: Sweep) -> Value | None:
    """The sum as a concat, and what else it adds: exact, but that a zero keeps its sign."""
    if Pad not in sweep.kinds:
        return None
    terms = _terms(node, sweep)
    padded = {v: p for v in terms if (p := _piece(v, sweep)) is not None}
    for axis in sorted({p.axis for p in padded.values()}):
        along = sorted((p for p in padded.values() if p.axis == axis), key=lambda p: p.start)
        starts = [0, *(p.stop for p in along)]
        if starts != [*(p.start for p in along), node.output.type.shape[axis]]:
            continue
        rest = [v for v in terms if v not in padded or padded[v].axis != axis]
        if len(along) < 2 or len(rest) > 1:  # another order of more terms would round otherwise
            continue
        parts = tuple(v for p in along for v in _parts(p.value, axis, sweep))
        joined = sweep.emit(Concat(axis), parts, node)
        return sweep.emit(Add(), (*rest, joined), node) if rest else joined
    return None


def joined_neighbours(node: Node, sweep: Sweep) -> Value | None:
    """Replace the sum of two adjacent padded pieces by one padded piece.

    So the gradients of many slices, which are added one by one, are found to tile a value.
    """
    if Pad not in sweep.kinds:
        return None
    found = [_piece(v, sweep) for v in node.inputs if v not in sweep.shared]
    pieces = sorted((p for p in found if p is not None), key=lambda p: p.start)
    if len(pieces) != 2 or node.inputs[0].type != node.inputs[1].type:
        return None
    first, second = pieces
    if first.axis != second.axis or first.stop != second.start:
        return None
    axis, extent = first.axis, node.output.type.shape[first.axis]
    parts = (*_parts(first.value, axis, sweep), *_parts(second.value, axis, sweep))
    joined = sweep.emit(Concat(axis), parts, node)
    low, high = [0] * node.output.type.rank, [0] * node.output.type.rank
    low[axis], high[axis] = first.start, extent - second.stop
    if not low[axis] and not high[axis]:
        return joined
    return sweep.emit(Pad(tuple(low), tuple(high), (0,) * len(low)), (joined,), node)


def _parts(value: Value, axis: int, sweep: Sweep) -> tuple[Value, ...]:
    """What a concat of that axis joins; any other value is its only part."""
    producer = sweep.producer(value)
    if producer is None or producer.op != Concat(axis) or value in sweep.shared:
        return (value,)
    return producer.inputs


def _terms(node: Node, sweep: Sweep) -> list[Value]:
    """The values of the output's shape that the node adds up, itself or through other additions."""
    terms: list[Value] = []
    waiting = list(node.inputs)
    while waiting:
        value = waiting.pop()
        producer = sweep.producer(value)
        whole = producer is not None and all(v.type == value.type for v in producer.inputs)
        if producer is not None and producer.op.adds and whole:
            waiting += producer.inputs
        else:
            terms.append(value)
        if len(waiting) + len(terms) > MOST_TERMS or value.type != node.output.type:
            return []
    return terms


def _piece(value: Value, sweep: Sweep) -> _Piece | None:
    producer = sweep.producer(value)
    if producer is None or not isinstance(producer.op, Pad):
        return None
    op, (inner,) = producer.op, producer.inputs
    axes = [d for d, (low, high) in enumerate(zip(op.low, op.high, strict=True)) if low or high]
    if len(axes) != 1 or any(op.interior) or op.value != 0 or not inner.type.size:
        return None
    return _Piece(axes[0], op.low[axes[0]], inner)
