"""Lower gradients of gathers, and scatters: schedules of their nest."""

from __future__ import annotations

from graphc.base.target import Target
from graphc.kernels.cpu.shared.kernel_source import (
    array_text,
    chunk_count,
    entry,
    make_kernel,
    pointer_lines,
    share,
)
from graphc.kernels.cpu.shared.loop_printer import WrittenLoops
from graphc.kernels.loops.index_nest import IndexNest, index_nest
from graphc.kernels.loops.language import Nest
from graphc.kernels.loops.places import inward, shared_out, together
from graphc.kernels.program.kernel import Kernel
from graphc.ops.fused import KernelNode
from graphc.ops.indexing import TakeGrad
from graphc.ops.scatter import Scatter

STRIP = 64
"""Neighbours that are processed together."""


def lower_index(node: KernelNode, target: Target) -> Kernel:
    """The kernel of a body with one take_grad: each chunk owns rows of the table and scans all
    indices, so that nothing is shared and the order never changes."""
    part = index_nest(node, TakeGrad)
    a, (j,), _, b = part.letters
    nest = shared_out(together(inward(part.nest, b), a, "serial"), j)
    indices, dy = (value.type for value in part.node.inputs)
    nanoseconds = part.node.output.type.nbytes / 20 + dy.nbytes / 10 + indices.size
    return _kernel(node, part, nest, nanoseconds, dy.size)


def lower_scatter(node: KernelNode, target: Target) -> Kernel:
    """The kernel of a body with one scatter: each chunk owns strips of neighbours behind the axis,
    copies what was there, unless it lies in place, and goes through the indices in order."""
    part = index_nest(node, Scatter)
    a, _, _, b = part.letters
    nest = together(inward(part.nest, b), (*a, *b), "chunk", STRIP)
    x, indices, _ = (value.type for value in part.node.inputs)
    return _kernel(node, part, nest, x.size + 2.0 * indices.size, indices.size)


def _kernel(
    node: KernelNode, part: IndexNest, nest: Nest, nanoseconds: float, flops: int
) -> Kernel:
    """The kernel of a scheduled nest."""
    loops = WrittenLoops(nest)
    units = loops.units
    chunks = chunk_count(nanoseconds, units)
    lines = [
        *pointer_lines(node, part.program, part.pointers),
        f"const long begin = {share(units, chunks).replace(', ', ', end = ')};",
        *loops.lines(),
    ]
    sections = [array_text(part.program.arrays), entry(node, lines)]
    return make_kernel(node, sections, (chunks,), flops=flops, inplace=part.inplace)
