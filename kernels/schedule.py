"""Which register tile computes a contraction: the choice of axes, sizes and loops.

A tile is rows x columns of registers, accumulated over all summed axes. One operand, X, is stepped
through by the rows alone, the other, Y, by the columns alone, so that MR + NV loads feed MR * NV
products. The lane axis is either kept (a register is part of the output, X is mostly a broadcast)
or summed (both operands are registers). `choose` walks every assignment of the axes to these roles
that the reads allow, sizes them within the register file, and takes the cheapest by a small model
of the machine: two fused multiply-adds and two loads per cycle, four cycles of latency.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

from graphc.kernels.nest import Border, Nest, Read

REGISTERS = {16: 32, 8: 16, 4: 32}
"""Vector registers of the machine by floats per register: AVX-512, AVX2, NEON."""

UNROLLED_PRODUCTS = 1500
"""Products that a kernel's text may hold; compile time is proportional to it."""


@dataclass(frozen=True)
class Cut:
    """`tiles` tiles of `size` rows or registers, the first at logical index `start`."""

    start: int
    tiles: int
    size: int


@dataclass(frozen=True)
class TileAxis:
    """A kept axis that a tile spans: `step` logical indices per row or register. `axis` is None
    where the tile spans nothing in this direction."""

    axis: int | None
    step: int
    cuts: tuple[Cut, ...]

    @property
    def tiles(self) -> int:
        return sum(c.tiles for c in self.cuts)

    @property
    def size(self) -> int:
        return self.cuts[0].size


NO_AXIS = TileAxis(None, 1, (Cut(0, 1, 1),))


