"""Lower scatter to scatter.cuh."""

from __future__ import annotations

import math

from graphc.kernels.cuda.index.index_text import FunctorText, split_axes
from graphc.kernels.cuda.shared.kernel_source import FEW_THREADS, Launches
from graphc.kernels.program.axis import JOINS, only_node, overwritten
from graphc.kernels.program.body.names import Identifiers
from graphc.kernels.program.counts import check_counts
from graphc.kernels.program.kernel import Kernel
from graphc.ops.fused import KernelNode
from graphc.ops.scatter import Scatter


def lower_scatter(node: KernelNode) -> Kernel:
    """The kernel of a body with one scatter; every value is row-major."""
    inner, op = only_node(node, Scatter)
    (x, indices, elements), output = inner.inputs, inner.output
    body = node.body
    behind = math.prod(x.type.shape[op.axis + 1 :])
    extent, count = x.type.shape[op.axis], indices.type.shape[op.axis]
    rows, warps = x.type.size // extent, behind < 32
    before = rows // behind
    check_counts(node, rows=before, indices=count, elements_per_row=behind, places=extent)
    names = Identifiers()
    pointers = names.pointers(body)
    text = FunctorText(body, pointers, names)
    sizes = f"{rows}, {extent}, {count}, {behind}, {str(warps).lower()}"
    pairs = overwritten(node, inner)
    kept = f"{pointers[x]} == {pointers[output]}" if pairs else "false"
    lines = [f"scatter<{JOINS[op.combine]}, {sizes}>(", f"    {kept}, {pointers[output]},"]
    for value, end in ((x, ","), (indices, ","), (elements, ");")):
        read = text.read(value, split_axes(value, op.axis, 1))
        lines += ["    [&](int before, int i, int after) {", *read, f"    }}{end}"]
    launches = Launches(node, pointers, inplace=pairs)
    launches.add(lines, -(-rows * (32 if warps else 1) // FEW_THREADS), threads=FEW_THREADS)
    return launches.kernel(("index/scatter",), [text.constants])
