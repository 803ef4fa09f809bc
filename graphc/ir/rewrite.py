"""Helpers of passes: substitute values, remove dead nodes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from graphc.base.errors import PlanError
from graphc.ir import Graph, Names, Node, Value


def resolve(value: Value, substitution: Mapping[Value, Value]) -> Value:
    """Return the end of a chain of substitutions; raise PlanError if it has none."""
    first, left = value, len(substitution)
    while value in substitution:
        value, left = substitution[value], left - 1
        if left < 0:
            raise PlanError(f"the substitutions of {first.name} go in a circle")
    return value


def substitute(graph: Graph, nodes: Iterable[Node], substitution: Mapping[Value, Value]) -> Graph:
    """Return `graph` with these nodes and every substituted value replaced."""

    def new(value: Value) -> Value:
        return resolve(value, substitution) if value in substitution else value

    def renewed(node: Node) -> Node:
        if substitution.keys().isdisjoint(node.inputs):
            return node
        return replace(node, inputs=tuple(map(new, node.inputs)))

    return replace(
        graph,
        nodes=tuple(map(renewed, nodes)),
        outputs=tuple(map(new, graph.outputs)),
        updates=tuple((old, new(value)) for old, value in graph.updates),
    )


def reading(node: Node, inputs: tuple[Value, ...]) -> Node:
    """Return `node` with these inputs; itself if it has them, to keep what was inferred of it."""
    return node if inputs == node.inputs else replace(node, inputs=inputs)


def drop_dead(graph: Graph) -> Graph:
    """Remove nodes whose results nobody needs, and state that nothing reads."""
    live = set(graph.results)
    kept: list[Node] = []
    for node in reversed(graph.nodes):
        if not live.isdisjoint(node.outputs):
            live.update(node.inputs)
            kept.append(node)
    updated = {old for old, _ in graph.updates}
    state = tuple(v for v in graph.state if v in live or v in updated)
    if len(kept) == len(graph.nodes) and len(state) == len(graph.state):
        return graph
    return replace(graph, nodes=tuple(reversed(kept)), state=state)


def names_of(graph: Graph) -> Names:
    """Return a generator of new names for values of a graph."""
    values = (*graph.inputs, *graph.state, *(v for n in graph.nodes for v in n.outputs))
    return Names(v.name for v in values)


def topological(nodes: Iterable[Node]) -> tuple[Node, ...]:
    """Return the nodes in an executable order that keeps the given one where it can.

    It raises PlanError if there is none.
    """
    pending = list(nodes)
    if _in_order(pending):
        return tuple(pending)
    producer = {v: i for i, n in enumerate(pending) for v in n.outputs}
    order: list[Node] = []
    placed = [False] * len(pending)
    for root in range(len(pending)):
        stack = [root]
        while stack:
            node = pending[stack[-1]]
            missing = [
                producer[v] for v in node.inputs if v in producer and not placed[producer[v]]
            ]
            if len(stack) > len(pending):
                raise PlanError(f"a cycle through {node.outputs[0].name}, a {node.op.name}")
            if missing:
                stack.append(missing[0])
                continue
            if not placed[stack[-1]]:
                placed[stack[-1]] = True
                order.append(node)
            stack.pop()
    return tuple(order)


def _in_order(nodes: list[Node]) -> bool:
    """Return whether no node reads what one behind it makes."""
    later = {v for n in nodes for v in n.outputs}
    for node in nodes:
        if not later.isdisjoint(node.inputs):
            return False
        later.difference_update(node.outputs)
    return True
