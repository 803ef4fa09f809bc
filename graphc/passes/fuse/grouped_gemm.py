"""Group contractions that no other contraction waits for into one kernel, a grouped GEMM.

The gradients of weights are such: only the update reads them. For small batches each is small, so
that it is split along k to fill a device, stores partial sums, and needs another launch to add
them. Together they fill the device in fewer parts or none. Larger ones are only grouped with others
alike, since all blocks of a launch have the registers of its largest tile. Small reductions that no
contraction waits for, such as gradients of biases, are grouped too. Operands are kept until the
last member has read them, which bounds a group.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import reduce
from typing import Any

from graphc.base.target import Target
from graphc.ir import Graph, Node, Value, Where
from graphc.ir.rewrite import topological
from graphc.ir.sections import sections_of_sums
from graphc.ops.cost import node_bytes, node_flops
from graphc.ops.fused import Fused, KernelNode, kernels_in
from graphc.passes.fuse.partition import Partition
from graphc.passes.rewriting.naming import KernelNames
from graphc.passes.rewriting.reasons import record_join

SMALL_FLOPS = 10**9
"""Of a contraction that gains beside any other: on tensor cores about what two launches take."""
MOST_FLOPS = 5 * 10**9 // 2
"""Of one that gains beside those that are alike, with tiles of one kind: k is cut less often."""
MOST_SUMMED = 8 * 2**20
"""Bytes of a reduction that does: from a second-level cache less than a launch takes."""
MOST_BYTES = 64 * 2**20
"""Read and written by a group: what is kept for it, and about what a second-level cache has."""
MOST_MEMBERS = 32
"""Of a group: its text is compiled at once, and takes an argument or a few for each."""


def fuse_products(graph: Graph, target: Target) -> Graph:
    """Group small contractions and reductions that no contraction waits for into one kernel."""
    asked = target.multiplies_groups or target.adds_in_clusters  # for products of another kind
    asked = asked or not target.tensor_cores
    if asked or not target.kind.groups_products:
        return graph
    names = KernelNames(graph)
    groups = {id(g[0]): _grouped(g, names) for g in _groups(graph) if len(g) > 1}
    gone = {id(n) for node in groups.values() for n in node.body.nodes}
    nodes = [groups.get(id(n), n) for n in graph.nodes if id(n) in groups or id(n) not in gone]
    return replace(graph, nodes=topological(nodes)) if groups else graph


def groups_in(graph: Graph) -> list[KernelNode]:
    """Return the nodes of a graph that are groups."""
    return [n for n in kernels_in(graph) if n.op.template == "group"]


def split_products(graph: Graph) -> Graph:
    """Split groups into their kernels again where memory is short.

    Operands are then freed earlier.
    """
    groups = groups_in(graph)
    apart = [n for group in groups for n in group.body.nodes]
    nodes = [n for n in graph.nodes if n not in groups]
    return replace(graph, nodes=topological([*nodes, *apart])) if groups else graph


def _groups(graph: Graph) -> Iterator[list[KernelNode]]:
    """Return the members of each group, which do not read from each other.

    Small contractions at the end of a graph are grouped, followed by small reductions; and larger
    contractions that are alike.
    """
    waited = _waited(graph) | {new for _, new in graph.updates}
    nodes = [n for n in kernels_in(graph) if waited.isdisjoint(n.outputs)][::-1]
    partition = Partition(graph, name="fuse_products")
    small = sorted(filter(_is_small, nodes), key=_contracts, reverse=True)
    if small and _contracts(small[0]):
        yield from _filled(small, partition)
    alike: dict[tuple[Any, ...], list[KernelNode]] = {}
    for node in filter(_is_larger, nodes):
        types = tuple(v.type for v in (*node.inputs, *node.outputs))
        alike.setdefault((node_flops(node), types), []).append(node)
    for members in alike.values():
        yield from _filled(members, partition)


def _filled(members: list[KernelNode], partition: Partition) -> Iterator[list[KernelNode]]:
    """Divide `members`, in order, into groups that do not read and write too much."""
    group, held = members[:1], _values(members[0])
    for node in members[1:]:
        if not partition.independent(partition.of(group[0]), partition.of(node)):
            continue
        more = held | _values(node)
        if len(group) < MOST_MEMBERS and sum(v.type.nbytes for v in more) <= MOST_BYTES:
            partition.merge(partition.of(group[0]), partition.of(node))
            group.append(node)
            held = more
        elif _contracts(node):
            yield group
            group, held = [node], _values(node)
    yield group


def _values(node: KernelNode) -> set[Value]:
    """Return the values that a member reads and writes; other members may read the same."""
    return {*node.inputs, *node.outputs}


def _contracts(node: KernelNode) -> bool:
    return node.op.template == "contract"


def _waited(graph: Graph) -> set[Value]:
    """Return the values that lead to an operand of a contraction, or to a loop."""
    long = {id(n) for n in kernels_in(graph) if any(map(_takes_long, n.body.nodes))}
    waited: set[Value] = set()
    for node in reversed(graph.nodes):
        if id(node) in long or node.op.is_loop or not waited.isdisjoint(node.outputs):
            waited.update(node.inputs)
    return waited


def _takes_long(node: Node) -> bool:
    return node.op.contracts or bool(node.op.own_template)


def _is_small(node: KernelNode) -> bool:
    """Return whether a kernel is a small contraction or reduction."""
    if node.op.template == "reduce":
        return node_bytes(node) <= MOST_SUMMED
    return _is_plain(node) and node_flops(node) <= SMALL_FLOPS


def _is_larger(node: KernelNode) -> bool:
    """Return whether a kernel is a contraction that gains from others alike."""
    return _is_plain(node) and SMALL_FLOPS < node_flops(node) <= MOST_FLOPS


def _is_plain(node: KernelNode) -> bool:
    """Return whether a kernel is a contraction of narrow operands without an epilogue."""
    if not _contracts(node) or sections_of_sums(node.body) is not None:
        return False
    return _is_narrow(node) and all(n.op.reduced_axes is None for n in node.body.nodes)


def _is_narrow(node: KernelNode) -> bool:
    """Return whether tensor cores multiply the operands as they are, or rounded on read."""
    product = next(n for n in node.body.nodes if n.op.contracts)
    makers = {v: n for n in node.body.nodes for v in n.outputs}

    def narrow(value: Value) -> bool:
        maker = makers.get(value)
        if maker is None:
            return value.type.numpy_dtype.itemsize == 2
        return maker.op.converts_reads or (maker.is_free and narrow(maker.inputs[0]))

    return all(narrow(v) for v in product.inputs[:2])


def _grouped(members: list[KernelNode], names: KernelNames) -> KernelNode:
    inputs = tuple(dict.fromkeys(v for n in members for v in n.inputs))
    outputs = tuple(v for n in members for v in n.outputs)
    where = reduce(Where.merge, (n.where for n in members))
    for node in members:
        record_join(node, "no contraction waits for it, so one launch has its blocks and others'")
    name = names.fresh(f"{members[0].op.kernel}_and_{len(members) - 1}_more")
    body = Graph(name, inputs, (), tuple(members), outputs)
    return KernelNode(Fused(name, body), inputs, outputs, where)
