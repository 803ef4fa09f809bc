"""Lower gradients of gathers, and scatters: schedules of their nest."""

from __future__ import annotations

from dataclasses import replace

from graphc.kernels.cuda.index.segments import lower_segments
from graphc.kernels.cuda.shared.kernel_source import FEW_THREADS, WARP, constant_arrays, index_type
from graphc.kernels.cuda.shared.launches import Launches
from graphc.kernels.cuda.shared.loop_printer import WorkerLoops
from graphc.kernels.loops.index_nest import IndexNest, index_nest
from graphc.kernels.loops.places import accumulated, in_lanes, looked_up, together
from graphc.kernels.program.counts import check_counts
from graphc.kernels.program.kernel import Kernel
from graphc.ops.fused import KernelNode
from graphc.ops.indexing import TakeGrad
from graphc.ops.scatter import Scatter

SCANNED = 1 << 23
"""The most index reads of all warps together for which scanning is faster than sorting."""


def lower_index(node: KernelNode) -> Kernel:
    """The kernel of a fused node with a take_grad; every value is row-major. A warp owns one row of
    the table and 32 neighbours behind it, or many indices are sorted first."""
    part = index_nest(node, TakeGrad)
    before, extent, count, after = part.sizes
    check_counts(node, rows=before, indices=count, elements_per_row=after, places=extent)
    a, j, i, b = part.letters
    nest = together(part.nest, (*a, *j, *b), "warp")
    nest = accumulated(in_lanes(nest, b[-1], WARP), part.output)
    nest = looked_up(nest, i, "serial", WARP, 1)
    loops = WorkerLoops(nest, index_type(node.body))
    if loops.threads // WARP * count > SCANNED:
        return lower_segments(node, part)
    return _kernel(node, part, loops)


def lower_scatter(node: KernelNode) -> Kernel:
    """The kernel of a body with one scatter; every value is row-major. One thread owns a row, or,
    where neighbouring rows are no neighbours in memory, a warp."""
    part = index_nest(node, Scatter)
    before, extent, count, after = part.sizes
    check_counts(node, rows=before * after, indices=count, elements_per_row=after, places=extent)
    a, (j,), i, b = part.letters
    nest = together(part.nest, (*a, *b), "thread" if after >= WARP else "warp")
    if after < WARP:
        for axis in (j, *i):
            nest = in_lanes(nest, axis, WARP)
    kernel = _kernel(node, part, WorkerLoops(nest, index_type(node.body)))
    return replace(kernel, writes_changes=True)


def _kernel(node: KernelNode, part: IndexNest, loops: WorkerLoops) -> Kernel:
    launches = Launches(node, part.pointers, inplace=part.inplace)
    launches.add(loops.lines(), -(-loops.threads // FEW_THREADS), threads=FEW_THREADS)
    return launches.kernel(("index/lookup",), [constant_arrays(part.program)])
