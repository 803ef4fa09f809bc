"""Guarded scans as plain ones, whose iterations compute everything and then select."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from graphc.ir import Graph, Names, Node, Type, Value
from graphc.ops.constant import Constant
from graphc.ops.loops.bodies import values_of
from graphc.ops.loops.scan import Scan, bodies
from graphc.ops.pointwise.logic import Select


def without_guards(graph: Graph) -> Graph:
    """Return a graph of the same meaning whose scans have no guards.

    Where a guard is false, an iteration selects its old carries, and zeros for the stacks.
    """
    if next(bodies(graph), None) is None:
        return graph
    return _selected(graph, Names(v.name for g in (graph, *bodies(graph)) for v in values_of(g)))


def _selected(graph: Graph, names: Names) -> Graph:
    nodes = []
    for node in graph.nodes:
        if isinstance(node.op, Scan):
            op = replace(node.op, body=_selected(node.op.body, names))
            node = replace(node, op=_without_guard(op, node, names) if op.guarded else op)
        nodes.append(node)
    return replace(graph, nodes=tuple(nodes))


def _without_guard(op: Scan, node: Node, names: Names) -> Scan:
    runs = op.guard
    assert runs is not None, "it is guarded"
    added: list[Node] = []
    zeros: dict[str, Value] = {}

    def zero(dtype: str) -> Value:
        if dtype not in zeros:
            kind = Type((), dtype)
            zeros[dtype] = Value(names.fresh(f"{runs.name}.zero"), kind)
            constant = Constant.of(np.zeros((), kind.numpy_dtype))
            added.append(Node(constant, (), (zeros[dtype],), node.where))
        return zeros[dtype]

    def select(new: Value, old: Value) -> Value:
        chosen = Value(names.fresh(f"{new.name}.kept"), new.type)
        added.append(Node(Select(), (runs, new, old), (chosen,), node.where))
        return chosen

    pairs = zip(op.new_carries, op.old_carries, strict=True)
    carries = [new if new == old else select(new, old) for new, old in pairs]
    # A guard that is stacked is false by itself in the iterations that it skips.
    stacks = [v if v == runs else select(v, zero(v.type.dtype)) for v in op.stacks]
    body = replace(op.body, nodes=(*op.body.nodes, *added), outputs=(*carries, *stacks))
    return replace(op, body=body, guarded=False)
