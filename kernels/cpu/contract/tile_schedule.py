"""A contraction's register tile with the loops around it."""

from __future__ import annotations

import math
from dataclasses import dataclass

from graphc.kernels.cpu.contract.tile import FEWEST_CHUNKS, TEXT, Roles, TileAxis


@dataclass(frozen=True)
class TileSchedule:
    """A tile and the loops around it."""

    roles: Roles
    """The role of each axis."""
    rows: TileAxis
    """The tiles along the rows."""
    outer: TileAxis
    """The tiles along the outer axis."""
    columns: TileAxis
    """The tiles along the columns."""
    head: int
    """The first step of the innermost loop; the steps before it are unrolled."""
    main: int
    """The end of the innermost loop; the steps after it are unrolled."""
    unroll: int
    """Steps per iteration of the innermost loop."""
    cycles: float = 0.0
    """Estimated cycles; 0 before the estimate."""
    loops: tuple[tuple[int | str, int, int], ...] = ()
    """The kept loops from the outermost, as (axis or "rows", "outer" or "columns", iterations,
    index step)."""
    grain: int = 1
    """Tiles of one unit of work, which a chunk does not split."""
    chunks: int = 1
    """Chunks of the kernel's phase."""
    parts: int = 1
    """Partial sums per output element; 1 for none."""
    passes: int = 1
    """Registers of lanes that are summed, each of every so many blocks of the lane axis."""

    @property
    def tiles(self) -> int:
        """Number of tiles."""
        return math.prod(count for _, count, _ in self.loops)

    @property
    def choice(self) -> str:
        """The tile and the reason for it, in words."""
        roles, axes = self.roles, self.roles.nest.axes
        spans = {"rows": self.rows, "outer": self.outer, "columns": self.columns}
        sizes = [
            f"{span.size} {kind}" + ("" if span.axis is None else f" of {axes[span.axis].name}")
            for kind, span in spans.items()
            if span.size > 1
        ]
        each = "register" if roles.registers == 1 else "pair of registers"
        tile = f"a tile of {' x '.join(sizes) or 'one register'}, {roles.width} of "
        tile += f"{axes[roles.lane].name} in each {each}"
        cheapest = "by the model of cycles the cheapest that"
        if roles.amx:
            what = "bytes" if roles.bytes else "bf16"
            return f"{tile}, {what} by tiles (AMX): {cheapest} 4 registers of sums hold"
        form = ", bytes in fours" if roles.bytes else ", bf16 in pairs" if roles.pairs else ""
        return f"{tile}{form}: {cheapest} {roles.target.registers} registers hold"

    @property
    def kept_rows(self) -> int:
        """Row tiles that a chunk keeps rearranged or copied; see `Roles.kept_rows`. Copies are
        limited so that enough chunks remain."""
        if self.outer.tiles * self.columns.tiles == 1:
            return 0
        sizes = self.rows.size, self.outer.size * self.columns.size
        kept, tiles = min(self.rows.tiles, self.roles.kept_rows(*sizes)), self.rows.tiles
        if self.roles.amx or not kept:
            return kept
        groups = -(-tiles // min(kept, max(1, tiles // FEWEST_CHUNKS)))
        return -(-tiles // groups)

    @property
    def steps_at_once(self) -> int:
        """Steps in the text of the innermost loop: fewer than `unroll` where one step has enough
        products to hide the loop's overhead."""
        sums = self.roles.row_sections * self.outer.size * self.columns.size
        products = self.rows.size * sums * self.roles.registers
        fewer = self.unroll == 4 and 4 * products > TEXT and self.roles.sets <= 2
        return 2 if fewer else self.unroll

    @property
    def products(self) -> int:
        """Products in the kernel's text with full unrolling, which ranks tiles. An AMX loop has few
        instructions."""
        if self.roles.amx:
            return 0
        loop = self.main - self.head
        unrolled = self.roles.length - loop + (self.unroll if loop else 0)
        sizes = (sum(c.size for c in t.cuts) for t in (self.rows, self.outer, self.columns))
        sums = self.roles.row_sections * self.roles.registers
        return unrolled * sums * math.prod(sizes)
