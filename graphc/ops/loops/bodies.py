"""Passes on the bodies of scans.

A pass sees a body as a graph of its own: the carries and elements are the inputs, and what the
scan holds constant is state that is never updated. What the pass adds to the state (constants that
it places in memory) becomes state of the program, and a constant of the scan.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from graphc.base.target import Target
from graphc.ir import Graph, Names, Node, Value
from graphc.ops.fused import KernelNode, kernels_in
from graphc.ops.loops.scan import Scan, bodies

Pass = Callable[[Graph, Target], Graph]


def through_bodies(function: Pass, inside: Pass | None = None) -> Pass:
    """Return the pass that applies `function` to a graph and to every body, innermost first.

    Bodies get `inside` instead, if it is given.
    """

    def run(graph: Graph, target: Target) -> Graph:
        changed = _apply(function, inside or function, graph, target)
        return graph if changed is graph else unique_names(changed)

    run.__doc__ = function.__doc__
    return run


def _apply(function: Pass, inside: Pass, graph: Graph, target: Target) -> Graph:
    state = dict.fromkeys(graph.state)
    nodes = []
    for node in graph.nodes:
        if isinstance(node.op, Scan):
            node = _inside(inside, node, node.op, target)
            state.update((outer, None) for own, outer in Scan.bind(node).constants if outer == own)
        nodes.append(node)
    if any(new is not old for new, old in zip(nodes, graph.nodes, strict=True)):
        graph = replace(graph, state=tuple(state), nodes=tuple(nodes))
    return function(graph, target)


def _inside(function: Pass, node: Node, op: Scan, target: Target) -> Node:
    constants, *moving = op.split_inputs(node.inputs)
    source = dict(zip(op.constants, constants, strict=True))
    before = replace(op.body, inputs=(*op.old_carries, *op.elements), state=tuple(source))
    body = _apply(function, function, before, target)
    if body is before:
        return node
    inputs = (*(source.get(v, v) for v in body.state), *(v for part in moving for v in part))
    body = replace(body, inputs=(*body.state, *body.inputs), state=())
    return replace(node, op=replace(op, body=body), inputs=inputs)


def values_of(graph: Graph) -> Iterator[Value]:
    """Every value that the graph itself defines."""
    yield from (*graph.inputs, *graph.state)
    for node in graph.nodes:
        yield from node.outputs


def unique_names(graph: Graph) -> Graph:
    """Return `graph` with unique names for all values and kernels, those of scans' bodies included.

    The graph's own names stay.
    """
    if next(bodies(graph), None) is None:
        return graph
    return _Renaming(graph).graph


class _Renaming:
    def __init__(self, graph: Graph) -> None:
        self.values = Names(v.name for v in values_of(graph))
        self.kernels = Names((n.op.kernel for n in kernels_in(graph)), "_")
        self.graph = replace(graph, nodes=tuple(map(self.node, graph.nodes)))

    def node(self, node: Node) -> Node:
        if not isinstance(node.op, Scan):
            return node
        body = node.op.body
        new = {v: replace(v, name=self.values.fresh(v.name)) for v in values_of(body)}
        nodes = tuple(self._renamed(n, new) for n in body.nodes)
        body = replace(
            body,
            inputs=tuple(new[v] for v in body.inputs),
            nodes=tuple(map(self.node, nodes)),
            outputs=tuple(new[v] for v in body.outputs),
        )
        return replace(node, op=replace(node.op, body=body))

    def _renamed(self, node: Node, new: dict[Value, Value]) -> Node:
        if isinstance(node, KernelNode):
            kernel = self.kernels.fresh(node.op.kernel)
            if kernel != node.op.kernel:
                body = replace(node.body, name=kernel)
                node = replace(node, op=replace(node.op, kernel=kernel, body=body))
        return replace(
            node,
            inputs=tuple(new[v] for v in node.inputs),
            outputs=tuple(new[v] for v in node.outputs),
        )
