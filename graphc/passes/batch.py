"""Following the batch axis through a kernel's body."""

from __future__ import annotations

from graphc.ir import Graph, Node, Value
from graphc.ops.base import Contraction, Index, Pointwise, Reduction, View, Window


def carries_batch(body: Graph, on_batch: set[Value], batch: int) -> set[Value] | None:
    """The body's values whose first axis is the kernel's batch axis, given the inputs of which
    that is so; None if the body uses the batch in another way."""
    carried = set(on_batch)
    summed: set[Value] = set()  # views that moved the batch, good for a contraction over it alone
    for node in body.nodes:
        inputs = [v for v in node.inputs if v in carried]
        moved = [v for v in node.inputs if v in summed]
        if not inputs and not moved:
            continue
        verdict = _follow(node, carried, summed, batch)
        if verdict is None:
            return None
        if verdict == "carried":
            carried.update(node.outputs)
        elif verdict == "moved":
            summed.update(node.outputs)
    if any(v in summed for v in body.outputs) or not (carried or summed):
        return None
    return carried


def _follow(node: Node, carried: set[Value], summed: set[Value], batch: int) -> str | None:
    """What becomes of the batch: "carried", "moved" to another axis, "gone"; None if unclear."""
    op, output = node.op, node.outputs[0]
    if isinstance(op, Contraction):
        return _follow_contraction(node, carried, summed)
    if any(v in summed for v in node.inputs):
        return None
    if isinstance(op, Pointwise):
        aligned = all(v.type.rank == output.type.rank for v in node.inputs if v in carried)
        return "carried" if aligned else None
    if isinstance(op, Reduction):
        return "gone" if 0 in op.axes else "carried"
    if isinstance(op, Window):
        return "carried" if all(v in carried for v in node.inputs) else None
    if op.name == "permute_dims":
        return "carried" if op.attributes["axes"][0] == 0 else "moved"
    if op.name == "reshape":
        return "carried" if output.type.shape[:1] == (batch,) else None
    if isinstance(op, View):
        index = op.index(node.inputs[0].type)
        first = index[0] if index else None
        kept = first is not None and first.offset == 0 and first.coefficients[:1] == (1,)
        alone = first is not None and not any(first.coefficients[1:])
        return "carried" if kept and alone and output.type.shape[:1] == (batch,) else None
    if op.name == "concat":
        same = all(v in carried for v in node.inputs)
        return "carried" if same and op.attributes["axis"] != 0 else None
    if op.name == "pad":
        still = not op.attributes["low"][0] and not op.attributes["high"][0]
        return "carried" if still and not op.attributes["interior"][0] else None
    if isinstance(op, Index):
        return None
    return None


def _follow_contraction(node: Node, carried: set[Value], summed: set[Value]) -> str | None:
    a, b = node.inputs
    if node.op.name in ("conv2d", "conv2d_dgrad"):
        return "carried" if a in carried and b not in carried and b not in summed else None
    if node.op.name == "conv2d_wgrad":
        return "gone" if a in carried and b in carried else None
    if node.op.name != "matmul" or a.type.rank != 2 or b.type.rank != 2:
        return None
    if a in carried:
        return "carried" if b not in carried and b not in summed else None
    return "gone" if a in summed and b in carried else None
