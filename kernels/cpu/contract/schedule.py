"""Choose the register tile of a contraction: axes, sizes and inner loop.

`ranked` enumerates every assignment of axes to the roles of a tile (see tile.py) that the reads
allow, sizes the tiles within the register file, and ranks them by the model of tile_cost.py.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace

from graphc.base.target import Target
from graphc.kernels.cpu.contract.sum_loops import SumLoops
from graphc.kernels.cpu.contract.tile import (
    NO_AXIS,
    STACK_BYTES,
    TILE,
    Cut,
    Roles,
    TileAxis,
)
from graphc.kernels.cpu.contract.tile_cost import TileCost
from graphc.kernels.cpu.contract.tile_schedule import TileSchedule
from graphc.kernels.program.nest import Border, Nest, Window

MOST_WITH_ADDRESSES = 24
"""The most sums of a tile with an address per outer index; beyond, the compiler spills."""

UNROLLED_PRODUCTS = 640
"""The most products in a kernel's text; compile time is proportional to them."""


MOST_CUT = 24
"""The number of tiles whose cuts are computed, best estimates first."""

MOST_RANKED = 6
"""The number of tiles that are worth a measurement."""


def ranked(
    nest: Nest,
    target: Target,
    lane: int | None,
    contiguous: int | None,
    loops: SumLoops | None = None,
    window: Window | None = None,
) -> list[TileSchedule]:
    """The cheapest schedules, the best first; none if no tile fits.

    `lane` is the axis that must lie in the lanes, if any; `contiguous` is the kept axis along which
    the output is contiguous. All add as `loops` do, if there are any. With `window` a tile's
    columns are whole pooling windows.
    """
    a, b = replace(nest.a, offset=0), replace(nest.b, offset=0)
    found = _ranked(replace(nest, a=a, b=b), target, lane, contiguous, loops, window)
    reads = {(a, b): (nest.a, nest.b), (b, a): (nest.b, nest.a)}
    own = [(s, *reads[s.roles.x, s.roles.y]) for s in found]
    return [replace(s, roles=replace(s.roles, nest=nest, x=x, y=y)) for s, x, y in own]


@functools.lru_cache(maxsize=1024)
def _ranked(
    nest: Nest,
    target: Target,
    lane: int | None,
    contiguous: int | None,
    loops: SumLoops | None,
    window: Window | None,
) -> tuple[TileSchedule, ...]:
    """The cached schedules of all equal nests: layers and steps repeat."""
    guesses: list[tuple[float, int, Roles, tuple[int, int, int]]] = []
    for roles in _with_amx(_candidates(nest, target, lane, loops, window)):
        if roles.allowed():
            model = TileCost(roles, contiguous)
            for sizes in _sizes(roles):
                guesses.append((model.total(sizes), len(guesses), roles, sizes))
    guesses.sort(key=lambda g: g[:2])
    cut: list[TileSchedule] = []
    for guess, _, roles, sizes in guesses:
        # A guess leaves out what only the cut tile shows, which at most halves it.
        if cut and (len(cut) >= MOST_CUT or guess > 2 * min(s.cycles for s in cut)):
            break
        schedule = _cut(roles, *sizes)
        if schedule is not None:
            cut.append(replace(schedule, cycles=guess * _refined(schedule)))
    return tuple(sorted(cut, key=lambda s: s.cycles)[:MOST_RANKED])


