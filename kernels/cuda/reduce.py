"""How threads and blocks share the rows and columns of a reduction; see reduce.cuh.

A row is a kept index, its columns the reduced ones. Where there are few rows the columns are split
among blocks. Each loop of the body is a launch of its own then: it begins by adding the partial
results of the loops before it, in ascending order.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from graphc.kernels.cuda.shell import BLOCKS, THREADS
from graphc.kernels.program.rows import Rows

LEAST_COLUMNS = 8
"""Columns per thread that a split is worth."""


@dataclass(frozen=True)
class Shape:
    """`across` rows and `along` columns are a block's; each of `splits` blocks has a part of a row.
    `rows_apart`: neighbouring threads have neighbouring columns."""

    rows: int
    columns: int
    across: int
    along: int
    rows_apart: bool
    splits: int

    @property
    def blocks(self) -> int:
        """Blocks that share the rows."""
        return -(-self.rows // self.across)


def choose_shape(found: Rows) -> Shape:
    """The fixed sharing of rows and columns: neighbouring threads read neighbours in memory, and
    columns are split where rows alone do not fill a large device."""
    kept, reduced, extents = found.kept_axes, found.reduced_axes, found.domain.extents
    accesses = found.elements.accesses
    rows, columns = (math.prod(extents[d] for d in axes) for axes in (kept, reduced))
    read = [math.prod(n for n, s in zip(extents, a.strides, strict=True) if s) for a in accesses]
    """The elements of each operand: a value for each row has but few."""

    def along_axis(axis: int) -> int:
        return sum(n for n, a in zip(read, accesses, strict=True) if a.strides[axis] == 1)

    by_column = along_axis(reduced[-1]) if columns > 1 else 0
    by_row = along_axis(kept[-1]) if rows > 1 else 0
    rows_apart = columns > 1 and by_column >= by_row
    if rows_apart:
        along = min(32, _power(columns))
        while (
            along < THREADS
            and 8 * along <= columns
            and (rows * along < BLOCKS * THREADS or columns > 64 * along)
        ):
            along *= 2
    else:
        along = 1 if columns <= LEAST_COLUMNS else THREADS // min(32, max(8, _power(rows)))
    across = THREADS // along
    blocks = -(-rows // across) or 1
    most = columns // (along * LEAST_COLUMNS)
    splits = max(1, min(most, -(-BLOCKS // blocks))) if 2 * blocks <= BLOCKS else 1
    return Shape(rows, columns, across, along, rows_apart, splits)


def _power(number: int) -> int:
    """The least power of two that is not below `number`."""
    return 1 << max(number - 1, 0).bit_length()
