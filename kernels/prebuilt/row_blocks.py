"""Cut rows into blocks, and long rows into pieces, whose terms fit scratch memory."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass

from graphc.ir.sum_order import SumOrder
from graphc.kernels.loops.rows import Rows
from graphc.kernels.prebuilt.places import Memory
from graphc.kernels.prebuilt.strips import AXES
from graphc.kernels.program.access import row_major_strides

ROOM = 32768
"""Bytes of the terms of a sum."""
BESIDE = 512
"""Rows beside each other whose terms are read together."""


@dataclass(frozen=True)
class Cut:
    """Axes from the slowest, cut into boxes: single indices of those before number `at`, `cut` of
    that axis, all of those behind."""

    axes: tuple[int, ...]
    at: int
    cut: int
    pieces: int
    strides: tuple[int, ...]
    """Elements of scratch memory from one index of each axis to the next, or from one block."""
    single: tuple[int, ...]
    """A single step along each axis: a block of lanes or 1."""

    def data(self) -> bytes:
        """Its bytes."""
        axes, strides, single = (
            (*x, *(0,) * AXES)[:AXES] for x in (self.axes, self.strides, self.single)
        )
        head = struct.pack(f"<2i{AXES}i", len(self.axes), self.at, *axes)
        return head + struct.pack(f"<2q{AXES}q{AXES}q", self.cut, self.pieces, *strides, *single)


class RowBlocks:
    """The blocks and pieces of a kernel with reductions; see `reduce.h`."""

    def __init__(self, rows: Rows, order: SumOrder, chunks: int, size: int) -> None:
        """The blocks of `rows`, for `chunks` chunks; terms have at most `size` bytes."""
        self.rows, self.order, self.chunks = rows, order, chunks
        self.domain, self.room = rows.domain, ROOM // size
        lane = self.domain.lane
        self.along = lane in rows.reduced_axes
        """Whether the lanes of a register of terms belong to one row."""
        self.across = lane in rows.reduced_axes[:-1]
        """Whether they are those of blocks of an axis in front of the last one."""
        self._cut()

    def _cut(self) -> None:
        """Choose blocks of rows and pieces of them."""
        rows, domain = self.rows, self.domain
        lane, width, reduced = domain.lane, domain.width, rows.reduced_axes
        kept = sorted(rows.kept_axes, key=lambda d: d == lane)
        extents = [domain.extents[d] for d in kept]
        total = math.prod(extents)
        *outer, last = [domain.steps(d) if self.across else domain.extents[d] for d in reduced]
        registers = -(-last // width) * width if not self.across else last * width
        self.run = registers if self.along else last
        self.elements = math.prod(outer) * self.run
        share = max(1, -(-total // self.chunks))
        if self.along:
            wanted = max(1, min(self.room // max(self.elements, 1), share))
        else:
            wanted = max(16, min(self.room // max(self.elements, 1), share), min(BESIDE, share))
        block, number, cut = 1, len(kept) - 1, 1
        while number > 0 and block * extents[number] <= wanted:
            block *= max(extents[number], 1)
            number -= 1
        if kept:
            cut = max(1, min(wanted // block, extents[number]))
            if number == len(kept) - 1 and (lane in kept or not self.along):
                cut = min(-(-cut // 16) * 16, extents[number])
        pieces = -(-extents[number] // cut) if kept else 1
        self.blocks = math.prod(extents[:number]) * pieces if kept else 1
        single = tuple(width if d == lane else 1 for d in kept)
        self.kept = Cut(tuple(kept), number, cut, pieces, row_major_strides(extents), single)
        self.most = block * cut
        self.pitch = self.elements if self.along else -(-self.most // 16) * 16
        strides = row_major_strides((*outer, self.run))
        if self.across:
            strides = (*strides[:-1], width)
        self.reduced = self._pieces(reduced, (*outer, last), strides)

    def _pieces(self, axes: Sequence[int], steps: Sequence[int], strides: tuple[int, ...]) -> Cut:
        """The pieces of a row."""
        lane, width = self.domain.lane, self.domain.width
        blocked = [width if self.across and d == lane else 1 for d in axes]
        room = self.room // (1 if self.along else self.pitch)
        number, inner = len(axes) - 1, width if self.across else 1
        while number > 0 and inner * steps[number] <= room:
            inner *= max(steps[number], 1)
            number -= 1
        cut = max(1, room // inner)
        if number == len(axes) - 1 and not self.across and cut < steps[number]:
            cut = max(cut // 64 * 64, 64) if self.along else max(cut // 4 * 4, 4)
        cut = max(1, min(cut, steps[number])) * blocked[number]
        return Cut(tuple(axes), number, cut, 1, strides, tuple(blocked))

    @property
    def whole(self) -> bool:
        """Whether a piece is all elements of a block of rows."""
        first = self.reduced
        extent = self.domain.extents[first.axes[0]]
        return first.at == 0 and first.cut >= extent and self.order.parts == 1

    def terms(self, number: int, dtype: str) -> Memory:
        """The memory of the terms of a sum."""
        strides = [0] * self.domain.rank
        lane, width = self.domain.lane, self.domain.width
        for d, stride in zip(self.kept.axes, self.kept.strides, strict=True):
            strides[d] = stride * (self.pitch if self.along else 1)
        for d, stride in zip(self.reduced.axes, self.reduced.strides, strict=True):
            strides[d] = stride * (1 if self.along else self.pitch)
        lane_stride = None
        if self.across:
            assert lane is not None
            strides[lane] //= width
            lane_stride = 1
        return Memory(number, dtype, 0, tuple(strides), lane_stride)

    def results(self, number: int, dtype: str) -> Memory:
        """The memory of the results of a sum."""
        strides = [0] * self.domain.rank
        for d, stride in zip(self.kept.axes, self.kept.strides, strict=True):
            strides[d] = stride
        return Memory(number, dtype, 0, tuple(strides))

    def piece_elements(self) -> int:
        """Elements of a piece in scratch memory, or of a row's terms beside others."""
        inner, cut = 1, self.reduced
        for j in range(cut.at, len(cut.axes)):
            d = cut.axes[j]
            steps = self.domain.steps(d) if self.across else self.domain.extents[d]
            inner *= -(-cut.cut // cut.single[j]) if j == cut.at else steps
            if j == len(cut.axes) - 1 and self.along:
                width = self.domain.width
                length = cut.cut if j == cut.at else self.domain.extents[d]
                inner = inner // max(length, 1)
                inner *= length * width if self.across else -(-length // width) * width
        return inner * (1 if self.along else self.pitch)
