"""Convert weights to layouts of which kernels read whole registers and cache lines.

A product x w^T with x row-major has features in its lanes, along which the weight f32[features, k]
is not contiguous, so that its kernel transposes the weight in each call. That costs as much as the
products of a few samples. A weight that the program does not change, and one that a loop reads, is
laid out with features in the lanes instead: once for each change of the weight, or outside of the
loop. One core of a Zen 4: 1 x 1024 x 1024 160 us with the transposition, 52 without; 20 x 784 x 32
15.3 and 10.4; an LSTM of 128 units, one sample of 30 steps, 1,052 and 102.

The gradient of a product with the batch in the lanes reads its weight f32[k,n] along k, for a few
columns at a time: of each line that arrives, a tile uses some columns and drops the others. With k
in the lanes a tile reads `width` steps of a column as one line. That costs one conversion, outside
of loops, and pays where the weight is read many times, in a loop or by a large batch, and does not
stay in the second-level cache between. One core, 4096 x 1024: 2 vectors of batch 139 GFLOP/s
row-major, 227 so, 60 vectors 142 and 195.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from dataclasses import replace

from graphc.base.target import Target
from graphc.ir import ROW_MAJOR, Graph, Layout, Node, Value
from graphc.ir.rewrite import names_of
from graphc.ir.sections import sections_of_sums
from graphc.ir.sum_order import LANES
from graphc.ops.fused import KernelNode
from graphc.ops.layout import Relayout
from graphc.ops.loops.scan import BoundScan, Scan
from graphc.passes.layout.layout import with_types

LEAST_CACHES = 2
"""Second-level caches that a weight fills which is worth it; half of a smaller one would stay."""
LEAST_BATCH = 256
"""Samples of a kernel outside of loops: one core, 4096 x 1024, gains 1.35 times at 960."""
LEAST_FEATURES = LANES // 2
"""Features of a weight that fill enough of a register."""


def lane_weights(graph: Graph, target: Target) -> Graph:
    """Convert large weights before they are read, to layouts with whole cache lines."""
    if not target.has_lanes:
        return graph
    changed = {old for old, _ in graph.updates}
    conversion = _Conversion(graph, target, set(graph.state) - changed)
    for node in graph.nodes:
        if isinstance(node.op, Scan):
            for number in range(len(node.op.constants)):
                node = conversion.of_constant(Scan.bind(node), number)
        elif isinstance(node, KernelNode):
            for value in node.inputs:
                node = conversion.of_operand(node, value)
        conversion.nodes.append(node)
    return replace(graph, nodes=tuple(conversion.nodes))


class _Conversion:
    def __init__(self, graph: Graph, target: Target, unchanged: Container[Value]) -> None:
        self.unchanged = unchanged
        self.names, self.layout = names_of(graph), Layout(0, target.lanes)
        self.least_bytes = LEAST_CACHES * target.caches.second
        self.nodes: list[Node] = []
        self.laned: dict[Value, Value] = {}

    def of_operand(self, node: KernelNode, weight: Value) -> KernelNode:
        """The kernel with `weight` in lanes, if that is for the better."""
        large = weight.type.nbytes >= self.least_bytes and _batch(node) >= LEAST_BATCH
        gains = large and self._gains(weight, [node])
        if not gains and not (weight in self.unchanged and _transposes(node, weight)):
            return node
        return _with_input(node, weight, self._convert(weight, node))

    def of_constant(self, loop: BoundScan, number: int) -> Node:
        """The scan with a constant in lanes, if all its readers gain by that."""
        (old, value), body = loop.constants[number], loop.op.body
        readers = body.consumers.get(old, [])
        if old in body.outputs:
            return loop.node
        large = value.type.nbytes >= self.least_bytes
        transposed = _all_kernels(readers, old, _transposes)
        if not transposed and not (large and self._gains(old, readers)):
            return loop.node
        laned = self._convert(value, loop.node)
        new = replace(old, type=laned.type)
        constants = [*loop.constants]
        constants[number] = (new, laned)
        nodes = (
            _with_input(n, old, new) if isinstance(n, KernelNode) and old in n.inputs else n
            for n in body.nodes
        )
        return replace(loop, constants=tuple(constants)).rebuilt(nodes)

    def _gains(self, weight: Value, readers: list[Node]) -> bool:
        if weight.type.layout != ROW_MAJOR or weight.type.rank != 2:
            return False
        whole = weight.type.shape[0] % LANES == 0
        return whole and _all_kernels(readers, weight, _reads_along_rows)

    def _convert(self, value: Value, reader: Node) -> Value:
        if value not in self.laned:
            type = value.type.with_layout(self.layout)
            self.laned[value] = laned = Value(self.names.fresh(f"{value.name}.lanes"), type)
            self.nodes.append(Node(Relayout(self.layout), (value,), (laned,), reader.where))
        return self.laned[value]


def _all_kernels(
    readers: Sequence[Node], weight: Value, reads: Callable[[KernelNode, Value], bool]
) -> bool:
    """Return whether there are readers of the weight, all kernels that read it in this way."""
    return bool(readers) and all(isinstance(n, KernelNode) and reads(n, weight) for n in readers)


def _reads_along_rows(node: KernelNode, weight: Value) -> bool:
    """Return whether the node multiplies a batch in the lanes by `weight`, summed over its rows."""
    found = _product_of(node, weight)
    if found is None:
        return False
    product, place = found
    alone = node.body.consumers.get(place, []) == [product]
    batch, operand = product.inputs
    return alone and operand == place and batch.type.layout.axis == 0


def _transposes(node: KernelNode, weight: Value) -> bool:
    """Return whether the node multiplies row-major x by the transposed weight, x w^T."""
    found = _product_of(node, weight)
    if found is None or weight.type.layout != ROW_MAJOR or weight.type.rank != 2:
        return False
    if weight.type.shape[0] < LEAST_FEATURES:
        return False
    sections = sections_of_sums(node.body)
    if sections is not None and sections.size % LANES:
        return False
    product, place = found
    x, operand = product.inputs
    (view, *others) = node.body.consumers.get(place, [])
    transposed = view.output == operand and view.op.axis_map(place.type) == (((1, 0),),)
    return transposed and not others and x.type.layout == ROW_MAJOR


def _product(node: KernelNode) -> Node | None:
    """The matmul of a fused node."""
    return next((n for n in node.body.nodes if n.op.name == "matmul"), None)


def _product_of(node: KernelNode, weight: Value) -> tuple[Node, Value] | None:
    """The matmul of a fused node, and the input of its body that is `weight`, if there is one."""
    product = _product(node)
    if product is None or node.inputs.count(weight) != 1:
        return None
    return product, node.body.inputs[node.inputs.index(weight)]


def _batch(node: KernelNode) -> int:
    product = _product(node)
    return product.output.type.shape[0] if product else 0


def _with_input(node: KernelNode, old: Value, new: Value) -> KernelNode:
    inputs = tuple(new if v == old else v for v in node.inputs)
    body = with_types(node.body, inputs, node.outputs)
    return replace(node, op=replace(node.op, body=body), inputs=inputs)
