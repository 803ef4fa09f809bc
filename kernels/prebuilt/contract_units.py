"""Cut a contraction's output into units of work."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

LINE = 16
"""Elements of a register of 64 bytes, and of a block of lanes."""
MOST_SUMS = 128 * 1024
"""Floats of a unit's sums, which stay in a second-level cache while terms are added."""
FEWEST_UNITS = 12
"""Units that 2, 3, 4 and 6 workers share evenly."""
TILE_ROWS = 14
"""Rows that share a load of a column."""
PASS = 1.5
"""Cycles to load a register of a column."""
LISTED = 3
"""Cycles to list a step."""
LINED = 10
"""Cycles to list a row or column."""
UNIT_CYCLES = 20_000
"""Cycles that are worth a unit."""


@dataclass(frozen=True)
class Cuts:
    """Pieces of each axis of a side, and the lines of the largest piece."""

    pieces: tuple[int, ...]
    lines: int


@dataclass(frozen=True)
class Costs:
    """Cycles of a unit, per product of registers and per element copied."""

    terms: int
    row: float
    column: float
    classes: int
    """Classes for which each unit lists the steps of every block of terms; 0 if it lists them
    once."""
    sums: int
    """Floats of sums per row and column."""


def side_cuts(extents: Sequence[int], steps: Sequence[int], order: Sequence[int]) -> list[Cuts]:
    """Ways to cut a side into ever more pieces, axes in `order` first; pieces begin at multiples of
    the steps."""
    counts = [-(-n // s) for n, s in zip(extents, steps, strict=True)]
    found: dict[tuple[int, ...], Cuts] = {}
    for wanted in (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256):
        pieces, left = [1] * len(counts), wanted
        for a in order:
            pieces[a] = min(counts[a], left)
            left = -(-left // pieces[a])
        lines = math.prod(
            min(-(-c // p) * s, n)
            for c, p, s, n in zip(counts, pieces, steps, extents, strict=True)
        )
        found[tuple(pieces)] = Cuts(tuple(pieces), lines)
    return list(found.values())


def cut_units(
    batches: list[Cuts], rows: list[Cuts], columns: list[Cuts], chunks: int, costs: Costs
) -> tuple[Cuts, Cuts, Cuts]:
    """The cuts of batches, rows and columns (in registers) with the least estimated cycles."""
    whole = math.prod(side[0].lines for side in (batches, rows, columns)) * costs.terms
    wanted = max(1, min(chunks, FEWEST_UNITS, int(whole // UNIT_CYCLES)))
    best: tuple[float, tuple[Cuts, Cuts, Cuts]] | None = None
    for b, r, c in itertools.product(batches, rows, columns):
        units = math.prod((*b.pieces, *r.pieces, *c.pieces))
        each = b.lines * (
            r.lines * c.lines * costs.terms
            + r.lines * costs.terms * costs.row
            + c.lines * costs.terms * (costs.column + PASS * -(-r.lines // TILE_ROWS))
            + costs.terms * LISTED * min(costs.classes, r.lines * c.lines)
            + (r.lines + c.lines) * LINED
        )
        short = max(0, wanted - units) / wanted
        large = max(0.0, b.lines * r.lines * c.lines * costs.sums / MOST_SUMS - 1)
        cycles = units * (each + 500) * (1 + 2 * short + large)
        if best is None or cycles < best[0]:
            best = cycles, (b, r, c)
    assert best is not None
    return best[1]
