"""Fuse the remaining pointwise ops and reductions into kernels over one index space each.

Producers and consumers are merged greedily, in order, where one kernel can compute both:

- pointwise ops of one shape;
- reductions of one shape over one set of axes (the rows), with pointwise ops of the full shape or
  of the rows' shape on either side: softmax, normalisation, activation-backward and bias gradient;
- on the CPU, beside reductions along rows the sums over all of them: gradients of scale and shift.

Each merge lowers the number of groups, and what stays alone is fused until nothing is left.

A concat of equal sections that the kernel makes is a store per section: its shape is that of one.
A value that is read through a view at other indices, or by a window, gather, pad or another concat,
is memory: its reader is another kernel.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from graphc.base.target import Target
from graphc.ir import Graph, Node, Op, Value
from graphc.ir.sections import sections_joined
from graphc.passes.fuse.groups import fuse_groups
from graphc.passes.fuse.partition import Partition
from graphc.passes.fuse.places import (
    CIRCLE,
    ELSEWHERE,
    LARGE,
    LARGEST,
    OF_RULE,
    read_elsewhere,
    size,
    stored,
    through_unit_reshapes,
)
from graphc.passes.rewriting.measure import must_fall
from graphc.passes.rewriting.reasons import record_join, record_separation

Shape = tuple[int, ...]
Computed = tuple[Op, tuple[Value, ...]]

FEWEST_ROWS = 64
"""From so many rows on their kernel sums columns too: each chunk of rows has sums of its own."""
MOST_BYTES = 32768
"""Of a chunk's sums of columns, which each row reads and writes: the first two levels of cache."""


def fuse_pointwise(graph: Graph, target: Target) -> Graph:
    """Fuse all remaining nodes, except reshapes, which move nothing."""
    partition = Partition(graph, lambda n: n.is_free, "fuse_pointwise")
    producers = graph.producers

    def computed(node: Node) -> Computed:
        """The op and what it reads, each of which may be widened anew."""
        return node.op, tuple(stored(v, producers) for v in node.inputs)

    forward = {computed(n) for n in graph.nodes if not n.where.derived}
    spaces = {
        partition.of(n): _space(n, producers, n.where.derived and computed(n) in forward)
        for n in graph.nodes
        if _fusible(n)
    }
    _join_readers(graph, partition, spaces)
    consumers = graph.consumers
    for group, space in spaces.items():
        readers = (n for v in space.repeats for n in consumers[v])
        if all(partition.of(n) == group for n in readers):
            space.repeats = set()
    _join_readers(graph, partition, spaces)
    _join_reductions(graph, partition, spaces)
    if target.kind.adds_columns:
        _join_columns(graph, partition, spaces)
    graph = fuse_groups(graph, _groups(graph, partition))
    while alone := _alone(graph):  # views whose readers need them in memory appear one by one
        graph = fuse_groups(graph, [[n] for n in alone])
        left = len(_alone(graph))
        must_fall("fuse_pointwise", "fusing alone", len(alone), left, alone[0])
    return graph


def _join_readers(graph: Graph, partition: Partition, spaces: dict[int, _Space]) -> None:
    """Merge nodes into the kernel whose results they read at the same indices."""
    producers = graph.producers
    for node in graph.nodes:
        if not _fusible(node):
            continue
        found = list(_direct_producers(node, producers))
        sizes = {
            g: spaces[g].size for g in (partition.of(n) for n in (node, *(p for _, p in found)))
        }
        if (
            sum(sizes.values()) > LARGEST
        ):  # a kernel of what is small, and not a part of a large one
            found.sort(key=lambda pair: sizes[partition.of(pair[1])])
        for value, producer in found:
            a, b = partition.of(producer), partition.of(node)
            if a == b:
                continue
            if rule := spaces[a].refusal(spaces[b]) or _circle(partition, a, b):
                record_separation(value, node, rule)
                continue
            whole = spaces.pop(a).joined(spaces.pop(b))
            spaces[partition.merge(a, b)] = whole
            record_join(
                node, "it reads what the kernel has made at the same places, from registers"
            )


def _join_reductions(graph: Graph, partition: Partition, spaces: dict[int, _Space]) -> None:
    """Merge reductions of the same rows that read one value, which is then read once."""
    first: dict[tuple[Value, _Rows], Node] = {}
    for node in graph.nodes:
        rows = spaces[partition.of(node)].rows if _fusible(node) else None
        if rows is None:
            continue
        for value in dict.fromkeys(node.inputs):
            if value.type.shape != rows.shape:
                continue
            other = first.setdefault((value, rows), node)
            a, b = partition.of(other), partition.of(node)
            if a == b or spaces[a].refusal(spaces[b]) or not partition.can_merge(a, b):
                continue
            whole = spaces.pop(a).joined(spaces.pop(b))
            spaces[partition.merge(a, b)] = whole
            record_join(node, "it reduces the rows that the kernel reads for another reduction")


