"""State the order of every sum in its node (`graphc.ir.sum_order`).

A contraction adds its products one after the other, in the order of the loops over its summed axes,
so that neither the tile nor the width of registers nor the batch changes a bit:

    matmul          k
    conv2d          c/16,r,c,s
    conv2d_dgrad    k/16,r,k,s
    conv2d_wgrad    n,p,q

Where a layout puts the images of both operands of a weight gradient into lanes, the lanes are added
at the end: n/16,p,q,n%16. Reductions: `reduction_orders`.
"""

from __future__ import annotations

from dataclasses import replace

from graphc.base.target import Target
from graphc.ir import FLOATS, Graph, Node
from graphc.ir.sum_order import LANES
from graphc.kernels.program.nest import Nest, contraction_nest
from graphc.kernels.program.reduction_orders import order_reductions
from graphc.ops.base import Contraction
from graphc.ops.fused import KernelNode


def order_sums(graph: Graph, target: Target) -> Graph:
    """`graph` with the order of sums in the nodes of its kernels, for devices that keep to it."""
    if not target.kind.vectors:
        return graph
    return replace(graph, nodes=tuple(map(_in_kernel, graph.nodes)))


def _in_kernel(node: Node) -> Node:
    """The node with orders, if it is a kernel."""
    if not isinstance(node, KernelNode):
        return node
    body = node.body
    if node.op.template == "reduce":
        nodes = order_reductions(body).nodes
    elif node.op.template == "group":
        nodes = tuple(map(_in_kernel, body.nodes))
    elif node.op.template == "contract":
        order = contraction_order(contraction_nest(body))
        nodes = tuple(_ordered(n, order) if n.op.contracts else n for n in body.nodes)
    else:
        return node
    return replace(node, op=replace(node.op, body=replace(body, nodes=nodes)))


def _ordered(node: Node, order: str) -> Node:
    assert isinstance(node.op, Contraction)
    return replace(node, op=replace(node.op, order=order))


def contraction_order(nest: Nest) -> str:
    """The order of a contraction's products; "" for integers, whose sums have none."""
    if nest.node.output.type.dtype not in FLOATS:
        return ""
    names = [nest.axes[a].name for a in nest.summed]
    if nest.node.op.name in ("conv2d", "conv2d_dgrad"):
        channel, row, column = names
        return f"{channel}/{LANES},{row},{channel},{column}"
    lanes = {read.lanes for read in (nest.a, nest.b)}
    if nest.node.op.name == "conv2d_wgrad" and lanes == {nest.summed[0]}:
        image, *pixels = names
        return ",".join((f"{image}/{LANES}", *pixels, f"{image}%{LANES}"))
    return ",".join(names)
