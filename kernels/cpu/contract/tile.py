"""A register tile of a contraction: the role of each axis, sizes, and borders.

A tile is rows x columns of registers, accumulated over all summed axes. The rows index one operand,
X, and the columns the other, Y, so that MR + NV loads feed MR * NV products. The lane axis is
either kept (a register is part of the output, X is mostly broadcast) or summed (both operands are
registers).
"""

from __future__ import annotations

from dataclasses import dataclass

from graphc.base.cached import cached_property
from graphc.base.target import Target
from graphc.kernels.program.nest import Border, Nest, Read, Window


@dataclass(frozen=True)
class Cut:
    """A run of `tiles` tiles of `size` rows or registers, the first at logical index `start`."""

    start: int
    tiles: int
    size: int


@dataclass(frozen=True)
class TileAxis:
    """A kept axis that a tile spans."""

    axis: int | None
    """The iteration axis; None if the tile spans nothing in this direction."""
    step: int
    """Logical indices per row or register."""
    cuts: tuple[Cut, ...]
    """The tiles along the axis."""

    @property
    def tiles(self) -> int:
        """Tiles along the axis."""
        return sum(c.tiles for c in self.cuts)

    @property
    def size(self) -> int:
        """The size of the largest tile."""
        return self.cuts[0].size


PAGE = 4096
"""Bytes of a page. Prefetchers stay within one, and addresses a multiple of it apart share one set
of a first-level cache, which has one line per page and way."""

TEXT = 64
"""Products in the text of an unrolled innermost loop, unless one step has more: enough to hide the
loop's overhead. Four times as many run no faster and compile 1.5 times as long."""

FEW_ROWS = 32
"""Rows of pairs from which joining them once, in a panel, is cheaper than at each read."""

TILE = 16
"""Rows of an AMX tile register, and floats per row."""

FEWEST_CHUNKS = 12
"""Chunks for work that is worth an eighth as much each: 2, 3, 4 and 6 workers share them evenly."""

STACK_BYTES = 256 * 1024
"""The most bytes of packed panels, whatever the cache sizes: they are on the stack of the thread
that runs the kernel. macOS gives threads 512 KiB, other systems more."""

NO_AXIS = TileAxis(None, 1, (Cut(0, 1, 1),))
"""One row or register, along no axis."""