def _join_columns(graph: Graph, partition: Partition, spaces: dict[int, _Space]) -> None:
    """Merge sums over all rows into the kernel that reduces along rows.

    It is the one that makes most of their operands.
    """
    fusible = [n for n in graph.nodes if _fusible(n)]
    consumers = graph.consumers
    users: dict[Value, set[int]] = {}
    for node in fusible:
        rows = spaces[partition.of(node)].rows
        if rows and rows.trailing:
            for value in (*node.inputs, *node.outputs):
                users.setdefault(value, set()).add(partition.of(node))
    for b in {partition.of(n): n for n in fusible if n.op.reduced_axes is not None}:
        rows, nodes = spaces[b].rows, partition.nodes_of(b)
        if rows is None or not _sums_columns(rows, nodes, consumers):
            continue
        read = {v for n in nodes for v in n.inputs if v.type.shape == rows.shape}
        shared = Counter(a for v in read for a in users.get(v, ()) if a in spaces)
        for a, _ in sorted(shared.items(), key=lambda found: (-found[1], found[0])):
            across = spaces[a].rows
            if across is None or across.shape != rows.shape or across.axes != rows.others:
                continue
            if spaces[a].refusal(replace(spaces[b], rows=None)) or not partition.can_merge(a, b):
                continue
            whole = spaces.pop(a).joined(spaces.pop(b))
            whole.rows = across
            spaces[partition.merge(a, b)] = whole
            record_join(nodes[-1], "it sums the columns of the rows that the kernel reduces")
            break


def _sums_columns(
    rows: _Rows, nodes: Sequence[Node], consumers: Mapping[Value, Sequence[Node]]
) -> bool:
    """Return whether a group's reductions only sum few columns that the group does not read."""
    sums = [n for n in nodes if n.op.reduced_axes is not None]
    own = set(map(id, nodes))
    return (
        _Rows(rows.shape, rows.others).trailing
        and math.prod(rows.shape[d] for d in rows.axes) >= FEWEST_ROWS
        and sum(n.output.type.nbytes for n in sums) <= MOST_BYTES
        and all(getattr(n.op, "combine", "") == "sum" for n in sums)
        and all(n.output.type.dtype in ("f32", "f64") for n in sums)
        and own.isdisjoint(id(r) for n in sums for r in consumers.get(n.output, ()))
    )


def _circle(partition: Partition, a: int, b: int) -> str:
    return "" if partition.can_merge(a, b) else CIRCLE


def _alone(graph: Graph) -> list[Node]:
    """Return the nodes that are no kernel yet and must become one."""
    return [n for n in graph.nodes if not n.op.is_planned]


def _groups(graph: Graph, partition: Partition) -> list[list[Node]]:
    names = dict.fromkeys(partition.of(n) for n in graph.nodes if _fusible(n))
    return [partition.nodes_of(g) for g in names]


def _fusible(node: Node) -> bool:
    return not (node.op.is_planned or node.op.contracts or node.is_free)


def _direct_producers(node: Node, producers: dict[Value, Node]) -> Iterator[tuple[Value, Node]]:
    """Return the fusible nodes that `node` reads at its own index, and the values it reads."""
    if not node.op.in_registers and not sections_joined(node):
        return
    for value in node.inputs:
        source = through_unit_reshapes(value, producers)
        producer = producers.get(source)
        if producer is not None and _fusible(producer):
            yield source, producer


@dataclass(frozen=True)
class _Rows:
    """The index space of a reducing kernel."""

    shape: tuple[int, ...]
    axes: tuple[int, ...]

    @property
    def kept(self) -> tuple[int, ...]:
        return _squeeze(tuple(n for i, n in enumerate(self.shape) if i not in self.axes))

    @property
    def others(self) -> tuple[int, ...]:
        """The axes that are not reduced."""
        return tuple(d for d in range(len(self.shape)) if d not in self.axes)

    @property
    def trailing(self) -> bool:
        """Whether the reduced axes are the last ones, but not all."""
        first, rank = len(self.shape) - len(self.axes), len(self.shape)
        return 0 < first < rank and self.axes == tuple(range(first, rank))

    def aligned(self, shape: tuple[int, ...]) -> bool:
        """Return whether a value of this shape broadcasts only along the reduced axes."""
        padded = (1,) * (len(self.shape) - len(shape)) + shape
        return all(padded[a] == 1 for a in self.axes)


