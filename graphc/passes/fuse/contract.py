"""Fuse pointwise ops after a contraction into its epilogue: bias, activation, residual, pooling.

A pointwise op that reads a contraction's result at its own index is computed while the sum is in
registers. Its other operands must not depend on the contraction in another way, or the kernel would
wait for itself. On the CPU a register tile can hold whole pooling windows: then the maximum is
taken there too, and the values before it are never stored.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence

from graphc.base.target import Target
from graphc.ir import Graph, Node, Value
from graphc.passes.fuse.absorb_sections import absorb_operands, absorb_sections, refusal
from graphc.passes.fuse.channels import has_kernels
from graphc.passes.fuse.groups import fuse_groups
from graphc.passes.fuse.partition import Partition
from graphc.passes.fuse.places import LARGE, LARGEST, OF_RULE, misfit, readers, size, stored
from graphc.passes.rewriting.reasons import record_join, record_separation


def fuse_contract(graph: Graph, target: Target) -> Graph:
    """Replace every contraction by a fused node with its epilogue."""
    partition = Partition(graph, lambda n: n.is_free, "fuse_contract")
    contractions = [n for n in graph.nodes if n.op.contracts]
    consumers, producers = graph.consumers, graph.producers
    notes: dict[int, str] = {}
    # Backward ones first: what they alone read must not be computed, and stored, ahead of them.
    for contraction in sorted(contractions, key=lambda n: not n.where.derived):
        if _stays_alone(contraction, producers, target):
            notes[id(contraction)] = ""
            continue
        inside = _absorb(graph, contraction, set(contraction.outputs), partition, consumers)
        windows = _holds_windows(contraction, target)
        pool = _pooling_of(graph, consumers, inside) if windows else None
        group, note = partition.of(contraction), ""
        if pool is not None and partition.can_merge(group, partition.of(pool)):
            partition.merge(group, partition.of(pool))
            record_join(pool, "a register tile of the contraction holds its windows whole")
            _absorb(graph, pool, {pool.outputs[0]}, partition, consumers)
        else:
            shape = contraction.output.type.shape
            absorb_operands(graph, contraction, shape, partition, consumers, producers)
            note = absorb_sections(graph, contraction, inside, partition, consumers, target)
        notes[id(contraction)] = note
    groups = [partition.nodes_of(partition.of(n)) for n in contractions]
    return fuse_groups(graph, groups, [notes[id(n)] for n in contractions])


def _absorb(
    graph: Graph,
    first: Node,
    inside: set[Value],
    partition: Partition,
    consumers: Mapping[Value, Sequence[Node]],
) -> set[Value]:
    """Merge the pointwise nodes that read `inside`, values of one shape, into the group of `first`.

    It returns all values of that shape that the group then computes.
    """
    shape, producers, number = first.outputs[0].type.shape, graph.producers, partition.number
    whole = sum(map(size, partition.nodes_of(partition.of(first))))
    read = {number[id(n)]: v for v in inside for n in readers(v, consumers)}
    waiting = sorted(read)
    while waiting:
        place = heapq.heappop(waiting)
        node = graph.nodes[place]
        if node.is_free or partition.of(node) == partition.of(first):
            continue
        full = LARGE if whole + size(node) > LARGEST else ""
        if rule := full or _refusal(node, first, shape, partition, producers):
            record_separation(read[place], node, rule)
            continue
        record_join(node, "it is computed from the sums while they are in registers: an epilogue")
        partition.merge(partition.of(first), partition.of(node))
        whole += size(node)
        inside = inside | set(node.outputs)
        for output in node.outputs:
            for behind in (number[id(n)] for n in readers(output, consumers)):
                if behind not in read:
                    read[behind] = output
                    heapq.heappush(waiting, behind)
    return inside


def _refusal(
    node: Node,
    first: Node,
    shape: tuple[int, ...],
    partition: Partition,
    producers: Mapping[Value, Node],
) -> str:
    """Return the rule that keeps a node out of the group of `first`, or ""."""
    if rule := misfit(node, shape):
        return rule
    return OF_RULE if node.where.of_update_rule else refusal(node, first, partition, producers)


def _stays_alone(node: Node, producers: Mapping[Value, Node], target: Target) -> bool:
    """Return whether a gradient of filters is left alone, whose kernel has no epilogue.

    It multiplies two-byte images with channels in the lanes, in pairs: several times as fast as one
    that rounds its sums.
    """
    if node.op.images != len(node.inputs) or not target.multiplies_pairs or not has_kernels(node):
        return False
    return all(stored(v, producers).type.dtype == "bf16" for v in node.inputs)


def _holds_windows(contraction: Node, target: Target) -> bool:
    """Return whether the kernel's tile will hold pixels of a batch in the lanes."""
    batch = next(iter(contraction.output.type.shape), 0)
    return target.kind.pools and target.fills_lanes(batch)


def _pooling_of(
    graph: Graph, consumers: Mapping[Value, Sequence[Node]], inside: set[Value]
) -> Node | None:
    """Return the max pooling that alone reads these values from outside, if the tile can do it."""
    outside = {
        id(node): node
        for value in inside
        for node in readers(value, consumers)
        if not any(v in inside for v in node.outputs)
    }
    if len(outside) != 1 or inside & graph.result_set:
        return None
    (node,) = outside.values()
    return node if node.op.pools_in_registers else None
