"""Lower running results along an axis."""

from __future__ import annotations

from graphc.base.target import Target
from graphc.kernels.cpu.shared.kernel_source import (
    FEW_STEPS,
    argument_order,
    array_text,
    chunk_count,
    entry,
    make_kernel,
    pointer_lines,
    program_cost,
    share,
)
from graphc.kernels.cpu.shared.loop_printer import along_lines, rows_text
from graphc.kernels.loops.along import along_loops
from graphc.kernels.loops.language import Nest
from graphc.kernels.loops.plain import plain_nest
from graphc.kernels.loops.rewrites import along_last, bind, in_order
from graphc.kernels.loops.verify import verify_nest
from graphc.kernels.program.access import Domain
from graphc.kernels.program.axis import AxisNest, make_axis_nest, only_node
from graphc.kernels.program.body.literals import splat
from graphc.kernels.program.counts import check_counts
from graphc.kernels.program.inplace import inplace_pairs
from graphc.kernels.program.kernel import Kernel
from graphc.kernels.program.running_state import STATE, StateTypes, state_struct
from graphc.ops.combine import Combine
from graphc.ops.fused import KernelNode
from graphc.ops.pointwise.logic import C_TYPES
from graphc.ops.prefix import BLOCK, Prefix

STRIPS = (16, 8, 4)
"""Registers of neighbouring rows that a sweep may process together, the most first."""
ENOUGH_STRIPS = 16
"""The number of strips from which pieces are no chunks: chunks combine elements twice."""
_LANE_BYTES = 12
"""The most bytes of a state per lane: a double and an index."""


def lower_prefix(node: KernelNode, target: Target) -> Kernel:
    """The kernel of a body with one running result of row-major inputs, read through views."""
    inner, op = only_node(node, Prefix)
    x = inner.inputs[0]
    if op.combine.picks:
        check_counts(node, elements_per_row=x.type.shape[op.axis])
    last = x.type.rank - 1  # in the lanes, whatever the extents: the order is that of the op
    space = make_axis_nest(node, inner, Domain(x.type.shape, last, target.lanes))
    strip = _strip(space)
    steps = space.domain.steps(space.axis)
    strips = space.strips(strip)
    per_strip = (program_cost(space.program, target.lanes) + _joins(op, space)) * steps * strip
    wanted = chunk_count(per_strip * strips, strips * max(steps // FEW_STEPS, 1))
    pieces = op.pieces(x.type.shape)  # each is a chunk, or all are one
    cut = pieces > 1 and strips < ENOUGH_STRIPS and wanted >= 2 * strips
    chunks = strips * pieces if cut else min(wanted, strips)
    nest = schedule(space, strip, pieces)
    verify_nest(nest)
    state_bytes = _LANE_BYTES * target.lanes
    return make_kernel(
        node,
        [
            array_text(space.program.arrays),
            rows_text(nest),
            state_text(op.combine, x.type.dtype),
            _shell(node, op, space, nest, cut, chunks),
        ],
        (chunks,) * (2 if cut else 1),
        strips * strip * pieces * state_bytes if cut else 0,
        x.type.size,
        inplace_pairs(node.body, [space.program], space.pointers),
    )


def schedule(space: AxisNest, strip: int = 1, pieces: int = 1) -> Nest:
    """Chunks of strips of `strip` registers of rows; an axis in the lanes is joined in blocks."""
    by = BLOCK if space.in_lanes else 1
    return in_order(along_last(bind(plain_nest(space), "chunk"), each=strip), by, pieces)


def _strip(space: AxisNest) -> int:
    """Registers of neighbouring rows that a sweep processes together, for long runs of memory while
    enough strips remain."""
    if space.in_lanes or any(a.lane_stride not in (0, 1) for a in space.program.accesses):
        return 1
    registers = space.domain.steps(space.kept[-1])
    enough = (s for s in STRIPS if space.strips(s) >= ENOUGH_STRIPS)
    return next(enough, min(STRIPS[-1], registers))


def _joins(op: Prefix, space: AxisNest) -> float:
    """Nanoseconds to combine states per register; in the lanes a register combines with copies of
    itself."""
    return op.combine.nanoseconds * (5 if space.in_lanes else 1)


def state_text(combine: Combine, dtype: str) -> str:
    """The struct of a register's states."""
    kind = f"vec<{C_TYPES[dtype]}>"
    types = StateTypes(kind, "vec<int32_t>", "INLINE", lambda number: splat(number, dtype))
    return "".join(f"{line}\n" for line in state_struct(combine, types, dtype))


def _shell(
    node: KernelNode, op: Prefix, space: AxisNest, nest: Nest, cut: bool, chunks: int
) -> str:
    loops = along_loops(nest)
    strip, pieces = loops.rows.each, loops.along.pieces
    if cut:
        span, piece = f"chunk / {pieces}, chunk / {pieces} + 1", f"chunk % {pieces}"
        workspace = f"(char*)arguments[{len(argument_order(node))}]"
    else:
        span, piece, workspace = share(space.strips(strip), chunks), "0", "nullptr"
    flags = [str(flag).lower() for flag in (op.reverse, cut)]
    settings = f"Kept, {STATE}, {flags[0]}, {space.extent}, {strip}, {pieces}, {flags[1]}"
    lines = [
        *pointer_lines(node, space.program, space.pointers),
        f"prefix<{settings}>({span}, phase, {piece}, {workspace},",
        *along_lines(nest, STATE),
    ]
    return entry(node, lines, "phase")