def _candidates(
    nest: Nest,
    target: Target,
    forced: int | None,
    loops: SumLoops | None,
    window: Window | None,
) -> Iterator[Roles]:
    """All assignments of axes to roles that the reads may allow and that add as `loops` do."""
    sections = nest.sections
    kept = [a for a in nest.kept if (nest.axes[a].extent > 1 or a == forced) and a != sections]
    lanes = [a for a in range(len(nest.axes)) if a != sections] if forced is None else [forced]
    summed = [a for a in nest.summed if nest.axes[a].extent != 1]
    inner_choices: list[int | None] = [*summed] or [None]
    if loops is not None:
        lanes = [a for a in lanes if nest.axes[a].kept] if loops.lane is None else [loops.lane]
        inner_choices = [loops.inner]
    for x, y in ((nest.a, nest.b), (nest.b, nest.a)):
        for lane in lanes:
            if any(place.coefficients[lane] > 1 for place in nest.output):
                continue  # groups lie apart in the output: its lanes would not be neighbours
            rows = [a for a in kept if x.depends_on(a) and not y.depends_on(a) and a != lane]
            columns = [a for a in kept if y.depends_on(a) and not x.depends_on(a) and a != lane]
            if nest.axes[lane].kept:
                columns.append(lane)
            pairs: list[tuple[int | None, int | None]] = [(None, None)]
            pairs += [(None, c) for c in columns]
            pairs += [(a, b) for a, b in itertools.permutations(columns, 2)]
            if window:
                pairs = [(window[0][0], window[1][0])]
            elif sections is not None and y.depends_on(sections):
                pairs = [(sections, a) for a in (None, *columns)]
            for row, (outer, column), inner in itertools.product(
                [*rows, None], pairs, inner_choices
            ):
                roles = Roles(nest, x, y, target, lane, row, outer, column, inner, window)
                if loops is None:
                    yield roles
                elif loops.followed_by(roles):
                    yield replace(roles, sets=loops.sets(roles))


def _with_amx(candidates: Iterator[Roles]) -> Iterator[Roles]:
    """The candidates, each followed by its variant with AMX tile registers where it has one."""
    for roles in candidates:
        yield roles
        if roles.fits_amx:
            yield replace(roles, amx=True)


