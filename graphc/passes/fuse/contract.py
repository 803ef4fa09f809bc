"""Fuse contractions: bias, activation, residual, activation-backward and pooling go into the
epilogue.

A pointwise op whose operand is a contraction's result, at the same index and no other, is computed
while the sum is in registers. What is read beside it must not depend on the contraction by another
way, or the kernel would wait for itself. On the CPU a register tile can hold whole pooling windows:
then the maximum is taken there too, and the values before it are never stored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from graphc.ir import Graph, Node, Value
from graphc.passes.fuse.absorb_sections import absorb_operands, absorb_sections
from graphc.passes.fuse.groups import fuse_groups
from graphc.passes.fuse.partition import Partition
from graphc.passes.fuse.places import is_over, read_elsewhere, readers, stored
from graphc.target import Target


def fuse_contract(graph: Graph, target: Target) -> Graph:
    """`graph` with every contraction as a fused node that holds its epilogue."""
    partition = Partition(graph, lambda n: n.is_free, "fuse_contract")
    contractions = [n for n in graph.nodes if n.op.contracts]
    consumers, producers = graph.consumers, graph.producers
    notes: dict[int, str] = {}
    # Backward ones first: what they alone read must not be computed, and stored, ahead of them.
    for contraction in sorted(contractions, key=lambda n: not n.where.derived):
        inside = _absorb(graph, contraction, set(contraction.outputs), partition)
        windows = _holds_windows(contraction, target)
        pool = _pooling_of(graph, consumers, inside) if windows else None
        group, note = partition.of(contraction), ""
        if pool is not None and partition.can_merge(group, partition.of(pool)):
            partition.merge(group, partition.of(pool))
            _absorb(graph, pool, {pool.outputs[0]}, partition)
        else:
            shape = contraction.output.type.shape
            absorb_operands(graph, contraction, shape, partition, consumers, producers)
            note = absorb_sections(graph, contraction, inside, partition, consumers, target)
        notes[id(contraction)] = note
    groups = [partition.nodes_of(partition.of(n)) for n in contractions]
    return fuse_groups(graph, groups, [notes[id(n)] for n in contractions])


def _absorb(graph: Graph, first: Node, inside: set[Value], partition: Partition) -> set[Value]:
    """Merge the pointwise nodes behind `inside`, values of one shape, into the group of `first`;
    all values of that shape that the group then computes."""
    shape = first.outputs[0].type.shape
    producers = graph.producers
    for node in graph.nodes[partition.number[id(first)] + 1 :]:
        if not is_over(node, shape) or node.is_free or node.where.of_update_rule:
            continue
        if not any(stored(v, producers) in inside for v in node.inputs):
            continue
        group, other = partition.of(first), partition.of(node)
        members = {v for n in partition.nodes_of(group) for v in n.outputs}
        if not members.isdisjoint(read_elsewhere(node, producers)):
            continue
        alone = len(partition.members[other]) == 1
        if alone and partition.can_merge(group, other):
            partition.merge(group, other)
            inside = inside | set(node.outputs)
    return inside


def _holds_windows(contraction: Node, target: Target) -> bool:
    """Whether the kernel's tile will be pixels of a batch in the lanes."""
    batch = next(iter(contraction.output.type.shape), 0)
    return target.kind.pools and target.fills_lanes(batch)


def _pooling_of(
    graph: Graph, consumers: Mapping[Value, Sequence[Node]], inside: set[Value]
) -> Node | None:
    """The max pooling that alone reads these values from outside their group, if the contraction's
    tile can do it."""
    outside = {
        id(node): node
        for value in inside
        for node in readers(value, consumers)
        if not any(v in inside for v in node.outputs)
    }
    if len(outside) != 1 or inside.intersection(graph.results):
        return None
    (node,) = outside.values()
    return node if node.op.pools_in_registers else None
