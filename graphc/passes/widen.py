"""Widen: f16 and bf16 are stored, f32 is computed in.

Every op on floats of two bytes becomes the op on f32 between conversions: its operands widened,
its results rounded once. So kernels know such floats in loads, stores and conversions alone, and a
value is the same whether it lies in memory between two kernels or in a register of one. What only
moves elements stays as it is.

Casts to f32 that the graph has, and views of them, are widened the same way.

Operands are widened anew for each reader: one that computes in registers reads two bytes and widens
there (`widen`); one that is given memory gets f32 in memory (`cast`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from graphc.ir import NARROW, Graph, Node, Value
from graphc.ops.base import Contraction, Op, Pointwise, Reduction, View
from graphc.ops.logic import Cast
from graphc.ops.pooling import MaxPool2d
from graphc.ops.widen import Widen
from graphc.passes.rewrite import Names, drop_dead
from graphc.target import Target

_MOVES = frozenset({"cast", "concat", "constant", "pad", "take", "take_along_axis", "where"})


def widen(graph: Graph, target: Target) -> Graph:
    """`graph` with arithmetic on f32 in place of f16 and bf16."""
    values = (*graph.inputs, *graph.state, *(v for n in graph.nodes for v in n.outputs))
    if not any(_narrow(v) for v in values):
        return graph
    names = Names(graph)
    nodes: list[Node] = []
    stored: dict[Value, Value] = {}
    for node in graph.nodes:
        if node.op == Cast("f32") and _narrow(node.inputs[0]):
            stored[node.output] = node.inputs[0]
        elif isinstance(node.op, View) and node.inputs[0] in stored:
            source = stored[node.inputs[0]]
            type = replace(node.output.type, dtype=source.type.dtype)
            view = Value(names.fresh(node.output.name), type)
            nodes.append(replace(node, inputs=(source,), outputs=(view,)))
            stored[node.output] = view
        nodes += _widened(node, target, names, stored)
    return drop_dead(replace(graph, nodes=tuple(nodes)))


def _narrow(value: Value) -> bool:
    return value.type.dtype in NARROW


def _moves(op: Op) -> bool:
    """Whether the op computes nothing: its kernels move elements of any dtype."""
    return isinstance(op, View | MaxPool2d) or op.name in _MOVES or not op.widens


def _widened(node: Node, target: Target, names: Names, stored: Mapping[Value, Value]) -> list[Node]:
    """`node` between conversions, where it computes on floats of two bytes. `stored` says of which
    of them the casts to f32 so far are copies."""
    if _moves(node.op):
        return [node]
    if isinstance(_reader(node.op, target), Widen):
        node = replace(node, inputs=tuple(stored.get(v, v) for v in node.inputs))
    if not any(map(_narrow, (*node.inputs, *node.outputs))):
        return [node]

    def wide(value: Value) -> Value:
        return Value(names.fresh(f"{value.name}.f32"), replace(value.type, dtype="f32"))

    before, inputs = [], []
    for value in node.inputs:
        if _narrow(value):
            before.append(replace(node, op=_reader(node.op, target), inputs=(value,), outputs=()))
            value = wide(value)
            before[-1] = replace(before[-1], outputs=(value,))
        inputs.append(value)
    outputs = [wide(v) if _narrow(v) else v for v in node.outputs]
    after = [
        replace(node, op=Cast(v.type.dtype), inputs=(w,), outputs=(v,))
        for v, w in zip(node.outputs, outputs, strict=True)
        if v is not w
    ]
    op = node.op
    if getattr(op, "dtype", None) in NARROW:
        op = replace(op, dtype="f32")  # type: ignore[type-var]
    return [*before, replace(node, op=op, inputs=tuple(inputs), outputs=tuple(outputs)), *after]


def _reader(op: Op, target: Target) -> Op:
    """How an operand of `op` is widened."""
    if isinstance(op, Pointwise | Reduction):
        return Widen()
    if isinstance(op, Contraction) and target.device in ("cuda", "sim"):
        return Widen()
    return Cast("f32")
