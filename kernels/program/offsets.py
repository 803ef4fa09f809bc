"""Move a constant offset out of a kernel's text, so that kernels that differ only by it share one
text.

An unrolled recurrent network reads x[0], x[1], x[2], ...: equal kernels but for the row number.
Where a body reads nothing before some row of an input, its input begins at that row, and
`Kernel.offsets` has the bytes before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from graphc.ir import Node, Value
from graphc.ir.state import ALIGNMENT
from graphc.ops.fused import KernelNode
from graphc.ops.view import Slice


def moved_inputs(node: KernelNode) -> tuple[KernelNode, tuple[int, ...]]:
    """`node` with inputs that begin at the first row that its body reads, and the bytes before that
    row for each input. If nothing moves, the node itself and ()."""
    body = node.body
    if any(isinstance(n, KernelNode) for n in body.nodes):
        return node, ()
    consumers, outputs = body.consumers, set(body.outputs)
    rows = {
        v: first
        for v in body.inputs
        if v not in outputs and (first := _first_row(v, consumers.get(v, ())))
    }
    if not rows:
        return node, ()
    new = {value: _without_first_rows(value, first) for value, first in rows.items()}
    nodes = tuple(
        _moved(inner, new, rows) if any(v in rows for v in inner.inputs) else inner
        for inner in body.nodes
    )
    inputs = tuple(new.get(v, v) for v in body.inputs)
    outer = tuple(
        _without_first_rows(value, rows[own]) if own in rows else value
        for value, own in zip(node.inputs, body.inputs, strict=True)
    )
    offsets = tuple(rows[v] * _row_bytes(v) if v in rows else 0 for v in body.inputs)
    graph = replace(body, inputs=inputs, nodes=nodes)
    return replace(node, op=replace(node.op, body=graph), inputs=outer), offsets


def _axis(value: Value) -> int:
    """The first axis with more than one index."""
    return next((d for d, extent in enumerate(value.type.shape) if extent != 1), 0)


def _row_bytes(value: Value) -> int:
    """Bytes from one index of the first axis to the next."""
    return value.type.nbytes // max(value.type.shape[_axis(value)], 1)


def _first_row(value: Value, consumers: Sequence[Node]) -> int:
    """The first index of the first axis that anything reads, or the largest before it that keeps
    the input aligned; 0 where that is not known."""
    if not value.type.rank or not value.type.size or value.type.layout.axis is not None:
        return 0
    slices = [n for n in consumers if isinstance(n.op, Slice) and n.outputs[0].type.size]
    if not slices or len(slices) < len(consumers):
        return 0
    axis, step = _axis(value), _row_bytes(value)
    first = min(n.op.starts[axis] for n in slices if isinstance(n.op, Slice))
    while first * step % ALIGNMENT:
        first -= 1
    return first


def _without_first_rows(value: Value, first: int) -> Value:
    """The value without its first rows."""
    axis, shape = _axis(value), list(value.type.shape)
    shape[axis] -= first
    return Value(value.name, replace(value.type, shape=tuple(shape)))


def _moved(node: Node, new: dict[Value, Value], rows: dict[Value, int]) -> Node:
    (value,) = node.inputs
    assert isinstance(node.op, Slice)
    axis, first = _axis(value), rows[value]
    starts, stops = list(node.op.starts), list(node.op.stops)
    starts[axis] -= first
    stops[axis] -= first
    op = replace(node.op, starts=tuple(starts), stops=tuple(stops))
    return replace(node, op=op, inputs=(new[value],))
