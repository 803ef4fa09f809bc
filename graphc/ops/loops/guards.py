"""Guarded scans as plain ones, whose iterations compute everything and then select."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from graphc.ir import Graph, Names, Node, Type, Value
from graphc.ops.constant import Constant
from graphc.ops.fused import KernelNode
from graphc.ops.loops.bodies import values_of
from graphc.ops.loops.scan import Scan, bodies
from graphc.ops.pointwise.logic import Select


def without_guards(graph: Graph) -> Graph:
    """Return a graph of the same meaning whose scans have no guards."""
    return with_selections(graph, False)


def with_selections(graph: Graph, stay: bool) -> Graph:
    """Return a graph whose guarded scans, nested ones too, select what an iteration leaves.

    Where a guard is false, an iteration selects its old carries, and zeros for the stacks. The
    selections are the last nodes of a body. With `stay` the scans are still guarded.
    """
    if not any(op.guarded for op in _scans(graph)):
        return graph
    names = Names(v.name for g in (graph, *bodies(graph)) for v in values_of(g))
    return _selected(graph, names, stay)


def _scans(graph: Graph) -> Iterator[Scan]:
    return (n.op for g in (graph, *bodies(graph)) for n in g.nodes if isinstance(n.op, Scan))


def _selected(graph: Graph, names: Names, stay: bool) -> Graph:
    nodes = []
    for node in graph.nodes:
        if isinstance(node.op, Scan):
            op = replace(node.op, body=_selected(node.op.body, names, stay))
            op = _selecting(op, node, names, stay) if op.guarded else op
            node = replace(node, op=op)
        nodes.append(node)
    return replace(graph, nodes=tuple(nodes))


def _selecting(op: Scan, node: Node, names: Names, stay: bool) -> Scan:
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

    def selected(new: Value, old: Value | None) -> Value:
        if new == old or _is_selected(op.body.producers.get(new), new, runs, old):
            return new
        return select(new, zero(new.type.dtype) if old is None else old)

    pairs = zip(op.new_carries, op.old_carries, strict=True)
    carries = [selected(new, old) for new, old in pairs]
    # A guard that is stacked is false by itself in the iterations that it skips.
    stacks = [v if v == runs else selected(v, None) for v in op.stacks]
    body = replace(op.body, nodes=(*op.body.nodes, *added), outputs=(*carries, *stacks, runs))
    if stay:
        return replace(op, body=body)
    return replace(op, body=replace(body, outputs=body.outputs[:-1]), guarded=False)


def _is_selected(node: Node | None, new: Value, runs: Value, old: Value | None) -> bool:
    """Whether a kernel makes `new` by a selection already, else from `old`; None is zeros."""
    if not isinstance(node, KernelNode):
        return False
    body, made = node.body, node.body.outputs[node.outputs.index(new)]
    inner = body.producers.get(made)
    if inner is None or not isinstance(inner.op, Select):
        return False
    outside = dict(zip(body.inputs, node.inputs, strict=True))
    condition, _, other = inner.inputs
    source = body.producers.get(other)
    array = None if source is None else source.op.array
    same = outside.get(other) == old if old else array is not None and not array.any()
    return same and outside.get(condition) == runs
