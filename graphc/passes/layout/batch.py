"""Follow the batch axis through a kernel's body."""

from __future__ import annotations

from collections.abc import Mapping

from graphc.ir import Graph, Node, Value
from graphc.ops.axes import SUMMED
from graphc.ops.view import PermuteDims

MOVED = -2
"""In place of an axis: a view that moved the batch, good for a contraction over it alone."""


def carries_batch(body: Graph, on_batch: Mapping[Value, int]) -> dict[Value, int] | None:
    """Return the body's values with the axis that is the batch, from those of its inputs.

    It is None if the body uses the batch in another way.
    """
    carried = dict(on_batch)
    moved: set[Value] = set()
    summed: set[Value] = set()
    first_only = False
    for node in body.nodes:
        if not any(v in carried or v in moved for v in node.inputs):
            first_only |= node.op.contracts
            if not summed.isdisjoint(node.inputs):
                summed.update(node.outputs)
            continue
        axis = _follow(node, carried, moved)
        if axis is None or _spans(node, axis, summed):
            return None
        if axis == MOVED:
            moved.update(node.outputs)
        elif axis == SUMMED:
            summed.update(node.outputs)
        else:
            carried.update(dict.fromkeys(node.outputs, axis))
    if any(v in moved for v in body.outputs) or not (carried or moved):
        return None
    if first_only and any(carried.get(v, 0) for v in body.outputs):
        return None  # a product of what has no batch has its lanes along its first axis
    return carried if _rows_keep_the_batch(body, on_batch, carried) else None


def _spans(node: Node, axis: int, summed: set[Value]) -> bool:
    """Return whether the node reads a sum over the batch that still varies along `axis`.

    Of two axes of the batch's size, a kernel can have only one in its lanes.
    """
    if axis < 0 or not node.op.pointwise:
        return False
    from_end = axis - node.output.type.rank
    sums = [v.type for v in node.inputs if v in summed]
    return any(-from_end <= t.rank and t.shape[from_end] != 1 for t in sums)


def _rows_keep_the_batch(
    body: Graph, on_batch: Mapping[Value, int], carried: Mapping[Value, int]
) -> bool:
    """Return whether each reduction has the batch on the axis where its widest input has it.

    The kernel puts its lanes there.
    """
    widest = max(on_batch, key=lambda v: v.type.rank)
    from_end = on_batch[widest] - widest.type.rank
    reduced = [n.inputs[0] for n in body.nodes if n.op.reduced_axes is not None]
    return all(v.type.rank + from_end == carried[v] for v in reduced if v in carried)


def _follow(node: Node, carried: Mapping[Value, int], moved: set[Value]) -> int | None:
    """Return the batch axis of the outputs, MOVED, or SUMMED.

    It is None if it is unclear, or if the op's kernels cannot choose their lanes.
    """
    op = node.op
    if op.contracts and op.lane_axes is None:
        return _follow_contraction(node, carried, moved)
    if any(v in moved for v in node.inputs):
        return MOVED if op.converts_reads else None
    if op.own_template:
        return None
    maps = op.axis_map(*(v.type for v in node.inputs))[0]
    places = {a[carried[v]] for v, a in zip(node.inputs, maps, strict=True) if v in carried}
    place = places.pop() if len(places) == 1 else None
    if isinstance(op, PermuteDims):
        (x,) = node.inputs
        return place if place == carried[x] or (x.type.rank > 2 and place in (0, 1)) else MOVED
    if not op.pointwise and not all(v in carried for v in node.inputs):
        return None
    return place if op.lane_axes is None or place in op.lane_axes else None


def _follow_contraction(node: Node, carried: Mapping[Value, int], moved: set[Value]) -> int | None:
    """Return the batch axis of a contraction's output.

    Lanes are along the first axis of the first operand, which the second lacks, or along the summed
    axis that is the first of both.
    """
    a, b = node.inputs
    ((of_a, of_b),) = node.op.axis_map(a.type, b.type)
    if b not in carried and b not in moved:
        rows = carried.get(a) == of_a[0] == 0 and 0 not in of_b and a.type.rank == b.type.rank
        return 0 if rows else None
    if carried.get(b) != 0 or of_b[0] != SUMMED:
        return None
    if a in moved:
        return SUMMED if a.type.rank == 2 else None
    return SUMMED if carried.get(a) == 0 and of_a[0] == SUMMED else None
