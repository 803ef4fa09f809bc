"""Fuse updates: the new values of all parameters, moments and counters in one launch.

Kernels whose results are nothing but new state become parts of one pointwise kernel, each over its
own index space; before it another one makes the scalars that update rules derive from rates and
step counts, of every group of parameters.
"""

from __future__ import annotations

from dataclasses import replace

from graphc.ir import Graph, Node, Value, Where
from graphc.ops.fused import Fused
from graphc.passes.fuse.groups import of_update_rule
from graphc.passes.fuse.partition import Partition
from graphc.passes.rewriting.rewrite import topological
from graphc.target import Target

NAME = "update_parameters"
SCALARS = "update_scalars"


def fuse_updates(graph: Graph, target: Target) -> Graph:
    """`graph` with the pointwise kernels that only make new state merged into one, and so those of
    update rules that only make scalars."""
    graph = _merged(graph, SCALARS, [n for n in graph.nodes if _makes_scalars(n)])
    read = {v for n in graph.nodes for v in n.inputs} | set(graph.outputs)
    unread = {value for _, value in graph.updates} - read
    return _merged(graph, NAME, [n for n in graph.nodes if _only_makes(n, unread)])


def _merged(graph: Graph, name: str, nodes: list[Node]) -> Graph:
    """`graph` with the first of `nodes` and all that can be merged with it as one node."""
    partition = Partition(graph, name="fuse_updates")
    for node in nodes[1:]:
        if partition.can_merge(partition.of(nodes[0]), partition.of(node)):
            partition.merge(partition.of(nodes[0]), partition.of(node))
    group = partition.nodes_of(partition.of(nodes[0])) if nodes else []
    if len(group) < 2:
        return graph
    merged = _merge(group, name)
    members = {id(n) for n in group}
    kept = [merged if n is group[-1] else n for n in graph.nodes]
    return replace(graph, nodes=topological(n for n in kept if n is merged or id(n) not in members))


def _makes_scalars(node: Node) -> bool:
    return _only_makes(node, {v for v in node.outputs if v.type.size == 1}) and of_update_rule(node)


def _only_makes(node: Node, values: set[Value]) -> bool:
    """Whether the node is a pointwise kernel with no results but these."""
    if not isinstance(node.op, Fused) or node.op.template != "pointwise":
        return False
    return values.issuperset(node.outputs)


def _merge(group: list[Node], name: str) -> Node:
    """One node for several fused nodes whose bodies name values as the graph does."""
    inputs: dict[Value, None] = {}
    nodes: dict[Value, Node] = {}
    where = Where()
    made = {v for n in group for v in n.outputs}  # scalars may be made from each other
    for node in group:
        assert isinstance(node.op, Fused)
        inputs.update(dict.fromkeys(v for v in node.inputs if v not in made))
        nodes.update((n.outputs[0], n) for n in node.op.body.nodes)
        where = where.merge(node.where)
    outputs = tuple(v for n in group for v in n.outputs)
    body = Graph(name, tuple(inputs), (), topological(nodes.values()), outputs)
    where = Where("", where.lines, derived=True)
    return Node(Fused(name, body), tuple(inputs), outputs, where)
