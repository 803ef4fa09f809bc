"""Scattered elements for scatter.cuh."""

from __future__ import annotations

import math

from graphc.kernels.cuda.index import Text, split_axes
from graphc.kernels.cuda.shell import (
    FEW_THREADS,
    Signature,
    kernel_text,
    make_kernel,
    source,
    symbol_of,
)
from graphc.kernels.program.axis import JOINS, only_node
from graphc.kernels.program.counts import check_counts
from graphc.kernels.program.kernel import GridLaunch, Kernel
from graphc.kernels.program.names import Names
from graphc.ops.fused import KernelNode
from graphc.ops.scatter import Scatter


def lower_scatter(node: KernelNode) -> Kernel:
    """The kernel of a body of one scatter; every value is row-major."""
    inner, op = only_node(node, Scatter)
    (x, indices, elements), output, body = inner.inputs, inner.output, node.body
    if x.type.size == 0:
        return make_kernel(node, source(node, (), ()), ())
    behind = math.prod(x.type.shape[op.axis + 1 :])
    extent, count = x.type.shape[op.axis], indices.type.shape[op.axis]
    rows, warps = x.type.size // extent, behind < 32
    before = rows // behind
    check_counts(node, rows=before, indices=count, elements_per_row=behind, places=extent)
    names = Names()
    pointers = names.pointers(body)
    text = Text(body, pointers, names)
    sizes = f"{rows}, {extent}, {count}, {behind}, {str(warps).lower()}"
    lines = [f"scatter<{JOINS[op.combine]}, {sizes}>(", f"    {pointers[output]},"]
    for value, end in ((x, ","), (indices, ","), (elements, ");")):
        read = text.read(value, split_axes(value, op.axis, 1))
        lines += ["    [&](int before, int i, int after) {", *read, f"    }}{end}"]
    symbol = symbol_of(node)
    signature = Signature(pointers, body)
    blocks = -(-rows * (32 if warps else 1) // FEW_THREADS)
    sections = [text.constants, kernel_text(symbol, signature, FEW_THREADS, lines)]
    launch = GridLaunch(symbol, (blocks, 1, 1), (FEW_THREADS, 1, 1))
    return make_kernel(node, source(node, ("scatter",), sections), [launch])
