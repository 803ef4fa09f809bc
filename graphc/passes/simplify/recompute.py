"""Recompute: what the backward pass computes again instead of reading it.

A forward value that backward kernels read is stored, beside whatever the forward pass makes of it.
Where sums and products lead to it from other stored values (0.5 x (1 + tanh u) from x and tanh u),
reading those and doing the arithmetic again costs less than writing and reading one array more: the
nodes are repeated for their backward readers, and fusion brings them into those kernels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from graphc.ir import Graph, Node, Value
from graphc.passes.rewriting.rewrite import names_of, topological
from graphc.target import Target

SMALL = 8
"""A value so many times smaller than the result costs nothing to read."""


def recompute(graph: Graph, target: Target) -> Graph:
    """`graph` whose backward nodes repeat cheap forward nodes, where that leaves fewer values
    stored."""
    producers, consumers = graph.producers, graph.consumers
    results = set(graph.results)
    stored = {*graph.inputs, *graph.state}
    repeated: set[Value] = set()
    for node in graph.nodes:
        if node.where.derived:
            continue
        for value in node.outputs:
            readers = consumers.get(value, ())
            if not any(n.where.derived for n in readers):
                continue
            alone = value not in results and all(n.op.pointwise for n in readers)
            if alone and _within_reach(node, stored, producers):
                repeated.add(value)
            else:
                stored.add(value)
    return _with_repeats(graph, repeated, stored, producers) if repeated else graph


def _within_reach(node: Node, stored: set[Value], producers: Mapping[Value, Node]) -> bool:
    """Whether cheap nodes of its own shape lead to the node from stored or small values alone."""
    shape = node.outputs[0].type.shape
    waiting, seen = [node], {id(node)}
    while waiting:
        now = waiting.pop()
        if not now.op.is_cheap or now.output.type.shape != shape:
            return False
        for value in now.inputs:
            producer = producers.get(value)
            free = producer is not None and producer.op.is_source
            if value in stored or free or value.type.size * SMALL <= node.output.type.size:
                continue
            if producer is None or producer.where.derived:
                return False
            if id(producer) not in seen:
                seen.add(id(producer))
                waiting.append(producer)
    return True


def _with_repeats(
    graph: Graph, repeated: set[Value], stored: set[Value], producers: Mapping[Value, Node]
) -> Graph:
    names = names_of(graph)
    twins: dict[Value, Value] = {}
    added: list[Node] = []

    def twin(value: Value, shape: Sequence[int]) -> Value:
        """What backward nodes read in place of `value`."""
        node = producers.get(value)
        if value in stored or node is None or not node.op.is_cheap:
            return value
        if value.type.shape != tuple(shape):
            return value
        if value not in twins:
            inputs = tuple(twin(v, shape) for v in node.inputs)
            twins[value] = Value(names.fresh(f"d.{value.name}"), value.type)
            where = replace(node.where, derived=True)
            added.append(replace(node, inputs=inputs, outputs=(twins[value],), where=where))
        return twins[value]

    nodes = [
        replace(n, inputs=tuple(twin(v, v.type.shape) if v in repeated else v for v in n.inputs))
        if n.where.derived
        else n
        for n in graph.nodes
    ]
    return replace(graph, nodes=topological([*nodes, *added]))
