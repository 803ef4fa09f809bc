"""Fuse column reductions, such as batch norm's statistics, into the contraction before them.

A kernel that reduces an image for each of its channels must wait for all of it, so it reads it
twice: for the sums, then for what follows from them. A contraction that makes the image has it in
registers and can add up the sums as well. Both kernels become one, with the launches of both except
the one that would read the image first. It also serves the sums of batch norm's gradient after the
data gradient.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

from graphc.base.target import Target
from graphc.ir import Graph, Node, Value
from graphc.ir.rewrite import topological
from graphc.ir.sections import sections_of_sums
from graphc.ops.fused import KernelNode, kernels_in
from graphc.passes.fuse.groups import as_one, keep_outputs
from graphc.passes.fuse.partition import Partition
from graphc.passes.rewriting.naming import KernelNames
from graphc.passes.rewriting.reasons import record_join

RUN = 16
"""Bytes of channels that are whole runs."""
MOST_SUMS = 3
"""Of more sums the partial ones, of each tile, take longer to join than the image takes to read."""


def fuse_columns(graph: Graph, target: Target) -> Graph:
    """Fuse kernels that only reduce a contraction's columns into the contraction's kernel."""
    if not target.kind.reduces_products:
        return graph
    reason = "its first sums are those of columns that a contraction has made"
    return fuse_after(graph, "fuse_columns", _convolves, _reduced, reason)


def fuse_after(
    graph: Graph,
    name: str,
    makes: Callable[[KernelNode], bool],
    reduced: Callable[[KernelNode], list[Value]],
    reason: str,
) -> Graph:
    """Fuse reductions into the kernels with contractions whose results they reduce.

    `makes` says which contractions qualify, `reduced` which of the reduction's values are computed
    where they are, element by element. `name` is that of the pass, `reason` its explanation.
    """
    partition = Partition(graph, _reshapes, name)
    makers = {v: n for n in kernels_in(graph) if makes(n) for v in n.outputs}
    pairs: dict[int, tuple[KernelNode, KernelNode]] = {}
    for node in kernels_in(graph):
        for value in reduced(node):
            source = made(value, graph.producers)
            maker = makers.get(source)
            if maker is None or id(maker) in pairs or not _sums(maker, node, value, source):
                continue
            if _reads_elsewhere(node, value, maker, graph.producers):
                continue
            if partition.can_merge(partition.of(maker), partition.of(node)):
                partition.merge(partition.of(maker), partition.of(node))
                pairs[id(maker)] = maker, node
                record_join(node, reason)
                break
    return _with_pairs(graph, list(pairs.values()))


def _reads_elsewhere(
    node: KernelNode, value: Value, maker: KernelNode, producers: Mapping[Value, Node]
) -> bool:
    """Return whether a kernel reads a result of `maker` in another shape than that of `value`.

    It may then read elements that other blocks of the launch have.
    """
    others = [v for v in node.inputs if v.type.shape != value.type.shape]
    return any(made(v, producers) in maker.outputs for v in others)


def made(value: Value, producers: Mapping[Value, Node]) -> Value:
    """Return the value that `value` is a reshape of, or itself."""
    producer = producers.get(value)
    return producer.inputs[0] if producer is not None and _reshapes(producer) else value


def _reshapes(node: Node) -> bool:
    """Return whether a node between kernels reshapes what it reads."""
    return node.op.moves and node.op.is_planned


def _convolves(node: KernelNode) -> bool:
    """Return whether a kernel has a contraction of one image and an operand that is none."""
    found = any(n.op.contracts and n.op.images == 1 for n in node.body.nodes)
    return found and node.op.template == "contract"


def _reduced(node: KernelNode) -> list[Value]:
    """Return the images that the kernel reduces per channel; none if it does anything else."""
    if node.op.template != "reduce":
        return []
    found = [n for n in node.body.nodes if n.op.reduced_axes is not None]
    if any(n.op.reduced_axes != (0, 2, 3) for n in found) or len(found) > MOST_SUMS:
        return []
    shape = found[0].inputs[0].type.shape
    return [v for v in node.inputs if v.type.shape == shape and _runs(v)]


def _runs(value: Value) -> bool:
    """Return whether a value is channels-last float32 with whole runs of channels."""
    kind = value.type
    channels, size = kind.shape[1] if kind.rank == 4 else 0, kind.numpy_dtype.itemsize
    last = kind.layout.axis == 1 and kind.layout.width == channels
    return kind.dtype == "f32" and last and channels * size % RUN == 0


def _sums(maker: KernelNode, node: KernelNode, value: Value, source: Value) -> bool:
    """Return whether the first sums of `node` are computed element by element from `source`.

    `source` is the value of `maker` that `value` is read from; other operands are alike, or one per
    channel or row.
    """
    product = next(n for n in maker.body.nodes if n.op.contracts)
    if sections_of_sums(maker.body) is not None:
        return False
    if product.output.type.shape != source.type.shape:
        return False
    if source.type.shape[-1] != value.type.shape[-1]:
        return False
    if any(n.op.reduced_axes is not None for n in maker.body.nodes):
        return False
    body, shape = node.body, value.type.shape
    images = {v for v in body.inputs if v.type.shape == shape}
    plain = all(v.type.layout == value.type.layout for v in images)
    return plain and all(_simple(n, images) for n in body.nodes)


def _simple(node: Node, images: set[Value]) -> bool:
    """Return whether a node moves no image, and is pointwise or a reduction."""
    free = node.is_free and images.isdisjoint(node.inputs)
    return free or node.op.in_registers


def _with_pairs(graph: Graph, pairs: list[tuple[KernelNode, KernelNode]]) -> Graph:
    """Replace each pair of nodes by one."""
    if not pairs:
        return graph
    names, producers = KernelNames(graph), graph.producers
    whole = {}
    for first, second in pairs:
        read = {v for n in graph.nodes if n is not second for v in n.inputs} | graph.result_set
        name = names.fresh(f"{first.op.kernel}_{second.op.kernel}")
        inside = {*first.outputs}
        between = [
            n
            for v in second.inputs
            if (n := producers.get(v)) and _reshapes(n) and n.inputs[0] in inside
        ]
        node = as_one((first, second), name, first.op.note, between)
        stored = {*_stored(node.body, first.outputs, second.inputs, read), *second.outputs}
        whole[id(second)] = keep_outputs(node, [v in stored for v in node.outputs])
    gone = {id(first) for first, _ in pairs}
    nodes = [whole.get(id(n), n) for n in graph.nodes if id(n) not in gone]
    return replace(graph, nodes=topological(nodes))


def _stored(
    body: Graph, makes: Sequence[Value], sought: Sequence[Value], read: Collection[Value]
) -> Collection[Value]:
    """Return which values of the first kernel must be stored for their readers.

    If the values that the second kernel reads follow from one stored value, that one is enough, as
    for a batch norm's gradient, where two images are one image times factors per channel. Otherwise
    all are stored.
    """
    wanted = {v for v in makes if v in read}
    if _steps(body, sought, wanted) is not None:
        return wanted
    steps = {v: _steps(body, sought, {*wanted, v}) for v in makes}
    enough = {v: count for v, count in steps.items() if count is not None}
    return {*wanted, min(enough, key=lambda v: enough[v])} if enough else makes


def _steps(body: Graph, sought: Sequence[Value], stored: Collection[Value]) -> int | None:
    """Return how many nodes lead from `stored` to `sought`; None if one is a contraction."""
    producers, nodes, left = body.producers, dict[int, Node](), [*sought]
    while left:
        value = left.pop()
        node = None if value in stored else producers.get(value)
        if node is None or id(node) in nodes:
            continue
        if node.op.contracts:
            return None
        nodes[id(node)] = node
        left += node.inputs
    return len(nodes)
