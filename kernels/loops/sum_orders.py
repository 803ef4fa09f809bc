"""State the order of every sum in its node (`graphc.ir.sum_order`).

A contraction adds its products one after the other, in the order of the loops over its summed axes,
so that neither the tile nor the width of registers nor the batch changes a bit:

    matmul          k
    conv2d          c,r,s
    conv2d_dgrad    k,r,s
    conv2d_wgrad    n,p,q

Where a layout puts the samples that a gradient sums over into the lanes of both operands, the lanes
are added at the end, n/16,p,q,n%16 and k/16,k%16, and large operands are summed in parts:
3*n/16,p,q,n%16. Of row-major images, the lanes of their weight gradient are those of a long row:
n,p,q%16. Where a layout puts the channels of its output into lanes, few channels leave threads
without work, so that images are summed in parts: 4*n,p,q.

No order is stated where a kernel may have one of its own: where an instruction adds products of
bf16 in pairs, and for convolutions that Winograd's algorithm may compute.

Reductions: `reduction_orders`.
"""

from __future__ import annotations

from dataclasses import replace

from graphc.base.target import Target
from graphc.ir import FLOATS, Graph, Node
from graphc.ir.sum_order import LANES
from graphc.kernels.loops.reduction_orders import order_reductions
from graphc.kernels.program.nest import Nest, contraction_nest
from graphc.ops.base import Contraction
from graphc.ops.convolution import Conv2d, Conv2dDgrad
from graphc.ops.fused import KernelNode

PART = 1 << 20
"""Bytes that a part of a sum over samples in lanes reads."""

SHORTEST_PART = 400
"""The fewest products per lane in a part: below, adding up its lanes costs too much."""

PARTS = 24
"""Units of work that many threads share."""

UNIT = 1 << 20
"""Products that are worth a unit of work: 10 to 20 microseconds."""


def order_sums(graph: Graph, target: Target) -> Graph:
    """`graph` with the order of sums in the nodes of its kernels, for devices that keep to it."""
    if not target.kind.vectors:
        return graph
    return replace(graph, nodes=tuple(_in_kernel(n, target) for n in graph.nodes))


def _in_kernel(node: Node, target: Target) -> Node:
    """The node with orders, if it is a kernel."""
    if not isinstance(node, KernelNode):
        return node
    body = node.body
    if node.op.template == "reduce":
        return replace(node, op=replace(node.op, body=order_reductions(body)))
    if node.op.template == "group":
        nodes = tuple(_in_kernel(n, target) for n in body.nodes)
    elif node.op.template == "contract":
        order = _order(contraction_nest(body), target)
        nodes = tuple(_ordered(n, order) if n.op.contracts else n for n in body.nodes)
    else:
        return node
    return replace(node, op=replace(node.op, body=replace(body, nodes=nodes)))


def _ordered(node: Node, order: str) -> Node:
    assert isinstance(node.op, Contraction)
    return replace(node, op=replace(node.op, order=order))


def _order(nest: Nest, target: Target) -> str:
    """The order of a contraction; "" where no kernel, or not every kernel, adds one by one."""
    dtypes = {nest.a.type.dtype, nest.b.type.dtype}
    pairs = target.multiplies_pairs and dtypes == {"bf16"}
    if pairs or (target.transforms_tiles and _suits_winograd(nest)):
        return ""
    return contraction_order(nest)


def stated_order(nest: Nest, target: Target) -> str:
    """The order in the node of a contraction, or the one that `order_sums` would state."""
    assert isinstance(nest.node.op, Contraction)
    return nest.node.op.order or _order(nest, target)


def _suits_winograd(nest: Nest) -> bool:
    """Whether this is a 3 x 3 convolution of stride 1 with channels in the lanes, or its gradient
    to the image."""
    op = nest.node.op
    if not isinstance(op, Conv2d | Conv2dDgrad) or nest.a.lanes not in nest.summed:
        return False
    taps = [nest.axes[a].extent for a in nest.summed[1:]]
    return op.stride == (1, 1) and taps == [3, 3]


def contraction_order(nest: Nest) -> str:
    """The order of a contraction's products; "" for integers, whose sums have none."""
    if nest.node.output.type.dtype not in FLOATS:
        return ""
    names = [nest.axes[a].name for a in nest.summed]
    if {read.lanes for read in (nest.a, nest.b)} == {nest.summed[0]}:
        sample, *others = names
        names = [f"{sample}/{LANES}", *others, f"{sample}%{LANES}"]
        parts = parts_of_samples(nest)
    else:
        parts = parts_of_images(nest)
        if _has_rows(nest):
            names[-1] += f"%{LANES}"
    return (f"{parts}*" if parts > 1 else "") + ",".join(names)


def _has_rows(nest: Nest) -> bool:
    """Whether this is a weight gradient of row-major images whose rows fill lanes."""
    row_major = nest.a.lanes is None and nest.b.lanes is None
    fills_lanes = nest.axes[nest.summed[-1]].extent >= 0.6 * LANES
    return nest.node.op.name == "conv2d_wgrad" and row_major and fills_lanes


def parts_of_samples(nest: Nest) -> int:
    """The parts of a sum over samples in the lanes of both operands: what a part reads stays in a
    second-level cache while all tiles pass over it."""
    steps = -(-nest.axes[nest.summed[0]].extent // LANES)
    products = nest.extents(nest.summed) // LANES
    most = max(1, min(steps, products // SHORTEST_PART))
    size = nest.node.output.type.numpy_dtype.itemsize
    return min(most, max(1, size * (nest.a.type.size + nest.b.type.size) // PART))


def parts_of_images(nest: Nest) -> int:
    """The parts of a weight gradient's sums with output channels in lanes, which divide the images.

    They give `PARTS` units of work with tiles of two registers of channels, if there are so many
    products that each is worth a thread's start, and if the gradient is small beside its operands.
    """
    if nest.node.op.name != "conv2d_wgrad" or nest.b.lanes not in nest.kept:
        return 1
    channel, image = nest.kept[0], nest.summed[0]
    units = min(PARTS, nest.extents(range(len(nest.axes))) // UNIT)
    wanted = -(-units * 2 * LANES // nest.axes[channel].extent)
    if nest.extents(nest.kept) >= max(nest.a.type.size, nest.b.type.size):
        return 1
    images = nest.axes[image].extent
    return next((n for n in range(max(1, wanted), images) if images % n == 0), images)
