"""Remove carries, stacks, constants and elements of scans that nothing needs."""

from __future__ import annotations

from dataclasses import replace

from graphc.ir import Graph, Node, Value
from graphc.ir.rewrite import drop_dead, substitute
from graphc.ops.loops.scan import Scan, bodies


def prune_scans(graph: Graph) -> Graph:
    """Reduce each scan to what something outside of it reads.

    A carry that every iteration leaves as it is becomes a constant, and stacks of one value become
    one stack.
    """
    if next(bodies(graph), None) is None:
        return graph
    used = {v for n in graph.nodes for v in n.inputs} | graph.result_set
    substitution: dict[Value, Value] = {}
    nodes = [_pruned(n, used, substitution) if isinstance(n.op, Scan) else n for n in graph.nodes]
    return drop_dead(substitute(graph, nodes, substitution))


def _pruned(node: Node, used: set[Value], substitution: dict[Value, Value]) -> Node:
    loop = Scan.bind(node)
    kept = [c for c in loop.carries if c.old == c.new]
    substitution.update((c.last, c.initial) for c in kept)
    constants = (*loop.constants, *((c.old, c.initial) for c in kept))
    carries = [c for c in loop.carries if c.old != c.new]
    stacks: dict[Value, Value] = {}
    for inner, output in loop.stacks:
        if output in used:
            if inner in stacks:
                substitution[output] = stacks[inner]
            stacks.setdefault(inner, output)
    body = loop.op.body
    live = {c.new for c in carries if c.last in used} | set(stacks)
    needed = _needed(body, live.union(loop.guards))
    while more := {c.new for c in carries if c.old in needed and c.new not in live}:
        live |= more
        needed = _needed(body, live.union(loop.guards))
    return replace(
        loop,
        constants=tuple(p for p in constants if p[0] in needed),
        carries=tuple(c for c in carries if c.new in live and (c.last in used or c.old in needed)),
        scanned=tuple(p for p in loop.scanned if p[0] in needed),
        stacks=tuple(stacks.items()),
    ).rebuilt(n for n in body.nodes if needed.intersection(n.outputs))


def _needed(body: Graph, results: set[Value]) -> set[Value]:
    """The values that the results depend on, themselves included."""
    needed = set(results)
    for node in reversed(body.nodes):
        if any(v in needed for v in node.outputs):
            needed.update(node.inputs)
    return needed
