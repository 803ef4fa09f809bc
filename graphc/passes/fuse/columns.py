"""Fuse reductions along the rows of what a contraction makes: batch norm's statistics behind a
convolution, and the sums of its gradient behind the data gradient that it reads.

A kernel that reduces an image for each of its channels waits for all of it, so it reads it twice:
for the sums, then for what follows from them. Where a contraction makes the image, its blocks have
it in registers, and add up the sums as well: both kernels become one, of the launches of both but
the one that would read the image first.
"""

from __future__ import annotations

from dataclasses import replace

from graphc.ir import Graph, Node, Value
from graphc.ops.fused import KernelNode, kernels_in
from graphc.passes.fuse.groups import as_one
from graphc.passes.fuse.partition import Partition
from graphc.passes.fuse.sections import sections_of_sums
from graphc.passes.rewriting.naming import KernelNames
from graphc.passes.rewriting.reasons import joined
from graphc.passes.rewriting.rewrite import topological
from graphc.target import Target

RUN = 16
"""Bytes of channels that are whole runs."""
MOST_SUMS = 3
"""Of more sums the partial ones, of each tile, take longer to join than the image takes to read."""


def fuse_columns(graph: Graph, target: Target) -> Graph:
    """`graph` whose kernels with contractions reduce their output's columns, where something does
    that with them alone."""
    if not target.kind.sums_columns_of_products:
        return graph
    partition = Partition(graph, name="fuse_columns")
    makers = {v: n for n in kernels_in(graph) if n.op.template == "contract" for v in n.outputs}
    pairs: dict[int, tuple[KernelNode, KernelNode]] = {}
    for node in kernels_in(graph):
        for value in _reduced(node):
            maker = makers.get(value)
            if maker is None or id(maker) in pairs or not _sums(maker, node, value):
                continue
            if partition.can_merge(partition.of(maker), partition.of(node)):
                partition.merge(partition.of(maker), partition.of(node))
                pairs[id(maker)] = maker, node
                joined(node, "its first sums are those of columns that a contraction has made")
                break
    return _with_pairs(graph, list(pairs.values()))


def _reduced(node: KernelNode) -> list[Value]:
    """The images whose channels are what the kernel reduces for; none if it does something else."""
    if node.op.template != "reduce":
        return []
    found = [n for n in node.body.nodes if n.op.reduced_axes is not None]
    if any(n.op.reduced_axes != (0, 2, 3) for n in found) or len(found) > MOST_SUMS:
        return []
    shape = found[0].inputs[0].type.shape
    return [v for v in node.inputs if v.type.shape == shape and _runs(v)]


def _runs(value: Value) -> bool:
    """Whether a value is of float32 with its channels last, which are whole runs."""
    kind = value.type
    channels, size = kind.shape[1] if kind.rank == 4 else 0, kind.numpy_dtype.itemsize
    last = kind.layout.axis == 1 and kind.layout.width == channels
    return kind.dtype == "f32" and last and channels * size % RUN == 0


def _sums(maker: KernelNode, node: KernelNode, value: Value) -> bool:
    """Whether what leads to the first sums of `node` is computed where `maker` has `value`: element
    by element, from images alike and what there is for each channel."""
    product = next(n for n in maker.body.nodes if n.op.contracts)
    if product.op.images != 1 or sections_of_sums(maker.body) is not None:
        return False
    if product.output.type.shape != value.type.shape:
        return False
    if any(n.op.reduced_axes is not None for n in maker.body.nodes):
        return False
    body, shape = node.body, value.type.shape
    images = {v for v in body.inputs if v.type.shape == shape}
    plain = all(v.type.layout == value.type.layout for v in images)
    return plain and all(_simple(n, images) for n in body.nodes)


def _simple(node: Node, images: set[Value]) -> bool:
    """Whether a node moves no image, and computes element by element or a reduction."""
    free = node.is_free and images.isdisjoint(node.inputs)
    return free or node.op.in_registers


def _with_pairs(graph: Graph, pairs: list[tuple[KernelNode, KernelNode]]) -> Graph:
    """`graph` with one node for each pair."""
    if not pairs:
        return graph
    names = KernelNames(graph)
    whole = {}
    for first, second in pairs:
        name = names.fresh(f"{first.op.kernel}_{second.op.kernel}")
        whole[id(second)] = as_one((first, second), name, first.op.note)
    gone = {id(first) for first, _ in pairs}
    nodes = [whole.get(id(n), n) for n in graph.nodes if id(n) not in gone]
    return replace(graph, nodes=topological(nodes))
