"""Plan how units of work compute a contraction: blocks of terms, tiles, boxes of the output."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from graphc.base.cached import cached_property
from graphc.base.target import LANES, Target
from graphc.kernels.cpu.contract.sum_loops import SumLoops
from graphc.kernels.prebuilt.contract_pairs import Pair
from graphc.kernels.prebuilt.contract_sides import Sides, Walk, operand_walk, output_walk
from graphc.kernels.prebuilt.contract_units import Costs, Cuts, cut_units, side_cuts
from graphc.kernels.program.kernel import Kernel
from graphc.kernels.program.nest import Nest, Window

SUMMED = 3
"""Summed axes of a description."""
BLOCK_OF_TERMS = 256
"""Terms whose copied rows, 16 KB, stay in a first-level cache while columns pass by."""
NEAR = 64
"""Elements between neighbouring terms up to which a register's terms are read in place: farther
apart, they share few sets of a cache."""
FEW_CLASSES = 256
"""Indices of paired axes up to which boxes have few of them."""
MOST_ROWS = {16: 14, 8: 6, 4: 4}
"""Rows of a tile by lanes, as in products.h."""


@dataclass(frozen=True)
class PlannedAxis:
    """An axis of the description."""

    number: int | None
    """The axis of the nest; None for one of extent 1 that fills a place."""
    extent: int
    x: Walk
    """How the offset in X depends on it."""
    y: Walk
    """How the offset in Y depends on it."""
    out: Walk
    """Of a kept axis, how the offset in the output depends on it."""
    step: int
    """Boxes begin at multiples of it."""


NOTHING = PlannedAxis(None, 1, Walk(), Walk(), Walk(), 1)
"""An axis that fills a place."""


@dataclass(frozen=True)
class Plan:
    """How units compute a contraction."""

    nest: Nest
    """The contraction."""
    order: SumLoops
    """The order of its sums."""
    sides: Sides
    """Its operands."""
    pairs: list[Pair]
    """Which products exist."""
    window: Window | None
    """Pooling windows that boxes hold whole."""
    alone: bool
    """Whether the sums are the output."""
    kernel: Kernel
    """The generated kernel."""
    target: Target
    """The CPU."""

    @property
    def chunks(self) -> int:
        """Chunks of the phase that adds products."""
        return self.kernel.phases[0] if self.parts_apart else max(self.kernel.phases)

    @cached_property
    def parts_apart(self) -> bool:
        """Whether the parts of a sum are units of their own, whose sums wait in the workspace for
        the kernel's second phase."""
        parts, whole = self.order.parts, self.lane.extent % self.target.lanes == 0
        several = parts > 1 and self.alone and (whole or self.lanes_summed)
        room = 4 * parts * math.prod(axis.extent for axis in self.kept)
        return several and len(self.kernel.phases) == 2 and self.kernel.workspace >= room

    @property
    def lanes_summed(self) -> bool:
        """Whether a summed axis lies in the lanes of both operands."""
        return self.order.blocks

    @property
    def strided(self) -> tuple[int, int]:
        """The number of the summed axis whose terms go to partial sums in turn, and its extent; -1
        and 0 if there is none."""
        lane = self.order.lane
        if lane is None or self.lanes_summed:
            return -1, 0
        return self.sides.summed.index(lane), self.nest.axes[lane].extent

    @cached_property
    def batches(self) -> list[PlannedAxis]:
        """The axes that index both operands."""
        return [self._kept(a) for a in self.sides.batches]

    @cached_property
    def rows(self) -> list[PlannedAxis]:
        """The axes of rows, at least one."""
        return [self._kept(a) for a in self.sides.rows] or [NOTHING]

    @cached_property
    def columns(self) -> list[PlannedAxis]:
        """The axes of columns, at least one; the last is in the lanes."""
        return [self._kept(a) for a in self.sides.columns] or [NOTHING]

    @property
    def kept(self) -> list[PlannedAxis]:
        """The kept axes in the order of the description."""
        return [*self.batches, *self.rows, *self.columns]

    @cached_property
    def summed(self) -> list[PlannedAxis]:
        """The summed axes, filled up at the end."""
        summed = [self._summed(a) for a in self.sides.summed]
        return summed + [NOTHING] * (SUMMED - len(summed))

    @property
    def lane(self) -> PlannedAxis:
        """The axis in the lanes."""
        return self.columns[-1]

    @property
    def lane_step(self) -> int:
        """Elements of Y from one lane to the next."""
        return 1 if self.lane.y.block or self.lanes_summed else self.lane.y.stride

    def _kept(self, axis: int) -> PlannedAxis:
        nest, sides = self.nest, self.sides
        extent = nest.axes[axis].extent
        x, y = operand_walk(sides.x, axis), operand_walk(sides.y, axis)
        out = output_walk(nest.node.output.type, nest.output, axis)
        assert out is not None, "each kept axis has a stride in the output"
        step = dict(self.window or ()).get(axis, 1)
        if axis == nest.sections or self._within(axis):
            step = extent
        elif sides.columns[-1:] == (axis,) and not self.lanes_summed:
            step = LANES if y.block or out.block or extent < 4 * LANES else 2 * LANES
        return PlannedAxis(axis, extent, x, y, out, step)

    def _within(self, axis: int) -> bool:
        """Whether another axis that is kept steps over this one's indices in the output."""
        places = (p.coefficients for p in self.nest.section_place if p.coefficients[axis])
        return not self.alone and any(
            c[a] > c[axis] for c in places for a in self.sides.kept if a != axis
        )

    def _summed(self, axis: int) -> PlannedAxis:
        extent, (x, y) = self.nest.axes[axis].extent, (self.sides.x, self.sides.y)
        if axis == self.order.lane and not self.lanes_summed:
            walks = operand_walk(x, axis), operand_walk(y, axis)
            return PlannedAxis(axis, -(-extent // LANES), *walks, Walk(), 1)
        if axis == self.order.lane:  # by blocks of lanes
            several = LANES // self.target.lanes
            walks = Walk(several * x.block), Walk(several * y.block)
            return PlannedAxis(axis, -(-extent // LANES), *walks, Walk(), 1)
        return PlannedAxis(axis, extent, operand_walk(x, axis), operand_walk(y, axis), Walk(), 1)

    @cached_property
    def block(self) -> tuple[int, int]:
        """Indices of the first summed axis, or of the first two as one, in a block of terms; how
        many axes these are."""
        _, second, third = (axis.extent for axis in self.summed)
        most = BLOCK_OF_TERMS // 4 if self.lanes_summed else BLOCK_OF_TERMS
        if second * third > most:
            return max(1, most // third), 2
        block = max(1, most // (second * third))
        return block // LANES * LANES or block, 1

    @property
    def shifts(self) -> bool:
        """Whether all blocks of terms lie alike, and the same of their terms exist."""
        (block, depth), first = self.block, self.summed[0]
        laned = first.x.block or first.y.block
        whole = not laned or (block % self.target.lanes == 0 and self.order.parts == 1)
        return depth == 1 and whole and not self._paired

    @property
    def _paired(self) -> bool:
        """Whether products of some indices of the first summed axis do not exist."""
        return self.strided[0] == 0 or any(
            p.summed in (self.summed[0].number, None) for p in self.pairs
        )

    def neighbours(self, walk: Walk) -> bool:
        """Whether the first summed axis, which has this walk, goes through neighbours that all
        exist."""
        return (
            self.summed[0].extent > 1 and not self._paired and (walk.stride == 1 or walk.block > 0)
        )

    def packed(self, rows: int) -> bool:
        """Whether columns are copied for boxes of so many rows: their lanes are apart, or
        incomplete, or several tiles read terms that lie far apart."""
        lane, width = self.lane, self.target.lanes
        if self.lanes_summed:
            return False
        if self.lane_step != 1 or not (lane.y.block or lane.extent % width == 0):
            return True
        return rows > MOST_ROWS[width] and self.far

    @property
    def far(self) -> bool:
        """Whether terms of Y lie far apart."""
        steps = [1 if z.y.block else abs(z.y.stride) for z in self.summed if z.extent > 1]
        return bool(steps) and steps[-1] > NEAR

    @property
    def lane_blocks(self) -> tuple[int, int, int]:
        """Registers of the summed axis in lanes, and elements between them."""
        if self.order.lane is None or not self.lanes_summed:
            return 0, 0, 0
        extent, x, y = self.nest.axes[self.order.lane].extent, self.sides.x, self.sides.y
        return -(-extent // self.target.lanes), x.block, y.block

    @property
    def direct(self) -> bool:
        """Whether tiles may write their sums, whole registers, to the output."""
        if self.order.parts > 1 or not self.alone or self.strided[1]:
            return False
        if self.lanes_summed:
            return True
        lane = self.lane
        neighbours = lane.out.stride == 1 or lane.out.block > 0
        return neighbours and lane.extent % self.target.lanes == 0

    @cached_property
    def cuts(self) -> tuple[Cuts, Cuts, Cuts]:
        """Pieces of the batches, of the rows and of the columns."""
        paired = [p.kept for p in self.pairs if p.kept is not None]
        sides = []
        for axes in (self.batches, self.rows, self.columns):
            order = self._cut_order(axes, paired)
            sides.append(side_cuts([x.extent for x in axes], [x.step for x in axes], order))
        b, r, c = sides
        if not self.lanes_summed:
            lane = min(self.lane.extent, LANES)
            c = [replace(cut, lines=-(-cut.lines // lane)) for cut in c]
        terms = math.prod(z.extent for z in self.summed)
        packed = self.packed(MOST_ROWS[self.target.lanes] + 1)
        column = 3.0 if not packed else 4.5 if self.lane_step == 1 else 8.0
        row = 0.5 if self.neighbours(self.summed[0].x) else 1.0
        if self.parts_apart:
            terms //= self.order.parts
        sums = LANES * (LANES if self.strided[1] else 1)
        listed = 0 if self.shifts else math.prod(len(p.exists) for p in self.pairs)
        chunks = -(-self.chunks // self.order.parts) if self.parts_apart else self.chunks
        return cut_units(b, r, c, chunks, Costs(terms, row, column, listed, sums))

    def _cut_order(self, axes: list[PlannedAxis], paired: list[int]) -> list[int]:
        """In which order the axes of a side are cut: few indices of small paired axes make few
        classes of many lines; else the lanes first."""
        few = math.prod(a.extent for a in axes if a.number in paired) <= FEW_CLASSES

        def key(i: int) -> tuple[bool, bool]:
            return not (few and axes[i].number in paired), axes[i] is not self.lane

        return sorted(range(len(axes)), key=key)

    @property
    def pieces(self) -> list[int]:
        """Pieces of each kept axis."""
        return [p for cut in self.cuts for p in cut.pieces]

    @cached_property
    def sums(self) -> tuple[int, list[Walk]]:
        """The floats of a unit's sums, and how they lie: batches, rows, then columns.

        Parts apart have those of the whole output. Each place of a window has a plane of its own.
        """
        axes = self.kept
        pieces = [1] * len(axes) if self.parts_apart else self.pieces
        scales: dict[int | None, int] = dict(self.window or ())
        walks, size = [], 1
        for axis, count in zip(reversed(axes), reversed(pieces), strict=True):
            steps = -(-axis.extent // axis.step)
            most = -(-steps // count) * axis.step
            if self.parts_apart:
                most = axis.extent
            scale = scales.get(axis.number, 1)
            walks.append(Walk(size, scale=scale))
            if axis is axes[-1] and not self.lanes_summed and not self.parts_apart:
                most = -(-most // LANES) * LANES
            size *= most // scale
        for i, walk in enumerate(walks):
            if walk.scale > 1:
                walks[i] = replace(walk, plane=size)
                size *= walk.scale
        return size, walks[::-1]
