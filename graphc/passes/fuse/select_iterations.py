"""Let iterations of guarded scans select what they leave, each by a kernel of its own.

So a body may be computed in every iteration, since what a skipped one computes is dropped, whatever
it is. Where a device can leave kernels of an iteration out, the scan stays guarded, and the kernels
that select are kept apart from all others, which may then be left out. Elsewhere the guard goes and
selections fuse with what computes what they read: the time of a loop does not depend on data.
"""

from __future__ import annotations

from dataclasses import replace

from graphc.base.target import Target
from graphc.ir import Graph, Node
from graphc.ops.fused import KernelNode
from graphc.ops.loops.bodies import unique_names
from graphc.ops.loops.guards import with_selections
from graphc.ops.loops.scan import Scan
from graphc.passes.fuse.groups import fuse_groups


def select_iterations(graph: Graph, target: Target) -> Graph:
    """Add selections to guarded scans, nested ones too."""
    skips = target.kind.skips_iterations
    selected = with_selections(graph, skips)
    return unique_names(_kept_apart(selected)) if skips and selected is not graph else selected


def _kept_apart(graph: Graph) -> Graph:
    """Return the graph with kernels of the selections, which are the last nodes of a body."""
    nodes: list[Node] = []
    for node in graph.nodes:
        if isinstance(node.op, Scan):
            body = _kept_apart(node.op.body)
            if node.op.guarded:
                made = set(node.op.results)
                groups = [[n] for n in body.nodes if made.intersection(n.outputs) and _selects(n)]
                body = fuse_groups(body, groups)
            node = replace(node, op=replace(node.op, body=body))
        nodes.append(node)
    return replace(graph, nodes=tuple(nodes))


def _selects(node: Node) -> bool:
    return node.op.name == "where" and not isinstance(node, KernelNode)
