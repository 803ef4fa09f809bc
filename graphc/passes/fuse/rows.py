"""Fuse row reductions, such as a layer norm's, into the contraction that makes the rows.

Where rows are few, k is split to fill a device, and a launch adds the parts of each sum. A kernel
that reduces rows reads each element in one thread, which can add its parts: both kernels become
one, without a launch between them.
"""

from __future__ import annotations

from graphc.base.target import Target
from graphc.ir import ROW_MAJOR, Graph, Value
from graphc.ops.cost import node_flops
from graphc.ops.fused import KernelNode
from graphc.passes.fuse.columns import RUN, fuse_after

LEAST_BYTES = 256 * 2**10
"""Of a value whose sums are cut: those of fewer are shared by the threads of a block."""
MOST_BYTES = 2 * 2**20
"""Of one for which tiles of 64 x 64 sums do not fill a large device."""
LEAST_SUMMED = 512
"""Products of a sum that are worth cutting."""
MOST_COLUMNS = 4096
"""Of rows that stay in a block's registers."""


def fuse_rows(graph: Graph, target: Target) -> Graph:
    """Fuse kernels that reduce a small contraction's rows into the contraction's kernel."""
    if not target.kind.reduces_products:
        return graph
    reason = "it adds the parts of what a contraction makes"
    return fuse_after(graph, "fuse_rows", _long, _rows, reason)


def _long(node: KernelNode) -> bool:
    """Return whether a kernel has a contraction whose sums are worth splitting."""
    products = [n for n in node.body.nodes if n.op.contracts]
    worth = (node_flops(n) >= 2 * LEAST_SUMMED * n.output.type.size for n in products)
    return node.op.template == "contract" and any(worth)


def _rows(node: KernelNode) -> list[Value]:
    """Return the values whose rows the kernel reduces; none if it does anything else."""
    if node.op.template != "reduce":
        return []
    found = [n for n in node.body.nodes if n.op.reduced_axes is not None]
    shape = found[0].inputs[0].type.shape
    last = (len(shape) - 1,)
    if any(n.op.reduced_axes != last for n in found) or shape[-1] > MOST_COLUMNS:
        return []
    return [v for v in node.inputs if v.type.shape == shape and _runs(v)]


def _runs(value: Value) -> bool:
    """Return whether a value is float32, of such a size, with rows of whole runs."""
    kind = value.type
    few = LEAST_BYTES <= kind.nbytes <= MOST_BYTES
    whole = kind.rank > 1 and kind.shape[-1] * kind.numpy_dtype.itemsize % RUN == 0
    return kind.dtype == "f32" and kind.layout == ROW_MAJOR and few and whole
