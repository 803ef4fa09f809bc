"""Cost model of register tiles on one core of a 2024 server: two fused multiply-adds and two loads
per cycle, four cycles of latency, and a cost per cache line."""

from __future__ import annotations

import functools
import math

from graphc.kernels.cpu.contract.tile import FEWEST_CHUNKS, PAGE, TILE, Roles
from graphc.kernels.cpu.shared.kernel_source import CHUNK_NANOSECONDS
from graphc.kernels.program.nest import Read

LOAD_CYCLES = {0: 0.5, 1: 0.5, 2: 1.5}
"""Cycles to load a register by the distance of its lanes in elements; larger distances gather."""

LINE = 64
"""Bytes of a cache line."""

GIGAHERTZ = 4
"""Cycles per nanosecond of the modelled core."""

CHUNK_CYCLES = round(CHUNK_NANOSECONDS) * GIGAHERTZ
"""Target work of a chunk, in cycles."""

KEPT_COLUMNS = 8
"""Column tiles for which an AMX chunk keeps the rows that it has rearranged: a guess."""

APART, COPIED = 24.0, 8.0
"""Cycles of a step whose row of X lies pages from the one before (`APART`), and of one that was
copied for several column tiles (`COPIED`): lines of few sets come from beyond the second-level
cache."""

PANEL_ROWS = 128
"""Row tiles that share a packed panel, if there are that many."""

FEW_TILES = 32
"""Row tiles below which repacking a panel costs noticeable time: 16 tiles of 8 rows by 1024 steps
with a panel of two registers lose 5 % (Zen 4)."""


def chunk_target(cycles: float) -> int:
    """The number of chunks that shares `cycles` of work among many threads, each worth its
    start."""
    few = min(FEWEST_CHUNKS, round(cycles / (CHUNK_CYCLES / 8)))
    return max(1, round(cycles / CHUNK_CYCLES), few)