@dataclass(frozen=True)
class Roles:
    """What each axis is for. `inner` are the summed axes of the innermost loop (the second varies
    fastest); the lane axis stands for its blocks of `width` there."""

    nest: Nest
    x: Read
    y: Read
    width: int
    lane: int
    rows: int | None
    outer: int | None
    columns: int | None
    inner: tuple[int, ...]

    @cached_property
    def lanes_summed(self) -> bool:
        return not self.nest.axes[self.lane].kept

    def lane_stride(self, read: Read) -> int:
        """Elements from one lane to the next: 0 is a broadcast."""
        return 1 if read.lanes == self.lane else read.strides[self.lane]

    def steps(self, axis: int) -> int:
        """Iterations over `axis`: blocks of lanes for the lane axis."""
        extent = self.nest.axes[axis].extent
        return -(-extent // self.width) if axis == self.lane else extent

    @cached_property
    def length(self) -> int:
        """Steps of the innermost loop."""
        return math.prod(self.steps(a) for a in self.inner)

    @cached_property
    def sums(self) -> tuple[int, ...]:
        """The summed axes around the innermost loop, from the outermost."""
        return tuple(
            a for a in self.nest.summed if a not in self.inner and self.nest.axes[a].extent != 1
        )

    @cached_property
    def static(self) -> frozenset[int]:
        """Axes whose position is known when the kernel is compiled, up to a tile's start."""
        tile = {self.outer, self.columns} - {None}
        return frozenset({self.lane, *self.inner, *tile})  # type: ignore[arg-type]

    @cached_property
    def lane_tail(self) -> bool:
        """Whether reads must stop at the lane axis's last element."""
        partial = self.nest.axes[self.lane].extent % self.width != 0
        return partial and any(
            self.lane_stride(r) != 0 and r.lanes != self.lane for r in (self.x, self.y)
        )

    @cached_property
    def static_borders(self) -> tuple[Border, ...]:
        return tuple(b for b in self.y.borders if b.axes & self.static)

    def inside(self, borders: tuple[Border, ...], index: dict[int, int]) -> bool:
        """Whether a read exists at logical indices `index`, as far as `borders` say."""
        for border in borders:
            value = border.offset + sum(border.coefficients[a] * index[a] for a in border.axes)
            if value % border.divisor or not 0 <= value // border.divisor < border.extent:
                return False
        return not self.lane_tail or index[self.lane] < self.nest.axes[self.lane].extent

    def inner_index(self, t: int) -> dict[int, int]:
        """The logical indices of the inner axes in step t."""
        index = {}
        for axis in reversed(self.inner):
            t, digit = divmod(t, self.steps(axis))
            index[axis] = digit * (self.width if axis == self.lane else 1)
        return index

    def allowed(self) -> bool:
        """Whether the reads fit the template."""
        return self._tile_axes_allowed() and self._lanes_allowed() and self._borders_allowed()

    def _tile_axes_allowed(self) -> bool:
        if self.rows is not None and not (
            self.x.depends_on(self.rows) and not self.y.depends_on(self.rows)
        ):
            return False
        for axis in (self.outer, self.columns):
            if axis is not None and axis != self.lane:
                if self.x.depends_on(axis) or not self.y.depends_on(axis):
                    return False
        return True

    def _lanes_allowed(self) -> bool:
        x, y = self.lane_stride(self.x), self.lane_stride(self.y)
        if y == 0 or (self.lanes_summed and x == 0):
            return False
        for read in (self.x, self.y):
            if read.lanes is not None and read.lanes != self.lane:
                # Blocks of lanes are walked by number: along one summed axis of its own.
                if self.nest.axes[read.lanes].kept:
                    return False
                if read.lanes in self.inner and len(self.inner) > 1:
                    return False
        if self.lanes_summed:
            return not self.lane_tail or self.inner == (self.lane,)
        return not self.lane_tail or self.lane in (self.outer, self.columns)

    def _borders_allowed(self) -> bool:
        tile = {a for a in (self.rows, *self.static) if a is not None}
        if any(b.axes & tile for b in self.x.borders):
            return False
        for border in self.static_borders:
            if not border.axes <= self.static:
                return False
            if self.outer in border.axes and self.columns in border.axes:
                return False
            if self.lane in border.axes and self.lane not in (
                self.outer,
                self.columns,
                *self.inner,
            ):
                return False
        return not any(self.lane in q.border.axes for q in self.y.quotients)


@dataclass(frozen=True)
class Schedule:
    """A tile and the loops around it. The innermost loop runs steps [head, main) `unroll` at a
    time; the others are unrolled away. `loops` are the kept loops from the outermost: an axis (or
    "rows", "outer", "columns"), its iterations, and what one adds to its index."""

    roles: Roles
    rows: TileAxis
    outer: TileAxis
    columns: TileAxis
    head: int
    main: int
    unroll: int
    cycles: float = 0.0
    loops: tuple[tuple[int | str, int, int], ...] = ()
    grain: int = 1
    chunks: int = 1
    parts: int = 1

    @property
    def tiles(self) -> int:
        return math.prod(count for _, count, _ in self.loops)

    @property
    def products(self) -> int:
        """Products in the kernel's text."""
        loop = self.main - self.head
        unrolled = self.roles.length - loop + (self.unroll if loop else 0)
        sizes = (sum(c.size for c in t.cuts) for t in (self.rows, self.outer, self.columns))
        return unrolled * math.prod(sizes)


def choose(nest: Nest, width: int, lane: int | None, contiguous: int | None) -> Schedule | None:
    """The cheapest schedule, or None if the template fits none. `lane` is the axis that must lie
    in the lanes, if one must; `contiguous` the kept axis along which the output is."""
    guesses: list[tuple[float, int, Roles, tuple[int, int, int]]] = []
    for roles in _candidates(nest, width, lane):
        if roles.allowed():
            model = TileCost(roles, contiguous)
            for sizes in _sizes(roles):
                guesses.append((model.total(sizes), len(guesses), roles, sizes))
    guesses.sort(key=lambda g: g[:2])
    best: Schedule | None = None
    tried = 0
    for guess, _, roles, sizes in guesses:
        # A guess leaves out what only the cut tile shows, which at most halves it.
        if best is not None and (tried >= 24 or guess > 2 * best.cycles):
            break
        schedule = _cut(roles, *sizes)
        if schedule is None:
            continue
        tried += 1
        schedule = replace(schedule, cycles=guess * _refined(schedule))
        if best is None or schedule.cycles < best.cycles:
            best = schedule
    return best


def _candidates(nest: Nest, width: int, forced: int | None) -> Iterator[Roles]:
    kept = [a for a in nest.kept if nest.axes[a].extent > 1 or a == forced]
    lanes = range(len(nest.axes)) if forced is None else [forced]
    summed = [a for a in nest.summed if nest.axes[a].extent != 1]
    inner_choices: list[tuple[int, ...]] = [(a,) for a in summed] or [()]
    for x, y in ((nest.a, nest.b), (nest.b, nest.a)):
        for lane in lanes:
            rows = [a for a in kept if x.depends_on(a) and not y.depends_on(a) and a != lane]
            columns = [a for a in kept if y.depends_on(a) and not x.depends_on(a) and a != lane]
            if nest.axes[lane].kept:
                columns.append(lane)
            pairs = [(None, None), *((None, c) for c in columns)]
            pairs += list(itertools.permutations(columns, 2))
            for row, (outer, column), inner in itertools.product(
                [*rows, None], pairs, inner_choices
            ):
                yield Roles(nest, x, y, width, lane, row, outer, column, inner)


def _sizes(roles: Roles) -> Iterator[tuple[int, int, int]]:
    """(rows, outer, columns) of tiles that fit the registers."""
    registers = REGISTERS[roles.width]
    row_sizes = _axis_sizes(roles, roles.rows, registers - 2)
    outer_sizes = _axis_sizes(roles, roles.outer, 4)
    column_sizes = _axis_sizes(roles, roles.columns, registers // 2)
    for rows, outer, columns in itertools.product(row_sizes, outer_sizes, column_sizes):
        nv = outer * columns
        if rows * nv + min(rows, nv) + 1 <= registers:
            yield rows, outer, columns


def _axis_sizes(roles: Roles, axis: int | None, most: int) -> list[int]:
    """Sizes along `axis` worth trying: those that leave a small rest, or none smaller does."""
    if axis is None:
        return [1]
    extent = roles.steps(axis)
    if axis == roles.lane and roles.lane_stride(roles.x) != 0:
        most = 1
    sizes = range(1, min(extent, most) + 1)
    return [s for s in sizes if -(-extent // -(-extent // s)) == s or extent % s <= extent // 8]


class TileCost:
    """Estimated cycles of tiles, by size. Constants are of one core of a 2024 server."""

    def __init__(self, roles: Roles, contiguous: int | None) -> None:
        nest, x, y = roles.nest, roles.x, roles.y
        self.roles = roles
        self.outside = math.prod(roles.steps(a) for a in roles.sums)
        spanned = {roles.rows, roles.outer, roles.columns}
        self.plain = math.prod(roles.steps(a) for a in nest.kept if a not in spanned)
        self.extents = [
            1 if a is None else roles.steps(a) for a in (roles.rows, roles.outer, roles.columns)
        ]
        self.x_load, self.y_load = (
            0.5 if roles.lane_stride(r) in (0, 1) else 1.0 * roles.width for r in (x, y)
        )
        self.x_stride, self.y_stride = (self._inner_stride(r) for r in (x, y))
        self.slides = [
            a is not None and roles.inner and self._stride(y, a) == self.y_stride
            for a in (roles.outer, roles.columns)
        ]
        self.row_stride = 0 if roles.rows is None else self._stride(x, roles.rows)
        scattered = not roles.lanes_summed and contiguous not in (None, roles.lane)
        self.store = 6.0 if roles.lanes_summed else 2.0 + (2 * roles.width if scattered else 0)

    def _stride(self, read: Read, axis: int) -> int:
        if axis == read.lanes:
            return read.block if axis == self.roles.lane else 1
        return abs(read.strides[axis]) * (self.roles.width if axis == self.roles.lane else 1)

    def _inner_stride(self, read: Read) -> int:
        return self._stride(read, self.roles.inner[-1]) if self.roles.inner else 0

    def total(self, sizes: tuple[int, int, int]) -> float:
        """Cycles of all tiles of `sizes` (rows, outer, columns), the partial ones included."""
        choices = []
        for size, extent in zip(sizes, self.extents, strict=True):
            whole, rest = divmod(extent, size)
            choices.append([(size, whole)] + ([(rest, 1)] if rest else []))
        return self.plain * sum(
            r[1] * o[1] * c[1] * self.tile(r[0], o[0], c[0])
            for r, o, c in itertools.product(*choices)
        )

    def tile(self, mr: int, no: int, nc: int) -> float:
        """Cycles of one tile."""
        roles, nv = self.roles, no * nc
        loads = mr * self.x_load + nv * self.y_load
        lines = self.lines(mr, no, nc)
        step = max(mr * nv / 2, loads, 4.0, 1.6 * lines if roles.lanes_summed else 0.0)
        step += 0.1 * lines + 0.02 * (mr + nv)
        loop = 2.5 if roles.length <= 8 or roles.length >= 32 else 4.0
        return self.outside * (roles.length * step + loop) + mr * nv * self.store + 40

    def lines(self, mr: int, no: int, nc: int) -> float:
        """Cache lines that one inner step touches first."""
        of_y = (1 if self.slides[0] else no) * (1 if self.slides[1] else nc)
        lines = of_y * _distance(self.y_stride)
        if self.roles.lane_stride(self.roles.x):
            return lines + mr * _distance(self.x_stride)
        together = min(mr, 1 + (mr - 1) * self.row_stride / 16)
        return lines + together * min(1.0, self.x_stride / 16) / 2


def _distance(stride: int) -> float:
    """What it costs more to load lines `stride` elements apart: prefetchers stay within a page."""
    return 3.0 if stride >= 1024 else 1.3 if stride > 64 else 1.0


def _refined(schedule: Schedule) -> float:
    """What borders save and text costs, as a factor on the cycles."""
    roles, columns = schedule.roles, schedule.columns
    live = sum(_live_share(roles, c) * c.tiles * c.size for c in columns.cuts)
    share = live / sum(c.tiles * c.size for c in columns.cuts)
    return (0.3 + 0.7 * share) * (1 + 0.0002 * schedule.products)


def _cut(roles: Roles, rows: int, outer: int, columns: int) -> Schedule | None:
    row_axis = _tile_axis(roles, roles.rows, rows)
    outer_axis = _tile_axis(roles, roles.outer, outer)
    column_axis = _tile_axis(roles, roles.columns, columns)
    if outer_axis is None or column_axis is None or row_axis is None:
        return None
    steps = _inner_steps(roles, outer_axis, column_axis)
    if steps is None:
        return None
    head, main, unroll = steps
    schedule = Schedule(roles, row_axis, outer_axis, column_axis, head, main, unroll)
    return schedule if schedule.products <= UNROLLED_PRODUCTS else None


def _tile_axis(roles: Roles, axis: int | None, size: int) -> TileAxis | None:
    """The cuts of `axis` into tiles of `size`, equal neighbours together."""
    if axis is None:
        return NO_AXIS
    extent = roles.steps(axis)
    step = roles.width if axis == roles.lane else 1
    for quotient in roles.y.quotients:
        if quotient.border.coefficients[axis] * size * step % quotient.border.divisor:
            if size < extent:
                return None
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


def _pattern(roles: Roles, axis: int, first: int, count: int) -> object:
    """What of Y exists in a tile of `count` units of `axis` from unit `first` on."""
    borders = tuple(b for b in roles.static_borders if axis in b.axes)
    tail = roles.lane_tail and axis == roles.lane
    if not borders and not tail:
        return count
    step = roles.width if axis == roles.lane else 1
    lanes = roles.width if tail or any(roles.lane in b.axes for b in borders) else 1
    inner = roles.length if borders else 1
    return tuple(
        _exists(roles, borders, axis, (first + unit) * step, t, lane)
        for unit in range(count)
        for t in range(inner)
        for lane in range(lanes)
    )


def _exists(
    roles: Roles, borders: tuple[Border, ...], axis: int, at: int, t: int, lane: int
) -> bool:
    index = {axis: at, **roles.inner_index(t)}
    index[roles.lane] = index.get(roles.lane, 0) + lane
    return roles.inside(borders, index)


def _inner_steps(
    roles: Roles, outer: TileAxis, columns: TileAxis
) -> tuple[int, int, int] | None:
    """(head, main, unroll): the steps between head and main read no border."""
    length = roles.length
    if length == 0:
        return 0, 0, 1
    low, high = _interior(roles, outer, columns)
    unroll = 4 if length >= 32 else 2
    blocked = any(r.lanes in roles.inner and r.lanes != roles.lane for r in (roles.x, roles.y))
    main = low + (high - low) // unroll * unroll
    if length <= 8 or main - low < 2 * unroll or len(roles.inner) > 1:
        return (length, length, 1) if length <= 40 else None
    if blocked and low % unroll:
        return None
    return low, main, unroll


def _interior(roles: Roles, outer: TileAxis, columns: TileAxis) -> tuple[int, int]:
    """The longest run of inner steps in which no border is met by any tile."""
    borders = tuple(b for b in roles.static_borders if b.axes & set(roles.inner))
    tail = roles.lane_tail and roles.lane in roles.inner
    if any(b.axes & set(roles.inner) for q in roles.y.quotients for b in (q.border,)):
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
    """Whether step t reads inside at every corner of the tile axes and in every lane."""
    inner = roles.inner_index(t)
    for at in itertools.product(*corners.values()):
        for lane in (0, roles.width - 1) if roles.lane in inner else (0,):
            index = {**dict(zip(corners, at, strict=True)), **inner}
            index.setdefault(roles.lane, 0)
            index[roles.lane] += lane
            if not roles.inside(borders, index):
                return False
    return True


def _live_share(roles: Roles, cut: Cut) -> float:
    """The share of a tile's products that read no border along the column axis."""
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