@dataclass(frozen=True)
class Roles:
    """The role of each axis in a tile."""

    nest: Nest
    """The contraction."""
    x: Read
    """The operand indexed by rows."""
    y: Read
    """The operand indexed by columns."""
    target: Target
    """The CPU."""
    lane: int
    """The axis in the lanes."""
    rows: int | None
    """The axis of X's rows; None for one row."""
    outer: int | None
    """An axis of Y's columns outside `columns`; None if there is none."""
    columns: int | None
    """The axis of Y's registers; None for one register."""
    inner: int | None
    """The summed axis of the innermost loop; for the lane axis, its blocks of `width`."""
    window: Window | None = None
    """Pooling windows that `outer` and `columns` must hold whole."""
    sets: int = 1
    """Registers of lanes for each sum, to which the steps of the innermost loop add in turn."""
    amx: bool = False
    """Whether AMX tile registers hold the sums, `TILE` rows by as many lanes each."""

    @cached_property
    def width(self) -> int:
        """Lanes of a register."""
        return self.target.lanes

    @cached_property
    def itemsize(self) -> int:
        """Bytes of a sum and of a factor as it is multiplied."""
        return self.nest.node.output.type.numpy_dtype.itemsize

    @cached_property
    def registers(self) -> int:
        """Machine registers per register of `width` sums."""
        return self.itemsize // 4

    @cached_property
    def fuses_products(self) -> bool:
        """Whether one instruction multiplies and adds; not for integers."""
        return self.bytes or self.nest.node.output.type.dtype in ("f32", "f64")

    @cached_property
    def row_sections(self) -> int:
        """Sections that each row of the tile holds, in one register row each."""
        sections = self.nest.sections
        return 1 if sections is None or sections == self.outer else self.nest.section_count

    @cached_property
    def spanned(self) -> frozenset[int | None]:
        """The axes that a tile spans."""
        return frozenset((self.rows, self.outer, self.columns, self.nest.sections))

    @cached_property
    def pairs(self) -> bool:
        """Whether a step covers two neighbours along the inner axis, whose bf16 products one
        instruction adds; two registers of neighbours where lanes are summed."""
        x, y, inner = self.x, self.y, self.inner
        if not self.target.multiplies_pairs or {x.type.dtype, y.type.dtype} != {"bf16"}:
            return False
        if inner is None or self.steps(inner) < 2 or self.moving or self.window:
            return False
        places = [*x.borders, *y.borders, *(q.border for r in (x, y) for q in r.quotients)]
        if any(b.axes & {inner, self.lane} for b in places):
            return False
        if self.lanes_summed:
            return self.lane_stride(x) == 1 and self.lane_stride(y) == 1
        return inner != self.lane and self.lane_stride(x) == 0

    @cached_property
    def bytes(self) -> bool:
        """Whether a two-byte element stands for two bytes (`byte_quads.py`)."""
        return self.nest.node.op.name == "matmul_bytes"

    @cached_property
    def fits_amx(self) -> bool:
        """Whether AMX can hold the sums: pairs, and columns of 16 lanes."""
        if not self.target.multiplies_tiles or not self.pairs or self.lanes_summed:
            return False
        enough = self.rows is not None and self.steps(self.rows) * self.row_sections >= TILE
        return enough and self.length >= TILE and not self.static_borders

    @cached_property
    def last_pair(self) -> int:
        """Elements of the inner axis in its last step of pairs: 1 or 2; with registers of lanes, 1
        to twice the lanes."""
        assert self.inner is not None
        if not self.lanes_summed:
            return 2 - self.nest.axes[self.inner].extent % 2
        if self.inner != self.lane:
            return self.width * (2 - self.steps(self.inner) % 2)
        return (self.nest.axes[self.inner].extent - 1) % (2 * self.width) + 1

    @cached_property
    def lanes_summed(self) -> bool:
        """Whether the lane axis is summed."""
        return not self.nest.axes[self.lane].kept

    def lane_stride(self, read: Read) -> int:
        """Elements from one lane to the next; 0 is a broadcast."""
        return 1 if read.lanes == self.lane else read.strides[self.lane]

    def steps(self, axis: int) -> int:
        """Iterations over `axis`; blocks of lanes for the lane axis."""
        extent = self.nest.axes[axis].extent
        return -(-extent // self.width) if axis == self.lane else extent

    @cached_property
    def length(self) -> int:
        """Steps of the innermost loop."""
        steps = 1 if self.inner is None else self.steps(self.inner)
        return -(-steps // 2) if self.pairs else steps

    @cached_property
    def ends_whole(self) -> bool:
        """Whether the last step of the innermost loop is like the others."""
        if not self.pairs:
            return True
        return self.last_pair == (2 * self.width if self.lanes_summed else 2)

    @cached_property
    def sums(self) -> tuple[int, ...]:
        """The summed axes around the innermost loop, from the outermost."""
        axes = [a for a in self.nest.summed if a != self.inner]
        axes = [a for a in axes if self.nest.axes[a].extent != 1]
        if self.moving:
            axes.sort(key=lambda a: a in self.moving.axes)  # type: ignore[union-attr]
        return tuple(axes)

    @cached_property
    def moving(self) -> Border | None:
        """A border between the tile's outer axis and one summed axis outside the innermost loop.
        Each outer index is tested as that loop runs, and reads zeros outside."""
        if self.outer == self.lane:
            return None  # the border would go through a register
        for border in self.y.borders:
            others = border.axes - {self.outer}
            if self.outer in border.axes and len(others) == 1 and border.divisor == 1:
                (axis,) = others
                if not self.nest.axes[axis].kept and axis not in (self.inner, self.lane):
                    return border
        return None

    @cached_property
    def static(self) -> frozenset[int]:
        """Axes whose index is known at compile time, up to a tile's start."""
        axes = (self.lane, self.inner, self.outer, self.columns)
        return frozenset(a for a in axes if a is not None)

    @cached_property
    def lane_tail(self) -> bool:
        """Whether reads must stop at the lane axis's last element."""
        partial = self.nest.axes[self.lane].extent % self.width != 0
        if self.pairs and self.inner == self.lane:
            return False  # the last pair knows
        return partial and any(
            self.lane_stride(r) != 0 and r.lanes != self.lane for r in (self.x, self.y)
        )

    @cached_property
    def packed(self) -> bool:
        """Whether Y is first copied into a panel without further work: transposed where its lanes
        are far apart and its summed axis is contiguous, or because its rows are far apart."""
        y, alone = self.y, self.outer is None and not self.sums and not self.lanes_summed
        if self.inner is None or not alone or self.columns != self.lane or self.window:
            return False
        blocked = self.pairs and y.lanes == self.inner
        if (y.lanes is not None and not blocked) or y.quotients or self.inner == self.lane:
            return False
        lane, inner = y.strides[self.lane], 1 if blocked else y.strides[self.inner]
        if self.amx and lane == 1:
            return not y.borders
        if self.pairs and lane == 1 and self.rows is not None and self.steps(self.rows) >= FEW_ROWS:
            return self.length >= self.width and not y.borders
        apart = self.itemsize * inner >= PAGE
        if not (lane > 1 and inner == 1) and not (lane == 1 and apart):
            return False
        enough = self.bytes or self.length >= self.width
        return enough and not y.borders and self.lane_stride(self.x) == 0

    @cached_property
    def rows_apart(self) -> bool:
        """Whether X's steps lie half a page apart or more while its rows are neighbours, as in a
        weight gradient. Its lines then share few cache sets, so each tile would reload its rows
        from memory. Such tiles are copied first, several at once."""
        x, inner, rows = self.x, self.inner, self.rows
        if self.amx or self.pairs or self.lanes_summed or inner is None or rows is None:
            return False
        if self.sums or self.moving or self.row_sections > 1 or inner == self.lane:
            return False
        plain = x.lanes is None and not (x.borders or x.quotients) and self.lane_stride(x) == 0
        whole = x.type.numpy_dtype.itemsize == self.itemsize
        apart = self.itemsize * x.strides[inner] >= PAGE // 2 and x.strides[rows] == 1
        return plain and whole and apart and self.length >= self.width

    def kept_rows(self, rows: int, columns: int) -> int:
        """Tiles of `rows` rows, rearranged for AMX or copied, that fit beside a panel of `columns`
        columns; 0 where rows are read in place or the tile has outer sums."""
        x, inner = self.x, self.inner
        if self.rows_apart:
            panel = columns * self.width if self.packed else 0
            room = STACK_BYTES // (self.itemsize * self.length) - panel
            return max(0, room) // rows
        if not self.amx or self.sums or inner is None or inner == x.lanes or x.strides[inner] == 1:
            return 0
        column = 4 * TILE * -(-self.length // TILE) * TILE
        room = STACK_BYTES // column - (columns if self.packed else 0)
        return max(0, room) // -(-rows * self.row_sections // TILE)

    @cached_property
    def static_borders(self) -> tuple[Border, ...]:
        borders = (b for b in self.y.borders if b != self.moving)
        return tuple(b for b in borders if b.axes & self.static)

    def inside(self, borders: tuple[Border, ...], index: dict[int, int]) -> bool:
        """Whether a read exists at the logical indices `index`, as far as `borders` decide."""
        for border in borders:
            value = border.offset + sum(border.coefficients[a] * index[a] for a in border.axes)
            if value % border.divisor or not 0 <= value // border.divisor < border.extent:
                return False
        return not self.lane_tail or index[self.lane] < self.nest.axes[self.lane].extent

    def inner_index(self, t: int) -> dict[int, int]:
        """The logical index of the inner axis in step t."""
        if self.inner is None:
            return {}
        step = 2 if self.pairs else 1
        return {self.inner: t * step * (self.width if self.inner == self.lane else 1)}

    def allowed(self) -> bool:
        """Whether the reads fit the template."""
        if self.window and (self.lanes_summed or self.lane in dict(self.window)):
            return False  # a lane would hold a part of a window
        if self.row_sections > 1 and self.y.depends_on(self.nest.sections or 0):
            return False
        return self._tile_axes_allowed() and self._lanes_allowed() and self._borders_allowed()

    def _tile_axes_allowed(self) -> bool:
        """Whether the tile's axes index X and Y as the template requires."""
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
        """Whether the lane axis fits the reads."""
        x, y = self.lane_stride(self.x), self.lane_stride(self.y)
        if y == 0 or (self.lanes_summed and x == 0):
            return False
        if self.pairs and y != 1 and not self.packed:
            return False
        for read in (self.x, self.y):
            if read.lanes is not None and read.lanes != self.lane:
                # Blocks of lanes are walked by number: along one summed axis of its own.
                if self.nest.axes[read.lanes].kept:
                    return False
        if self.lanes_summed:
            return not self.lane_tail or self.inner == self.lane
        return not self.lane_tail or self.lane in (self.outer, self.columns)

    def _borders_allowed(self) -> bool:
        """Whether the template can test all borders."""
        tile = {a for a in (self.rows, self.nest.sections, *self.static) if a is not None}
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
                self.inner,
            ):
                return False
        return not any(self.lane in q.border.axes for q in self.y.quotients)
