"""Fuse the updates of all parameters, moments and counters into one launch.

Kernels whose results are nothing but new state become parts of one pointwise kernel, each over its
own index space; before it another one makes the scalars that update rules derive from rates and
step counts, of every group of parameters. Where updates wait for different messages of other
processes there is one launch for each of these, so that none waits for a later one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from graphc.base.target import Target
from graphc.ir import Graph, Node, Value, Where
from graphc.ir.rewrite import topological
from graphc.ops.fused import KernelNode, kernels_in
from graphc.passes.fuse.groups import as_one
from graphc.passes.fuse.partition import Partition
from graphc.passes.rewriting.naming import KernelNames
from graphc.passes.rewriting.reasons import record_join


def fuse_updates(graph: Graph, target: Target) -> Graph:
    """Merge the pointwise kernels that only make new state into one; likewise those of scalars."""
    graph = _merged_by_messages(graph, "scalars", _makes_scalars)
    read = {v for n in graph.nodes for v in n.inputs} | set(graph.outputs)
    unread = {value for _, value in graph.updates} - read
    return _merged_by_messages(graph, "update", lambda n: unread.issuperset(n.outputs))


def _merged_by_messages(graph: Graph, word: str, merges: Callable[[Node], bool]) -> Graph:
    """Merge the pointwise kernels for which `merges` holds and that wait for the same messages."""
    nodes, awaited = [n for n in _pointwise(graph) if merges(n)], _messages_behind(graph)
    for messages in dict.fromkeys(awaited[id(n)] for n in nodes):
        alike = {n.outputs for n in nodes if awaited[id(n)] == messages}
        graph = _merged(graph, word, [n for n in _pointwise(graph) if n.outputs in alike])
    return graph


def _messages_behind(graph: Graph) -> dict[int, int]:
    """For each node, by identity, a bit set of the messages that it waits for."""
    behind: dict[Value, int] = {}
    found: dict[int, int] = {}
    for number, node in enumerate(graph.nodes):
        mask = 0
        for value in node.inputs:
            mask |= behind.get(value, 0)
        found[id(node)] = mask
        behind.update(dict.fromkeys(node.outputs, mask | node.op.communicates << number))
    return found


def _merged(graph: Graph, word: str, nodes: list[KernelNode]) -> Graph:
    """Merge the first of `nodes` with all others that fit, as `adam_update` for example."""
    partition = Partition(graph, name="fuse_updates")
    for node in nodes[1:]:
        if partition.can_merge(partition.of(nodes[0]), partition.of(node)):
            partition.merge(partition.of(nodes[0]), partition.of(node))
            record_join(
                node, "one launch makes all that is nothing but new state, or a rule's scalars"
            )
    group = [n for n in nodes if partition.of(n) == partition.of(nodes[0])]
    if len(group) < 2:
        return graph
    rules = dict.fromkeys(n.where.function for n in group if n.where.of_update_rule)
    merged = _merge(group, KernelNames(graph).fresh("_".join(filter(None, (*rules, word)))))
    members = {id(n) for n in group}
    kept = [merged if n is group[-1] else n for n in graph.nodes]
    return replace(graph, nodes=topological(n for n in kept if n is merged or id(n) not in members))


def _pointwise(graph: Graph) -> list[KernelNode]:
    return [n for n in kernels_in(graph) if n.op.template == "pointwise"]


def _makes_scalars(node: Node) -> bool:
    return node.where.of_update_rule and all(v.type.size == 1 for v in node.outputs)


def _merge(group: list[KernelNode], name: str) -> KernelNode:
    """Return one node for several fused nodes; scalars may be made from each other."""
    merged = as_one(group, name)
    rule = next((n.where for n in group if n.where.of_update_rule), None)
    if rule is None:
        return merged
    return replace(merged, where=Where(derived=True, function=rule.function))
