"""Fuse pointwise and reductions: what remains becomes kernels over one index space each.

Producers and consumers are merged greedily, in order, where one kernel can compute both:

- pointwise ops of one shape;
- reductions of one shape over one set of axes (the rows), with pointwise ops of the full shape or
  of the rows' shape on either side: softmax, normalisation, activation-backward and bias gradient.

A value that is read through a view at other indices, or by a window, gather, pad or concat, is
memory: its reader is another kernel.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from graphc.ir import Graph, Node, Value
from graphc.ops.base import Contraction, Pointwise, Reduction
from graphc.ops.fused import Fused
from graphc.ops.scan import Scan
from graphc.passes.groups import fuse_groups, is_free, of_update_rule
from graphc.passes.partition import Partition
from graphc.passes.places import reads_elsewhere, through_unit_reshapes
from graphc.target import Target


def fuse_pointwise(graph: Graph, target: Target) -> Graph:
    """`graph` with every node fused, but for reshapes, which move nothing."""
    partition = Partition(graph, is_free)
    producers = graph.producers
    for node in graph.nodes:
        if not _fusible(node):
            continue
        for producer in _direct_producers(node, producers):
            a, b = partition.of(producer), partition.of(node)
            if a == b or not partition.can_merge(a, b):
                continue
            union = sorted(partition.members[a] + partition.members[b])
            if _one_kernel([graph.nodes[i] for i in union], producers):
                partition.merge(a, b)
    graph = fuse_groups(graph, _groups(graph, partition))
    while alone := [n for n in graph.nodes if not isinstance(n.op, Fused) and not _stays(n)]:
        graph = fuse_groups(graph, [[n] for n in alone])
    return graph


def _groups(graph: Graph, partition: Partition) -> list[list[Node]]:
    names = dict.fromkeys(partition.of(n) for n in graph.nodes if _fusible(n))
    return [partition.nodes_of(g) for g in names]


def _fusible(node: Node) -> bool:
    if isinstance(node.op, (Fused, Contraction)) or _stays(node):
        return False
    return not is_free(node)


def _stays(node: Node) -> bool:
    """Whether the node is no kernel: a reshape, or a scan, whose body holds kernels."""
    return node.op.name == "reshape" or isinstance(node.op, Scan)


def _direct_producers(node: Node, producers: dict[Value, Node]) -> Iterator[Node]:
    """The fusible nodes that `node` reads at its own index."""
    if not isinstance(node.op, (Pointwise, Reduction)):
        return
    for value in node.inputs:
        source = through_unit_reshapes(value, producers)
        producer = producers.get(source)
        if producer is not None and _fusible(producer):
            yield producer


@dataclass(frozen=True)
class _Rows:
    """The index space of a reducing kernel."""

    shape: tuple[int, ...]
    axes: tuple[int, ...]

    @property
    def kept(self) -> tuple[int, ...]:
        return _squeeze(tuple(n for i, n in enumerate(self.shape) if i not in self.axes))

    def aligned(self, shape: tuple[int, ...]) -> bool:
        """Whether a rows' value of this shape broadcasts along the reduced axes alone."""
        padded = (1,) * (len(self.shape) - len(shape)) + shape
        return all(padded[a] == 1 for a in self.axes)


def _squeeze(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(n for n in shape if n != 1)


def _one_kernel(nodes: Sequence[Node], producers: dict[Value, Node]) -> bool:
    """Whether one kernel can compute the nodes."""
    members = {v for n in nodes for v in n.outputs}
    if any(n.op.own_template for n in nodes):
        return False
    if len({of_update_rule(n) for n in nodes}) > 1:
        return False
    if any(reads_elsewhere(n, members, producers) for n in nodes):
        return False
    spaces = {
        _Rows(n.inputs[0].type.shape, n.op.axes) for n in nodes if isinstance(n.op, Reduction)
    }
    if not spaces:
        return len({n.outputs[0].type.shape for n in nodes}) == 1
    if len(spaces) != 1:
        return False
    rows = spaces.pop()
    return all(_fits_rows(n, rows, members, producers) for n in nodes)


def _fits_rows(node: Node, rows: _Rows, members: set[Value], producers: dict[Value, Node]) -> bool:
    if isinstance(node.op, Reduction):
        return True
    shape = node.outputs[0].type.shape
    if shape != rows.shape:
        return _squeeze(shape) == rows.kept
    inner = [v for v in node.inputs if through_unit_reshapes(v, producers) in members]
    return all(v.type.shape == rows.shape or rows.aligned(v.type.shape) for v in inner)
