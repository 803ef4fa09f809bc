"""Lower the gradient of a gather to index.cuh: a body of one take_grad."""

from __future__ import annotations

import math

from graphc.kernels.cuda.index.index_text import FunctorText, split_axes
from graphc.kernels.cuda.index.segments import lower_segments
from graphc.kernels.cuda.shared.kernel_source import FEW_THREADS, Launches
from graphc.kernels.program.axis import only_node
from graphc.kernels.program.body.names import Identifiers
from graphc.kernels.program.counts import check_counts
from graphc.kernels.program.kernel import Kernel
from graphc.ops.fused import KernelNode
from graphc.ops.indexing import TakeGrad
from graphc.ops.pointwise.logic import C_TYPES

SCANNED = 1 << 23
"""The most index reads of all warps together for which scanning is faster than sorting."""


def lower_index(node: KernelNode) -> Kernel:
    """The kernel of a fused node with a take_grad; every value is row-major."""
    (gather, op), body = only_node(node, TakeGrad), node.body
    (indices, dy), table = gather.inputs, gather.output
    axis = op.axis
    before, after = math.prod(table.type.shape[:axis]), math.prod(table.type.shape[axis + 1 :])
    count, extent = indices.type.size, table.type.shape[axis]
    check_counts(node, rows=before, indices=count, elements_per_row=after, places=extent)
    warps = before * extent * -(-after // 32)
    if warps * count > SCANNED:
        return lower_segments(node, gather, axis)
    names = Identifiers()
    text = FunctorText(body, names.pointers(body), names)
    kind = C_TYPES[dy.type.dtype]
    sizes = f"{kind}, {before}, {count}, {after}, {extent}"
    lines = [
        f"take_grad<{sizes}>(",
        "    [&](int i) {",
        *text.read(indices, {"i": indices.type.shape}),
        "    },",
        "    [&](int before, int i, int after) {",
        *text.read(dy, split_axes(dy, axis, indices.type.rank)),
        "    },",
        f"    [&](int before, int i, int after, {kind} sum) {{",
        *text.write(table, split_axes(table, axis, 1)),
        "    });",
    ]
    launches = Launches(node, text.pointers)
    launches.add(lines, -(-warps // (FEW_THREADS // 32)), threads=FEW_THREADS)
    return launches.kernel(("index/index",), [text.constants])
