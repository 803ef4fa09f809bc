"""Following the batch axis through a kernel's body."""

from __future__ import annotations

from collections.abc import Mapping

from graphc.ir import Graph, Node, Value
from graphc.ops.base import Contraction, Pointwise, Reduction, View, Window
from graphc.ops.widen import Widen

MOVED = -1
"""In place of an axis: a view that moved the batch, good for a contraction over it alone."""


def carries_batch(body: Graph, on_batch: Mapping[Value, int]) -> dict[Value, int] | None:
    """The body's values with the axis that is the kernel's batch axis, given the inputs that have
    one; None if the body uses the batch in another way."""
    carried = dict(on_batch)
    moved: set[Value] = set()
    summed: set[Value] = set()
    for node in body.nodes:
        if not any(v in carried or v in moved for v in node.inputs):
            if not summed.isdisjoint(node.inputs):
                summed.update(node.outputs)
            continue
        axis = _follow(node, carried, moved)
        if axis is None or _spans(node, axis, summed):
            return None
        if axis == MOVED:
            moved.update(node.outputs)
        elif axis == _GONE:
            summed.update(node.outputs)
        else:
            carried.update(dict.fromkeys(node.outputs, axis))
    if any(v in moved for v in body.outputs) or not (carried or moved):
        return None
    return carried if _rows_keep_the_batch(body, on_batch, carried) else None


def _spans(node: Node, axis: int, summed: set[Value]) -> bool:
    """Whether the node reads a sum over the batch that yet varies along `axis`: of two axes with
    the batch's extent, the kernel can have only one in its lanes."""
    if axis < 0 or not isinstance(node.op, Pointwise):
        return False
    from_end = axis - node.output.type.rank
    sums = [v.type for v in node.inputs if v in summed]
    return any(-from_end <= t.rank and t.shape[from_end] != 1 for t in sums)


def _rows_keep_the_batch(
    body: Graph, on_batch: Mapping[Value, int], carried: Mapping[Value, int]
) -> bool:
    """Whether each reduction has the batch where the widest input has it, which is where the kernel
    puts its lanes."""
    widest = max(on_batch, key=lambda v: v.type.rank)
    from_end = on_batch[widest] - widest.type.rank
    reduced = [n.inputs[0] for n in body.nodes if isinstance(n.op, Reduction)]
    return all(v.type.rank + from_end == carried[v] for v in reduced if v in carried)


_GONE = -2


def _follow(node: Node, carried: Mapping[Value, int], moved: set[Value]) -> int | None:
    """The batch axis of the outputs, MOVED, or _GONE; None if unclear."""
    op, output = node.op, node.outputs[0]
    if isinstance(op, Contraction):
        return _follow_contraction(node, carried, moved)
    if any(v in moved for v in node.inputs):
        return MOVED if isinstance(op, Widen) else None
    if isinstance(op, Pointwise):
        rank = output.type.rank
        axes = {rank - v.type.rank + carried[v] for v in node.inputs if v in carried}
        return axes.pop() if len(axes) == 1 else None
    first = node.inputs[0]
    if isinstance(op, Reduction):
        axis = carried[first]
        if axis in op.axes:
            return _GONE
        return axis if op.keepdims else axis - sum(a < axis for a in op.axes)
    if isinstance(op, Window):
        return 0 if all(carried.get(v) == 0 for v in node.inputs) else None
    if op.name == "concat":
        places = {carried.get(v) for v in node.inputs}
        same = len(places) == 1 and op.attributes["axis"] not in places
        return places.pop() if same else None
    if op.name == "pad":
        axis = carried[first]
        added = (op.attributes[name][axis] for name in ("low", "high", "interior"))
        return None if any(added) else axis
    if isinstance(op, View):
        return _follow_view(node, carried[first])
    return None


def _follow_view(node: Node, axis: int) -> int | None:
    (x,), y = node.inputs, node.output
    if node.op.name == "permute_dims":
        place = list(node.op.attributes["axes"]).index(axis)
        stays = place == axis or (x.type.rank > 2 and place < 2)
        return place if stays else MOVED
    if node.op.name == "reshape" and y.type.shape[: axis + 1] == x.type.shape[: axis + 1]:
        return axis
    assert isinstance(node.op, View)
    index = node.op.index(x.type)
    if index is None or index[axis].offset:
        return None
    uses = [d for d, c in enumerate(index[axis].coefficients) if c]
    if len(uses) != 1 or index[axis].coefficients[uses[0]] != 1:
        return None
    alone = not any(a.coefficients[uses[0]] for d, a in enumerate(index) if d != axis)
    return uses[0] if alone and y.type.shape[uses[0]] == x.type.shape[axis] else None


def _follow_contraction(node: Node, carried: Mapping[Value, int], moved: set[Value]) -> int | None:
    a, b = node.inputs
    outside = b not in carried and b not in moved
    if node.op.name in ("conv2d", "conv2d_dgrad"):
        return 0 if carried.get(a) == 0 and outside else None
    if node.op.name == "conv2d_wgrad":
        return _GONE if carried.get(a) == carried.get(b) == 0 else None
    if node.op.name != "matmul" or a.type.rank != 2 or b.type.rank != 2:
        return None
    if a in carried:
        return 0 if carried[a] == 0 and outside else None
    return _GONE if a in moved and carried.get(b) == 0 else None
