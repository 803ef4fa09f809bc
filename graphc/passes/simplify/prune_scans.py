"""Prune scans: without carries, stacks, constants and elements that nothing needs."""

from __future__ import annotations

from dataclasses import replace

from graphc.ir import Graph, Node, Value
from graphc.ops.scan import Scan
from graphc.passes.rewriting.rewrite import drop_dead, substitute


def prune_scans(graph: Graph) -> Graph:
    """`graph` with each scan reduced to what something outside it reads.

    A carry that every iteration leaves as it is becomes a constant, and stacks of one value become
    one stack.
    """
    if not any(isinstance(n.op, Scan) for n in graph.nodes):
        return graph
    used = {v for n in graph.nodes for v in n.inputs} | set(graph.results)
    substitution: dict[Value, Value] = {}
    nodes = [_pruned(n, used, substitution) if isinstance(n.op, Scan) else n for n in graph.nodes]
    return drop_dead(substitute(graph, nodes, substitution))


def _pruned(node: Node, used: set[Value], substitution: dict[Value, Value]) -> Node:
    op = node.op
    assert isinstance(op, Scan)
    first, last = op.constants, op.constants + op.carries
    carries = list(
        zip(op.old_carries, op.new_carries, node.inputs[first:last], node.outputs, strict=False)
    )
    constants = list(zip(op.body.inputs[:first], node.inputs[:first], strict=True))
    for old, new, initial, output in carries:
        if old == new:
            substitution[output] = initial
            constants.append((old, initial))
    carries = [c for c in carries if c[0] != c[1]]
    stacks: dict[Value, Value] = {}
    for inner, output in zip(op.stacks, node.outputs[op.carries :], strict=True):
        if output in used:
            if inner in stacks:
                substitution[output] = stacks[inner]
            stacks.setdefault(inner, output)
    live = {new for _, new, _, output in carries if output in used} | set(stacks)
    needed = _needed(op.body, live)
    while more := {new for old, new, _, _ in carries if old in needed and new not in live}:
        live |= more
        needed = _needed(op.body, live)
    carries = [c for c in carries if c[1] in live and (c[3] in used or c[0] in needed)]
    elements = list(zip(op.elements, node.inputs[last:], strict=True))
    constants, elements = ([p for p in part if p[0] in needed] for part in (constants, elements))
    body = replace(
        op.body,
        inputs=tuple(p[0] for p in (*constants, *carries, *elements)),
        outputs=(*(c[1] for c in carries), *stacks),
    )
    small = replace(op, body=drop_dead(body), carries=len(carries), xs=len(elements))
    inputs = (*(p[1] for p in constants), *(c[2] for c in carries), *(p[1] for p in elements))
    return replace(
        node, op=small, inputs=inputs, outputs=(*(c[3] for c in carries), *stacks.values())
    )


def _needed(body: Graph, results: set[Value]) -> set[Value]:
    """The values that the results depend on, themselves included."""
    needed = set(results)
    for node in reversed(body.nodes):
        if any(v in needed for v in node.outputs):
            needed.update(node.inputs)
    return needed