def _squeeze(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(n for n in shape if n != 1)


@dataclass
class _Space:
    """A summary of a group of nodes, so that a merge need not look at each node."""

    alone: bool
    """Whether its template is its own."""
    size: int
    """That of its nodes together."""
    of_update_rule: bool
    rows: _Rows | None
    """That of its reductions."""
    shapes: set[Shape]
    """Of its other nodes."""
    outputs: set[Value]
    elsewhere: set[Value]
    """What it reads at other indices than its own."""
    reads: dict[Value, set[tuple[Shape, Shape]]]
    """What its nodes but reductions read, unit reshapes left out: the shapes of the reading node
    and of what it reads."""
    forward: bool
    """Whether it holds what the gradient has not added."""
    repeats: set[Value]
    """What the gradient computes again, until all that reads it is here too."""
    section: Shape | None = None
    """Of a concat of sections alone: their shape, over which it is computed beside one of them."""
    joins: bool = False
    """Whether it holds such a concat beside a section, which has no place among rows."""

    def refusal(self, other: _Space) -> str:
        """Return the rule that keeps one kernel from computing both groups, or ""."""
        if self.alone or other.alone:
            return "one of the two has a template of its own"
        if self.size + other.size > LARGEST:
            return LARGE
        if self.of_update_rule != other.of_update_rule:
            return OF_RULE
        if (self.repeats and other.forward) or (self.forward and other.repeats):
            return "what is computed again, so as not to be stored, is computed where it is read"
        if not self.elsewhere.isdisjoint(other.outputs):
            return ELSEWHERE
        if not other.elsewhere.isdisjoint(self.outputs):
            return ELSEWHERE
        own, others = self._shapes_next_to(other), other._shapes_next_to(self)
        shapes = own | others
        rows = self.rows or other.rows
        if rows is None:
            return "" if len(shapes) == 1 else "the two compute values of different shapes"
        if (self.rows or rows) != (other.rows or rows):
            return "the two reduce different axes, or values of different shapes"
        if self.joins or other.joins or own is not self.shapes or others is not other.shapes:
            return "a concat of sections has no place among the rows of a reduction"
        if any(s != rows.shape and _squeeze(s) != rows.kept for s in shapes):
            return "a value of the one has neither the shape that the other reduces nor its rows'"
        between = (*self._reads_of(other), *other._reads_of(self))
        if all(s != rows.shape or t == s or rows.aligned(t) for s, t in between):
            return ""
        return "an element of the one needs another row of the other than its own"

    def _shapes_next_to(self, other: _Space) -> set[Shape]:
        if self.section is None or other.outputs.isdisjoint(self.reads):
            return self.shapes
        return {self.section}

    def _reads_of(self, other: _Space) -> Iterator[tuple[Shape, Shape]]:
        few, many = sorted((self.reads.keys(), other.outputs), key=len)
        for value in few:
            if value in many:
                yield from self.reads[value]

    def joined(self, other: _Space) -> _Space:
        """Return the summary of both groups; it changes the larger one."""
        beside, others = self._shapes_next_to(other), other._shapes_next_to(self)
        joins = beside is not self.shapes or others is not other.shapes
        small, large = sorted((self, other), key=lambda s: len(s.outputs))
        large.size += small.size
        large.rows = large.rows or small.rows
        large.joins = self.joins or other.joins or joins
        large.forward = self.forward or other.forward
        large.repeats = self.repeats | other.repeats
        large.shapes, large.section = beside | others, None
        large.outputs |= small.outputs
        large.elsewhere |= small.elsewhere
        for value, shapes in small.reads.items():
            large.reads.setdefault(value, set()).update(shapes)
        return large


def _space(node: Node, producers: dict[Value, Node], repeats: bool) -> _Space:
    shape = node.outputs[0].type.shape
    reads: dict[Value, set[tuple[Shape, Shape]]] = {}
    rows = None
    if node.op.reduced_axes is not None:
        rows = _Rows(node.inputs[0].type.shape, node.op.reduced_axes)
    else:
        for value in node.inputs:
            source = through_unit_reshapes(value, producers)
            reads.setdefault(source, set()).add((shape, value.type.shape))
    return _Space(
        bool(node.op.own_template),
        size(node),
        node.where.of_update_rule,
        rows,
        set() if rows else {shape},
        set(node.outputs),
        read_elsewhere(node, producers),
        reads,
        not node.where.derived,
        set(node.outputs) if repeats else set(),
        concat.shape(shape) if (concat := sections_joined(node)) else None,
    )