def _sizes(roles: Roles) -> Iterator[tuple[int, int, int]]:
    """(rows, outer, columns) of tiles that fit the register file."""
    registers = roles.target.registers
    panel_bytes = min(roles.target.caches.far, STACK_BYTES)
    if roles.amx:
        yield from _amx_sizes(roles, panel_bytes)
        return
    sections = roles.row_sections
    row_sizes = _axis_sizes(roles, roles.rows, (registers - 2) // sections)
    outer_sizes = _axis_sizes(roles, roles.outer, 4)
    if roles.outer is not None and roles.outer == roles.nest.sections:
        outer_sizes = [roles.nest.section_count]
    elif roles.outer not in (None, roles.lane) and not roles.window:
        outer_sizes = [size for size in outer_sizes if size > 1]
    column_sizes = _axis_sizes(roles, roles.columns, registers // 2)
    operands, limit = _operands(roles), registers
    if roles.window or roles.moving:
        limit = min(limit, MOST_WITH_ADDRESSES)
    for rows, outer, columns in itertools.product(row_sizes, outer_sizes, column_sizes):
        nv = outer * columns
        if roles.packed and roles.itemsize * roles.length * nv * roles.width > panel_bytes:
            continue
        mr = rows * sections
        sums = mr * nv * roles.registers * roles.sets
        if sums > limit or sums + operands(mr, nv) > registers:
            continue
        if roles.window and (outer != roles.window[0][1] or columns % roles.window[1][1]):
            continue
        yield rows, outer, columns


def _operands(roles: Roles) -> Callable[[int, int], int]:
    """Registers for operands of so many rows and columns: the operand with fewer registers is held,
    of the other one.

    Where columns are held, a compiler keeps two rows at a time: without a register for the second
    it spills a sum (4 x 3 registers on AVX2, g++ 12: 1.4 times the time of 6 x 2)."""
    x = roles.registers if roles.lane_stride(roles.x) else 1
    y = roles.registers
    more = 2 if roles.lane_stride(roles.y) == 2 else 0  # registers to pick from, and by
    more += 0 if roles.fuses_products else 1
    return lambda mr, nv: (mr * x + y if mr <= nv else 2 * x + nv * y) + more


def _amx_sizes(roles: Roles, panel_bytes: int) -> Iterator[tuple[int, int, int]]:
    """Sizes whose sums fit four AMX tile registers, at most two of them one below the other."""
    extent = 0 if roles.rows is None else roles.steps(roles.rows)
    row_sizes = sorted({min(extent, n * TILE // roles.row_sections) for n in (1, 2)})
    together = roles.outer is not None and roles.outer == roles.nest.sections
    outer_sizes = [roles.nest.section_count] if together else _axis_sizes(roles, roles.outer, 4)
    column_sizes = _axis_sizes(roles, roles.columns, 4)
    steps = -(-roles.length // TILE) * TILE
    for rows, outer, columns in itertools.product(row_sizes, outer_sizes, column_sizes):
        registers = -(-rows * roles.row_sections // TILE) * outer * columns
        panel = 4 * steps * outer * columns * roles.width if roles.packed else 0
        if rows and registers <= 4 and panel <= panel_bytes:
            yield rows, outer, columns


def _axis_sizes(roles: Roles, axis: int | None, most: int) -> list[int]:
    """Sizes along `axis` worth trying: those that leave a smaller remainder than all smaller
    ones."""
    if axis is None:
        return [1]
    extent = roles.steps(axis)
    if axis == roles.lane and roles.lane_stride(roles.x) != 0:
        most = 1
    sizes = range(1, min(extent, most) + 1)
    return [s for s in sizes if -(-extent // -(-extent // s)) == s or extent % s <= extent // 8]


def _refined(schedule: TileSchedule) -> float:
    """The estimated factor on the cycles from skipped borders and from text size."""
    roles, columns = schedule.roles, schedule.columns
    live = sum(_live_share(roles, c) * c.tiles * c.size for c in columns.cuts)
    share = live / sum(c.tiles * c.size for c in columns.cuts)
    return (0.3 + 0.7 * share) * (1 + 0.0004 * schedule.products)


def _cut(roles: Roles, rows: int, outer: int, columns: int) -> TileSchedule | None:
    """The schedule of a tile of these sizes; None if no inner loop fits."""
    row_axis = _tile_axis(roles, roles.rows, rows)
    outer_axis = _tile_axis(roles, roles.outer, outer)
    column_axis = _tile_axis(roles, roles.columns, columns)
    if outer_axis is None or column_axis is None or row_axis is None:
        return None
    steps = _inner_steps(roles, outer_axis, column_axis)
    if steps is None:
        return None
    head, main, unroll = steps
    schedule = TileSchedule(roles, row_axis, outer_axis, column_axis, head, main, unroll)
    return schedule if schedule.products <= UNROLLED_PRODUCTS else None


def _tile_axis(roles: Roles, axis: int | None, size: int) -> TileAxis | None:
    """The cuts of `axis` into tiles of `size`, with equal neighbours merged."""
    if axis is None:
        return NO_AXIS
    extent = roles.steps(axis)
    step = roles.width if axis == roles.lane else 1
    for quotient in roles.y.quotients:
        if quotient.border.coefficients[axis] * size * step % quotient.border.divisor:
            if size < extent:
                return None
    if not any(axis in b.axes for b in roles.static_borders) and not roles.lane_tail:
        return TileAxis(axis, step, _plain_cuts(extent, size, step))
    sizes = [size] * (extent // size) + ([extent % size] if extent % size else [])
    cuts: list[Cut] = []
    before = None
    for i, count in enumerate(sizes):
        pattern = _pattern(roles, axis, i * size, count)
        if pattern == before:
            cuts[-1] = replace(cuts[-1], tiles=cuts[-1].tiles + 1)
        else:
            cuts.append(Cut(i * size * step, 1, count))
        before = pattern
        if len(cuts) > 6:
            return None
    return TileAxis(axis, step, tuple(cuts))


def _plain_cuts(extent: int, size: int, step: int) -> tuple[Cut, ...]:
    """The cuts of an axis along which all tiles of a size are alike."""
    whole, rest = divmod(extent, size)
    cuts = [Cut(0, whole, size)] if whole else []
    return tuple([*cuts, Cut(whole * size * step, 1, rest)] if rest else cuts)


def _pattern(roles: Roles, axis: int, first: int, count: int) -> object:
    """Which elements of Y exist in a tile of `count` units of `axis` from unit `first` on."""
    borders = tuple(b for b in roles.static_borders if axis in b.axes)
    tail = roles.lane_tail and axis == roles.lane
    if not borders and not tail:
        return count
    step = roles.width if axis == roles.lane else 1
    lanes = roles.width if tail or any(roles.lane in b.axes for b in borders) else 1
    inner = roles.length if any(roles.inner in b.axes for b in borders) else 1
    if _all_inside(roles, borders, axis, (first, count), inner, lanes):
        return count
    return tuple(
        _exists(roles, borders, axis, (first + unit) * step, t, lane)
        for unit in range(count)
        for t in range(inner)
        for lane in range(lanes)
    )


def _all_inside(
    roles: Roles,
    borders: tuple[Border, ...],
    axis: int,
    units: tuple[int, int],
    inner: int,
    lanes: int,
) -> bool:
    """Whether all reads of a tile of (first, count) `units` exist, judged by its corners."""
    (first, count), step = units, roles.width if axis == roles.lane else 1
    low = {axis: first * step}
    high = {axis: (first + count - 1) * step, **roles.inner_index(inner - 1)}
    high[roles.lane] = high.get(roles.lane, 0) + lanes - 1
    if roles.lane_tail and high[roles.lane] >= roles.nest.axes[roles.lane].extent:
        return False
    for border in borders:
        factors = border.coefficients
        ends = [(factors[a] * low.get(a, 0), factors[a] * high[a]) for a in border.axes]
        least = border.offset + sum(min(pair) for pair in ends)
        most = border.offset + sum(max(pair) for pair in ends)
        if border.divisor != 1 or least < 0 or most >= border.extent:
            return False
    return True


def _exists(
    roles: Roles, borders: tuple[Border, ...], axis: int, at: int, t: int, lane: int
) -> bool:
    """Whether a read inside `borders` exists at these indices."""
    index = {axis: at, **roles.inner_index(t)}
    index[roles.lane] = index.get(roles.lane, 0) + lane
    return roles.inside(borders, index)


def _inner_steps(roles: Roles, outer: TileAxis, columns: TileAxis) -> tuple[int, int, int] | None:
    """(head, main, unroll): the steps from head to main meet no border."""
    length = roles.length
    if length == 0 or roles.amx:
        return 0, 0, 1
    low, high = _interior(roles, outer, columns)
    high = min(high, length - (0 if roles.ends_whole else 1))
    unroll = max(4 if length >= 32 else 2, roles.sets)
    blocked = any(r.lanes == roles.inner != roles.lane for r in (roles.x, roles.y))
    blocked = blocked and roles.inner is not None
    main = low + (high - low) // unroll * unroll
    if roles.moving:
        return (length, length, 1) if length <= 28 else None
    if length <= 8 or main - low < 2 * unroll:
        return (length, length, 1) if length <= 40 else None
    if blocked and low % unroll:
        return None
    return low, main, unroll


def _interior(roles: Roles, outer: TileAxis, columns: TileAxis) -> tuple[int, int]:
    """The longest range of inner steps in which no tile meets a border."""
    borders = tuple(b for b in roles.static_borders if roles.inner in b.axes)
    tail = roles.lane_tail and roles.lane == roles.inner
    if any(roles.inner in q.border.axes for q in roles.y.quotients):
        return 0, 0
    if not borders:
        return 0, roles.length - (1 if tail else 0)
    corners: dict[int, list[int]] = {}
    for tile in (outer, columns):
        if tile.axis is not None:
            last = roles.nest.axes[tile.axis].extent - 1
            corners[tile.axis] = [0, last]
    live = [_everywhere(roles, borders, corners, t) for t in range(roles.length)]
    best = (0, 0)
    start = 0
    for t in range(roles.length + 1):
        if t == roles.length or not live[t]:
            if t - start > best[1] - best[0]:
                best = (start, t)
            start = t + 1
    return best


def _everywhere(
    roles: Roles, borders: tuple[Border, ...], corners: dict[int, list[int]], t: int
) -> bool:
    """Whether step t is inside the borders at every corner of the tile and in every lane."""
    inner = roles.inner_index(t)
    for at in itertools.product(*corners.values()):
        for lane in (0, roles.width - 1) if roles.lane == roles.inner else (0,):
            index = {**dict(zip(corners, at, strict=True)), **inner}
            index.setdefault(roles.lane, 0)
            index[roles.lane] += lane
            if not roles.inside(borders, index):
                return False
    return True


def _live_share(roles: Roles, cut: Cut) -> float:
    """The fraction of a tile's products that are inside the borders along the column axis."""
    axis = roles.columns
    borders = tuple(b for b in roles.static_borders if axis in b.axes)
    if axis is None or not borders or roles.lane in {a for b in borders for a in b.axes}:
        return 1.0
    live = [
        _exists(roles, borders, axis, cut.start + unit, t, 0)
        for unit in range(cut.size)
        for t in range(roles.length)
    ]
    return sum(live) / len(live)
