"""Order kernels by the part of the program that they belong to (`Where.part`).

In a pipeline's program a part is the forward or the backward pass of a micro-batch: passes before
this one keep nodes apart, and may have moved them. A node of no part is placed where the first node
that needs it begins, and behind the parts if none of them does.
"""

from __future__ import annotations

from dataclasses import replace

from graphc.base.target import Target
from graphc.ir import Graph
from graphc.ir.rewrite import topological


def order_parts(graph: Graph, target: Target) -> Graph:
    """Return `graph` with its parts one after the other."""
    if not any(node.where.part for node in graph.nodes):
        return graph
    inside = sorted((n for n in graph.nodes if n.where.part), key=lambda n: n.where.part)
    others = (n for n in graph.nodes if not n.where.part)
    return replace(graph, nodes=topological([*inside, *others]))
