"""Fuse the readers of a contraction's sections, the gates of a recurrent cell, into its epilogue.

Where slices cut what a contraction makes into equal sections, the pointwise ops on the slices need
all sections of an element at once, and nothing else of the product. One tile of the kernel can hold
them together: then the ops belong to its epilogue, whose index space is that of one section, and a
concat of such values is a store per section. What they read beside the slices comes with them if
nothing else reads it.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence

from graphc.base.target import Target
from graphc.ir import Graph, Node, Value
from graphc.ir.sections import MOST_SECTIONS, Sections, section_read, sections_joined
from graphc.ops.view import Slice
from graphc.passes.fuse.partition import Partition
from graphc.passes.fuse.places import (
    CIRCLE,
    ELSEWHERE,
    TAKEN,
    is_over,
    read_elsewhere,
    readers,
    stored,
)
from graphc.passes.rewriting.reasons import record_join, record_separation


class _Without(Mapping[Value, Node]):
    """A view of the producers of values without some of them."""

    def __init__(self, producers: Mapping[Value, Node], hidden: set[Value]) -> None:
        self._producers, self._hidden = producers, hidden

    def __getitem__(self, value: Value) -> Node:
        if value in self._hidden:
            raise KeyError(value)
        return self._producers[value]

    def __iter__(self) -> Iterator[Value]:
        return (value for value in self._producers if value not in self._hidden)

    def __len__(self) -> int:
        return sum(1 for _ in self)


def absorb_sections(
    graph: Graph,
    contraction: Node,
    inside: set[Value],
    partition: Partition,
    consumers: Mapping[Value, Sequence[Node]],
    target: Target,
) -> str:
    """Merge readers of a contraction's sections into its group.

    `inside` are the group's values of the contraction's own shape. The result is the reason why it
    could not be done; "" if it was, or if nothing reads slices.
    """
    slices = [n for v in inside for n in consumers.get(v, ()) if isinstance(n.op, Slice)]
    if not any(_pointwise_readers(n, consumers) for n in slices):
        return ""
    found = [section_read(n) for n in slices]
    kinds = {f[0] if f else None for f in found}
    if len(kinds) > 1 or None in kinds:
        return "its slices are not sections of one size along one axis"
    (sections,) = kinds
    assert sections is not None
    if sections.count > MOST_SECTIONS:
        return f"an epilogue holds at most {MOST_SECTIONS} sections, here are {sections.count}"
    if not _is_plain_axis(contraction, sections.axis, target):
        return f"axis {sections.axis} of the output is not an axis of one operand alone"
    parts = {v for n in slices for v in n.outputs}
    # A read of a section ends there: it is no read of the whole at another index.
    producers = _Without(graph.producers, parts)
    _absorb_readers(graph, contraction, sections, parts, partition, consumers, producers)
    shape = sections.shape(contraction.output.type.shape)
    absorb_operands(graph, contraction, shape, partition, consumers, producers)
    return ""


def _pointwise_readers(node: Node, consumers: Mapping[Value, Sequence[Node]]) -> bool:
    shape = node.output.type.shape
    return any(is_over(n, shape) for n in consumers.get(node.output, ()))


def _is_plain_axis(contraction: Node, axis: int, target: Target) -> bool:
    """Return whether only one iteration axis, of one operand, runs along this axis of the output.

    Where the target needs it, that operand must have no other axis of the output for itself.
    """
    left, right = contraction.inputs
    nest = contraction.op.iteration(left.type, right.type)
    axes = [i for i, c in enumerate(nest.output[axis].coefficients) if c]
    if [nest.output[axis].coefficients[i] for i in axes] != [1]:
        return False
    (cut,) = axes
    left_axes, right_axes = (
        {i for p in operand.index for i, c in enumerate(p.coefficients) if c and i < nest.kept}
        for operand in (nest.a, nest.b)
    )
    if cut in left_axes and cut in right_axes:
        return False
    own = left_axes - right_axes if cut in left_axes else right_axes - left_axes
    return target.kind.cuts_any_axis or own <= {cut}


def _absorb_readers(
    graph: Graph,
    first: Node,
    sections: Sections,
    parts: set[Value],
    partition: Partition,
    consumers: Mapping[Value, Sequence[Node]],
    producers: Mapping[Value, Node],
) -> None:
    shape, number = sections.shape(first.output.type.shape), partition.number
    inside = set(parts)
    waiting = sorted({number[id(n)] for v in parts for n in readers(v, consumers)})
    seen = set(waiting)
    while waiting:
        node = graph.nodes[heapq.heappop(waiting)]
        concat = sections_joined(node)
        fits = concat.shape(node.output.type.shape) == shape if concat else is_over(node, shape)
        if not fits or node.where.of_update_rule or node.is_free:
            continue
        if rule := refusal(node, first, partition, producers):
            read = next(v for v in node.inputs if stored(v, producers) in inside)
            record_separation(read, node, rule)
            continue
        _merge(node, first, partition, "a tile holds the sections of each element together")
        for output in () if concat else node.outputs:
            inside.add(output)
            for behind in {number[id(n)] for n in readers(output, consumers)} - seen:
                seen.add(behind)
                heapq.heappush(waiting, behind)


def absorb_operands(
    graph: Graph,
    first: Node,
    shape: tuple[int, ...],
    partition: Partition,
    consumers: Mapping[Value, Sequence[Node]],
    producers: Mapping[Value, Node],
) -> None:
    """Merge pointwise ops that only the group reads, such as a peephole, into it."""
    results, number = graph.result_set, partition.number
    waiting: list[int] = []
    seen: set[int] = set()

    def queue_producers(node: Node) -> None:
        """Queue what `node` reads, directly or through widening, the last first."""
        for value in node.inputs:
            producer = producers.get(stored(value, producers))
            if producer is not None and is_over(producer, shape) and id(producer) not in seen:
                seen.add(id(producer))
                heapq.heappush(waiting, -number[id(producer)])

    for member in partition.nodes_of(partition.of(first)):
        queue_producers(member)
    while waiting:
        node, group = graph.nodes[-heapq.heappop(waiting)], partition.of(first)
        reading = list(readers(node.output, consumers))
        if node.is_free or node.output in results:
            continue
        if any(partition.of(n) != group for n in reading):
            continue
        if any(node.output in read_elsewhere(n, producers) for n in reading):
            continue
        if rule := refusal(node, first, partition, producers):
            record_separation(node.output, reading[0], rule)
        else:
            _merge(node, first, partition, "nothing but this kernel reads it, at its own places")
            queue_producers(node)


def refusal(node: Node, first: Node, partition: Partition, producers: Mapping[Value, Node]) -> str:
    """Return the rule that keeps the node out of the group of `first`, or ""."""
    group, other = partition.of(first), partition.of(node)
    members = {v for n in partition.nodes_of(group) for v in n.outputs}
    if len(partition.members[other]) > 1:
        return TAKEN
    if not members.isdisjoint(read_elsewhere(node, producers)):
        return ELSEWHERE
    return "" if partition.can_merge(group, other) else CIRCLE


def _merge(node: Node, first: Node, partition: Partition, why: str) -> None:
    record_join(node, why)
    partition.merge(partition.of(first), partition.of(node))
