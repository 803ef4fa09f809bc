"""Fuse updates: the new values of all parameters, moments and counters in one launch.

Kernels whose results are nothing but new state become parts of one pointwise kernel, each over its
own index space.
"""

from __future__ import annotations

from dataclasses import replace

from graphc.ir import Graph, Node, Value, Where
from graphc.ops.fused import Fused
from graphc.passes.partition import Partition
from graphc.passes.rewrite import topological
from graphc.target import Target

NAME = "update_parameters"


def fuse_updates(graph: Graph, target: Target) -> Graph:
    """`graph` with the pointwise kernels that only make new state merged into one."""
    partition = Partition(graph, name="fuse_updates")
    read = {v for n in graph.nodes for v in n.inputs} | set(graph.outputs)
    unread = {value for _, value in graph.updates} - read
    first: Node | None = None
    for node in graph.nodes:
        if not _only_makes(node, unread):
            continue
        if first is None:
            first = node
        elif partition.can_merge(partition.of(first), partition.of(node)):
            partition.merge(partition.of(first), partition.of(node))
    if first is None:
        return graph
    group = partition.nodes_of(partition.of(first))
    if len(group) == 1:
        return graph
    merged = _merge(group)
    members = {id(n) for n in group}
    nodes = [merged if n is group[-1] else n for n in graph.nodes]
    return replace(
        graph, nodes=topological(n for n in nodes if n is merged or id(n) not in members)
    )


def _only_makes(node: Node, values: set[Value]) -> bool:
    """Whether the node is a pointwise kernel with no results but these."""
    if not isinstance(node.op, Fused) or node.op.template != "pointwise":
        return False
    return values.issuperset(node.outputs)


def _merge(group: list[Node]) -> Node:
    """One node for several fused nodes whose bodies name values as the graph does."""
    inputs: dict[Value, None] = {}
    nodes: dict[Value, Node] = {}
    where = Where()
    for node in group:
        assert isinstance(node.op, Fused)
        inputs.update(dict.fromkeys(node.inputs))
        nodes.update((n.outputs[0], n) for n in node.op.body.nodes)
        where = where.merge(node.where)
    outputs = tuple(v for n in group for v in n.outputs)
    body = Graph(NAME, tuple(inputs), (), topological(nodes.values()), outputs)
    where = Where("", where.lines, derived=True)
    return Node(Fused(NAME, body), tuple(inputs), outputs, where)
