"""Lower a fused contraction to the CPU's register-tile template.

`nest.py` describes what is computed and `schedule.py` chooses the tile. Here tiles are ordered and
cut into chunks, the epilogue is printed as a functor, and what a tile cannot finish (sums over
lanes, partial sums) gets a second phase. Contractions that fit no tile, or that sum in one byte,
use a plain loop nest that checks every read.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from graphc.base.target import Target
from graphc.ir.sections import sections_of_sums
from graphc.kernels.cpu.contract.byte_quads import in_quads
from graphc.kernels.cpu.contract.coverage import check_plain, check_tiled
from graphc.kernels.cpu.contract.epilogue import batch_lane, finish_of, tile_epilogue
from graphc.kernels.cpu.contract.kernel_text import plain_loops, plain_text, tiled_text
from graphc.kernels.cpu.contract.schedule import ranked
from graphc.kernels.cpu.contract.shape_text import SUMS
from graphc.kernels.cpu.contract.sum_loops import SumLoops, sum_loops
from graphc.kernels.cpu.contract.tile import FEWEST_CHUNKS
from graphc.kernels.cpu.contract.tile_cost import (
    CHUNK_CYCLES,
    FEW_TILES,
    PANEL_ROWS,
    chunk_target,
)
from graphc.kernels.cpu.contract.tile_schedule import TileSchedule
from graphc.kernels.cpu.convolution.conv_amx import lower_conv_amx
from graphc.kernels.cpu.convolution.conv_amx_gradient import lower_amx_gradient
from graphc.kernels.cpu.convolution.conv_channels import (
    by_channels,
    direct_cycles,
    lower_conv_channels,
)
from graphc.kernels.cpu.convolution.conv_channels_gradient import (
    is_channel_gradient,
    lower_channel_gradient,
)
from graphc.kernels.cpu.convolution.conv_winograd import lower_conv_winograd, winograd
from graphc.kernels.cpu.shared.kernel_source import balanced, make_kernel, symbol
from graphc.kernels.loops.sum_orders import stated_order
from graphc.kernels.program.epilogue import Epilogue, pooling
from graphc.kernels.program.kernel import Kernel
from graphc.kernels.program.nest import Nest, Window, contraction_nest, pooled_nest, sectioned_nest
from graphc.ops.fused import KernelNode
from graphc.ops.pooling import MaxPool2d


def lower_contract(node: KernelNode, target: Target) -> Kernel:
    """The kernel of a fused contraction for the CPU."""
    return next(contract_candidates(node, target))


def contract_candidates(node: KernelNode, target: Target) -> Iterator[Kernel]:
    """Kernels of a fused contraction, the best by the model first."""
    body = node.body
    nest = contraction_nest(body)
    if by_channels(nest):
        yield from _by_channels(node, nest, target)
        return
    if is_channel_gradient(nest):
        if tiles := lower_amx_gradient(node, nest, target):
            yield tiles
        yield lower_channel_gradient(node, nest, target)
        return
    pool, window = pooling(body), None
    if pool is not None:
        assert isinstance(pool.op, MaxPool2d) and pool.op.pools_in_registers
        nest, window = pooled_nest(nest, pool.op)
    elif sections := sections_of_sums(body):
        nest = sectioned_nest(nest, sections)
    lane = batch_lane(body, nest)
    order = sum_loops(nest, stated_order(nest, target))
    schedules: list[TileSchedule] = []
    if quads := in_quads(nest):
        pairs, columns = replace(target, multiplies_pairs=True), quads.kept[-1]
        found = ranked(quads, pairs, columns, _contiguous(nest))
        schedules = [s for s in found if s.roles.pairs and s.roles.x == quads.a]
    elif _has_tiles(nest) and all(axis.extent for axis in nest.axes):
        schedules = ranked(nest, target, lane, _contiguous(nest), order, window)
    for schedule in schedules:
        kernel = _tiled(node, nest, order_loops(schedule, order), target.lanes)
        yield replace(kernel, choice=schedule.choice)
    if not schedules:
        yield _plain(node, nest, target.lanes, lane, window, order)


def _has_tiles(nest: Nest) -> bool:
    """Whether a tile can hold such sums. `matmul_bytes` has tiles of its own (`byte_quads.py`)."""
    return nest.node.output.type.dtype in SUMS and nest.node.op.name != "matmul_bytes"


def _by_channels(node: KernelNode, nest: Nest, target: Target) -> Iterator[Kernel]:
    """Kernels of a convolution with channels in the lanes: by AMX, direct, and by Winograd where
    permitted, the last two ordered by estimated time."""
    if tiles := lower_conv_amx(node, nest, target):
        yield tiles
    fast = winograd(nest, target) if target.transforms_tiles else None
    if fast is None:
        yield lower_conv_channels(node, nest, target)
    elif fast.cycles < direct_cycles(node, nest, target):
        yield lower_conv_winograd(node, nest, fast, target)
        yield lower_conv_channels(node, nest, target)
    else:
        yield lower_conv_channels(node, nest, target)
        yield lower_conv_winograd(node, nest, fast, target)


def _tiled(node: KernelNode, nest: Nest, schedule: TileSchedule, width: int) -> Kernel:
    """The kernel of a tile schedule."""
    body = node.body
    check_tiled(symbol(node), schedule)
    if not schedule.roles.lanes_summed and schedule.parts == 1:
        epilogue = tile_epilogue(body, nest, schedule.roles.lane, width)
        sections = tiled_text(node, schedule, epilogue)
        return _kernel(node, nest, sections, (schedule.chunks,), 0, epilogue)
    if schedule.parts == 1 and body.outputs == nest.node.outputs:
        return _kernel(node, nest, tiled_text(node, schedule), (schedule.chunks,))
    finish = finish_of(body, nest, schedule.parts, width)
    sections = tiled_text(node, schedule, finish=finish)
    workspace = schedule.parts * nest.node.output.type.nbytes
    phases = (schedule.chunks, finish.chunks)
    return _kernel(node, nest, sections, phases, workspace, finish.epilogue)


def _plain(
    node: KernelNode,
    nest: Nest,
    width: int,
    lane: int | None,
    window: Window | None,
    order: SumLoops | None,
) -> Kernel:
    """The kernel of a plain loop nest, which adds as `order` says."""
    spanned = {nest.sections, *(axis for axis, _ in window or ())}
    if lane is None:
        lane = _contiguous(nest)
    if lane is None or lane in spanned:
        lane = next(a for a in reversed(nest.kept) if a not in spanned)
    epilogue = tile_epilogue(node.body, nest, lane, width)
    loops = plain_loops(nest, lane, width, window)
    check_plain(symbol(node), nest, loops, lane, epilogue.domain)
    registers = math.prod(count for _, count, _ in loops)
    chunks = max(1, min(registers, nest.flops // (4 * CHUNK_CYCLES)))
    sections = plain_text(node, nest, lane, width, window, chunks, epilogue, order)
    kernel = _kernel(node, nest, sections, (chunks,), 0, epilogue)
    dtype = nest.node.output.type.dtype
    why = "no tile suits it" if dtype in SUMS else f"there are no tiles for sums of {dtype}"
    return replace(kernel, note=f"plain loop: {why}")


def _kernel(
    node: KernelNode,
    nest: Nest,
    sections: list[str],
    phases: tuple[int, ...],
    workspace: int = 0,
    epilogue: Epilogue | None = None,
) -> Kernel:
    inplace = epilogue.inplace if epilogue else ()
    return make_kernel(node, sections, phases, workspace, nest.flops, inplace)


def order_loops(schedule: TileSchedule, order: SumLoops | None = None) -> TileSchedule:
    """`schedule` with its tiles in a cache-friendly order, cut into chunks, its sums into the parts
    of `order`.

    The innermost loop runs over a group of row tiles whose part of X fits the first-level cache:
    Y's panel is loaded once per group, X's part once per group and pass over Y.
    """
    roles = schedule.roles
    nest, x, y = roles.nest, roles.x, roles.y
    plain = [a for a in nest.kept if a not in roles.spanned and roles.steps(a) > 1]
    shared = [a for a in plain if x.depends_on(a) or not y.depends_on(a) or a == roles.lane]
    only_y = [a for a in plain if a not in shared]
    shared.sort(key=lambda a: a != roles.lane)

    def loop(axis: int) -> tuple[int | str, int, int]:
        return axis, roles.steps(axis), roles.width if axis == roles.lane else 1

    passes = (schedule.outer.tiles * schedule.outer.size, schedule.columns.tiles)
    inner = tuple(map(roles.steps, only_y[-1:]))
    group = schedule.rows.tiles
    if schedule.outer.tiles * schedule.columns.tiles * math.prod(inner) > 1:
        group = _row_group(schedule, (*passes, schedule.columns.size, *inner))
    loops: list[tuple[int | str, int, int]] = [loop(a) for a in (*shared, *only_y[:-1])]
    loops.append(("rows", -(-schedule.rows.tiles // group), group))
    loops += [loop(a) for a in only_y[-1:]]
    loops.append(("outer", schedule.outer.tiles, 1))
    loops.append(("columns", schedule.columns.tiles, 1))
    loops.append(("rows", group, 1))
    kept = tuple(lo for lo in loops if lo[1] > 1)
    if order is None:
        return _chunked(replace(schedule, loops=kept))
    assert order.followed_by(roles), "tiles add in the order stated"
    return _chunked(replace(schedule, loops=kept, passes=order.passes(roles), parts=order.parts))


def _row_group(schedule: TileSchedule, passes: tuple[int, ...]) -> int:
    """Row tiles whose part of X stays cached while Y streams past: in the first level if the
    streamed operand comes from the second, in the second level if Y does not fit there."""
    roles = schedule.roles
    if kept := schedule.kept_rows:
        return -(-schedule.rows.tiles // -(-schedule.rows.tiles // kept))
    if roles.packed:
        return schedule.rows.tiles
    length = roles.length * math.prod(roles.steps(a) for a in roles.sums)
    streamed = length * math.prod(passes) * (roles.width if roles.lane_stride(roles.y) else 1)
    caches = roles.target.caches
    size = roles.itemsize
    cache = caches.near if size * streamed < 2 * caches.far else caches.far
    lanes = roles.width if roles.lane_stride(roles.x) else 1
    rows = schedule.rows.size * roles.row_sections
    fitting = max(1, cache // (size * rows * length * lanes))
    groups = -(-schedule.rows.tiles // min(fitting, schedule.rows.tiles))
    return -(-schedule.rows.tiles // groups)


def _chunked(schedule: TileSchedule) -> TileSchedule:
    """The schedule with chunks for many threads, each worth its start."""
    tiles = schedule.tiles
    wanted = chunk_target(schedule.cycles)
    if schedule.roles.rows_apart and schedule.kept_rows:  # a chunk copies the rows that it reads
        grain = schedule.outer.tiles * schedule.columns.tiles * schedule.kept_rows
        units = tiles // grain
        return replace(schedule, grain=grain, chunks=balanced(min(wanted, units), units))
    wanted = -(-wanted // schedule.parts)
    grain = 1
    for _, count, _ in reversed(schedule.loops):
        if tiles // (grain * count) < min(2 * wanted, tiles):
            break
        grain *= count
    units = tiles // grain
    per_chunk = max(1, round(units / wanted))
    rows = min(PANEL_ROWS, schedule.rows.tiles)
    if schedule.roles.packed and tiles >= FEWEST_CHUNKS * rows:
        per_chunk = max(per_chunk, -(-rows // grain))  # a chunk packs the panels that it reads
    chunks = balanced(max(1, units // per_chunk), units)
    panels = tiles // schedule.rows.tiles
    if schedule.roles.packed and schedule.rows.tiles <= FEW_TILES and panels < chunks:
        pieces = min(round(chunks / panels), units // panels)
        chunks = panels * max(1, pieces)  # no chunk ends within a panel of another
    return replace(schedule, grain=grain, chunks=chunks * schedule.parts)


def _contiguous(nest: Nest) -> int | None:
    """The kept axis along which output elements are contiguous, if it is long enough."""
    place = nest.output[-1]
    axes = [a for a, c in enumerate(place.coefficients) if c == 1]
    return axes[0] if axes else None
