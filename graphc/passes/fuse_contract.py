"""Fuse contractions: bias, activation, residual and activation-backward go into the epilogue.

A pointwise op whose operand is a contraction's result, at the same index, is computed while the sum
is in registers. What is read beside it must not depend on the contraction by another way, or the
kernel would wait for itself.
"""

from __future__ import annotations

from graphc.ir import Graph, Node
from graphc.ops.base import Contraction, Pointwise
from graphc.passes.groups import fuse_groups, is_free, of_update_rule
from graphc.passes.partition import Partition
from graphc.target import Target


def fuse_contract(graph: Graph, target: Target) -> Graph:
    """`graph` with every contraction as a fused node that holds its epilogue."""
    partition = Partition(graph, is_free)
    contractions = [n for n in graph.nodes if isinstance(n.op, Contraction)]
    taken: set[int] = set()
    for contraction in contractions:
        _absorb_epilogue(graph, contraction, partition, taken)
    return fuse_groups(graph, [partition.nodes_of(partition.of(n)) for n in contractions])


def _absorb_epilogue(
    graph: Graph, contraction: Node, partition: Partition, taken: set[int]
) -> None:
    shape = contraction.output.type.shape
    inside = set(contraction.outputs)
    for node in graph.nodes[partition.number[id(contraction)] + 1 :]:
        fits = isinstance(node.op, Pointwise) and node.output.type.shape == shape
        reads = any(v in inside for v in node.inputs)
        if not fits or not reads or id(node) in taken or of_update_rule(node):
            continue
        group = partition.of(contraction)
        if partition.can_merge(group, partition.of(node)):
            partition.merge(group, partition.of(node))
            inside.update(node.outputs)
            taken.add(id(node))