class TileCost:
    """Estimated cycles of tiles by their size."""

    def __init__(self, roles: Roles, contiguous: int | None) -> None:
        nest, x, y = roles.nest, roles.x, roles.y
        self.roles, self.sections, self.length = roles, roles.row_sections, roles.length
        self.lanes_summed = roles.lanes_summed
        self.loop = 2.5 if roles.length <= 8 or roles.length >= 32 else 4.0
        self.loop += 4.0 if roles.moving else 0.0
        self._tile = functools.cache(self.tile)
        self.outside = math.prod(roles.steps(a) for a in roles.sums)
        self.plain = math.prod(roles.steps(a) for a in nest.kept if a not in roles.spanned)
        self.extents = [
            1 if a is None else roles.steps(a) for a in (roles.rows, roles.outer, roles.columns)
        ]
        self.x_load, self.y_load = (self._load(r) for r in (x, y))
        if roles.pairs:
            self.x_load, self.y_load = self._pair_load(x), 1.5
        elif roles.target.multiplies_pairs:
            self.x_load += x.type.dtype == "bf16"
            self.y_load += y.type.dtype == "bf16"
        self.product = roles.registers * (0.5 if roles.fuses_products else 1.0)
        self.packing = 0.0
        if roles.packed:
            self.y_load = 0.5 * roles.registers
            self.packing = 12.0 * roles.registers * roles.length
        self.x_stride, self.y_stride = (self._inner_stride(r) for r in (x, y))
        if roles.packed:
            self.y_stride = roles.width
        self.line = LINE // roles.itemsize
        self.slides = [
            a is not None and roles.inner is not None and self._stride(y, a) == self.y_stride
            for a in (roles.outer, roles.columns)
        ]
        # A place that one step of the moving loop reads, the next finds in the cache.
        self.slides[0] = self.slides[0] or roles.moving is not None
        # A batch that is summed by lanes of X: the rows of Y pass by once per tile, from afar.
        streams = roles.inner is not None and roles.inner == x.lanes != roles.lane
        self.y_streams = streams and self.y_stride > roles.width
        self.row_stride = 0 if roles.rows is None else self._stride(x, roles.rows)
        scattered = not roles.lanes_summed and contiguous not in (None, roles.lane)
        # Lines a multiple of a page apart share one set of the first-level cache.
        self.ways = self._ways(self.row_stride)
        column = 0 if roles.packed or roles.columns is None else self._stride(y, roles.columns)
        self.y_ways = self._ways(column)
        self.x_laned = roles.lane_stride(x) != 0
        self.y_lines, self.x_lines = self._lines(self.y_stride), self._lines(self.x_stride)
        self.store = 6.0 if roles.lanes_summed else 2.0 + (4 * roles.width if scattered else 0)

    def _load(self, read: Read) -> float:
        """Cycles to load a register of `read`, or to broadcast an element of it."""
        stride = self.roles.lane_stride(read)
        cycles = LOAD_CYCLES.get(stride, 1.0 * self.roles.width)
        return cycles * self.roles.registers if stride else cycles

    def _ways(self, stride: int) -> int:
        """Lines `stride` elements apart that the first-level cache holds."""
        return self.roles.target.caches.first // math.gcd(self.roles.itemsize * stride, PAGE)

    def _stride(self, read: Read, axis: int) -> int:
        if axis == read.lanes:
            return read.block if axis == self.roles.lane else 1
        return abs(read.strides[axis]) * (self.roles.width if axis == self.roles.lane else 1)

    def _inner_stride(self, read: Read) -> int:
        step = 2 if self.roles.pairs else 1
        return 0 if self.roles.inner is None else step * self._stride(read, self.roles.inner)

    def _pair_load(self, read: Read) -> float:
        """Cycles to load a pair of X; elements that lie apart are joined first."""
        inner = self.roles.inner
        assert inner is not None
        together = self.roles.lanes_summed or inner == read.lanes or read.strides[inner] == 1
        return 0.5 if together else 2.0

    def total(self, sizes: tuple[int, int, int]) -> float:
        """Cycles of all tiles of `sizes` (rows, outer, columns), partial ones included."""
        tile = self._tile
        rows, outer, columns = map(_sizes_along, self.extents, sizes)
        return self.plain * sum(
            [
                rows_times * outer_times * columns_times * tile(r, o, c)
                for r, rows_times in rows
                for o, outer_times in outer
                for c, columns_times in columns
            ]
        )

    def tile(self, rows: int, no: int, nc: int) -> float:
        """Cycles of one tile."""
        roles, nv = self.roles, no * nc
        sections, length = self.sections, self.length
        mr = rows * sections
        lines = self.lines(mr, no, nc)
        least = 1.6 * lines if self.lanes_summed else 0.0
        step = max(mr * nv * self.product, mr * self.x_load + nv * self.y_load, 4.0, least)
        step += 0.1 * lines + 0.15 * (mr + nv)
        if roles.amx:
            kept = roles.kept_rows(rows, nv)
            step = self._amx_step(mr, nv, -(-self.extents[2] // nc) if kept else 1)
        if roles.rows_apart:
            passes = -(-self.extents[1] // no) * -(-self.extents[2] // nc)
            kept = passes > 1 and roles.kept_rows(rows, nv)
            step += COPIED / passes if kept else APART
        # What the epilogue reads and writes in each section lies powers of two apart.
        store = self.store + (3.0 if sections > 1 and sections * nv > 8 else 0)
        packing = self.packing
        if packing:
            per_panel = self.rows_per_panel(rows, nc)
            per_panel = min(per_panel, roles.kept_rows(rows, nv) or per_panel)
            packing = packing * nv / per_panel
        stores = mr * nv * roles.registers * store
        return packing + self.outside * (length * step + self.loop) + stores + 40

    def _amx_step(self, mr: int, nv: int, columns: int) -> float:
        """Cycles of one of the 16 steps that AMX tile registers take at once. An instruction takes
        16 cycles and a load 8, half of them hidden; both are unmeasured estimates."""
        x, inner = self.roles.x, self.roles.inner
        assert inner is not None
        rows = -(-mr // TILE)
        gathered = 0.0 if self.roles.packed else 1.5 * nv
        if inner == x.lanes or self.roles.row_sections > 1:
            gathered += 2.0 * rows
        elif x.strides[inner] != 1:
            turned = (8.0 if self.row_stride == 1 else 32.0) * rows
            gathered += turned / min(columns, KEPT_COLUMNS)
        return rows * nv + 0.35 * (rows + nv) + gathered

    def rows_per_panel(self, mr: int, nc: int) -> float:
        """Row tiles that one chunk computes with a packed panel."""
        rows, columns = -(-self.extents[0] // mr), self.plain * -(-self.extents[2] // nc)
        if rows * columns >= FEWEST_CHUNKS * min(PANEL_ROWS, rows):
            return min(PANEL_ROWS, rows)
        cycles = self.plain * math.prod(self.extents) * self.roles.length / 2
        chunks = chunk_target(cycles)
        return max(1.0, min(rows, rows * columns / chunks))

    def lines(self, mr: int, no: int, nc: int) -> float:
        """Cache lines that one inner step touches first."""
        of_y = (1 if self.slides[0] else no) * (1 if self.slides[1] else nc)
        lines = of_y * self.y_lines
        if self.x_laned:
            return lines + mr * self.x_lines
        together = min(mr, 1 + (mr - 1) * self.row_stride / self.line)
        if self.y_streams:
            lines += 6.0 * self.roles.registers * of_y
        of_x = together * min(1.0, self.x_stride / self.line) / 2
        crowded = max(0, mr - self.ways) + max(0, no * nc - self.y_ways)
        return lines + of_x + 2.2 * crowded

    def _lines(self, stride: int) -> float:
        """Cache lines of a register `stride` elements after the one before, with a surcharge for
        large strides, as prefetchers stay within a page."""
        stride *= self.roles.itemsize
        return self.roles.registers * (3.0 if stride >= PAGE else 1.3 if stride > 256 else 1.0)


def _sizes_along(extent: int, size: int) -> tuple[tuple[int, int], ...]:
    """The sizes of tiles along an axis, each with how often it occurs."""
    whole, rest = divmod(extent, size)
    return ((size, whole), (rest, 1)) if rest else ((size, whole),)
