"""A tile of a contraction and the loops around it."""

from __future__ import annotations

import math
from dataclasses import dataclass

from graphc.kernels.cpu.contract.tile import FEWEST_CHUNKS, TEXT, Roles, TileAxis


@dataclass(frozen=True)
class TileSchedule:
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
    def choice(self) -> str:
        """The tile in words, and why it is this one."""
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
        """Tiles of rows that a chunk keeps as it has turned or copied them; see `Roles.kept_rows`.
        Copies are for so few tiles at once that there are chunks enough."""
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
        """Steps of the innermost loop in its text: fewer than `unroll` where one alone has enough
        products to hide the loop, as more take longer to compile and no less to run."""
        sums = self.roles.row_sections * self.outer.size * self.columns.size
        products = self.rows.size * sums * self.roles.registers
        return 2 if self.unroll == 4 and 4 * products > TEXT else self.unroll

    @property
    def products(self) -> int:
        """Products in the kernel's text, before that; tiles are ranked by it. A loop of AMX has a
        few instructions."""
        if self.roles.amx:
            return 0
        loop = self.main - self.head
        unrolled = self.roles.length - loop + (self.unroll if loop else 0)
        sizes = (sum(c.size for c in t.cuts) for t in (self.rows, self.outer, self.columns))
        sums = self.roles.row_sections * self.roles.registers
        return unrolled * sums * math.prod(sizes)
