"""The tiles of registers.cuh, whose sums threads hold and add by themselves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from graphc.kernels.cuda.contract.tiles.tile import RingTile
from graphc.kernels.cuda.shared.kernel_source import SHARED_BYTES

REGISTERS = "registers, k ascending"
"""The order of tiles of registers: one multiply-add after another."""
MOST_DRAWN = 32
"""Sums of a thread that adds those of others to them: registers hold as many totals."""


@dataclass(frozen=True)
class Tile(RingTile):
    """Of several `groups` of threads each holds all sums, and adds its share of every step."""

    groups: int = 1
    unit: ClassVar[str] = "registers"

    @property
    def threads(self) -> int:
        return self.m // self.tm * (self.n // self.tn) * self.groups

    @property
    def draws(self) -> bool:
        return self.groups == 1 and self.tm * self.tn <= MOST_DRAWN

    def instructions(self, size: int) -> float:
        """Of a thread per step, with operands of `size` bytes, about."""
        reads = (self.tm + self.tn) * self.k / 4
        return (self.tm * self.tn * self.k + reads) / self.groups + self.copying(size, 8)

    def fits(self, itemsize: int) -> bool:
        """Whether a block's tiles of such elements fit shared memory, its sums registers, and the
        share of each group 16 bytes."""
        bytes_per_step = (self.m + self.n) * (self.k * itemsize + 16)
        return (
            self.stages * bytes_per_step <= SHARED_BYTES
            and (itemsize <= 4 or self.tm * self.tn <= 16)
            and self.k // self.groups * itemsize % 16 == 0
        )

    def units(self, sections: int) -> int:
        """Columns of each of `sections` in a tile: a multiple of 4, so that copies are of 4; 0 if
        the tile cannot hold them."""
        return self.n if sections == 1 else self.n // sections // 4 * 4

    def exchanges(self, itemsize: int, operand: int) -> bool:
        """Whether its sums fit where tiles of operands of such elements were."""
        return self.groups * self.m * self.n * itemsize <= self.ring_bytes(operand)

    def order(self, element: str, rows: int) -> str:
        """The same for all tiles that share steps alike: one multiply-add after another, in each
        group of threads."""
        if self.groups == 1:
            return REGISTERS
        return f"registers, k ascending in {self.groups} shares of every {self.k}"

    def describe(self, cut: str) -> str:
        shared = f", shared by {self.groups} groups of threads" if self.groups > 1 else ""
        return super().describe(shared + cut)

    def __str__(self) -> str:
        numbers = (self.m, self.n, self.k, self.tm, self.tn, self.stages)
        several = (self.groups,) if self.groups > 1 else ()
        return f"Registers<{', '.join(map(str, (*numbers, *several)))}>"


TILES = (
    Tile(128, 128, 16, 8, 8, 2, 2, 1.0),
    Tile(128, 64, 16, 8, 4, 2, 2, 0.9),
    Tile(64, 128, 16, 4, 8, 2, 2, 0.9),
    Tile(64, 64, 16, 4, 4, 3, 4, 0.8),
    Tile(32, 64, 16, 4, 4, 3, 6, 0.75),
    Tile(64, 32, 16, 4, 4, 3, 6, 0.75),
    Tile(32, 32, 16, 2, 4, 3, 6, 0.55),
    Tile(16, 64, 16, 4, 4, 3, 8, 0.6),
    Tile(64, 16, 16, 4, 2, 3, 8, 0.45),
    Tile(32, 32, 64, 4, 4, 2, 2, 0.45, groups=4),
    Tile(16, 32, 64, 4, 4, 3, 4, 0.45, groups=8),
    Tile(16, 16, 64, 4, 2, 3, 4, 0.3, groups=8),
    Tile(8, 8, 128, 2, 1, 3, 4, 0.15, groups=8),
)
"""Without measurements, from the ratio of multiply-adds to shared reads. Tiles of several groups
are for few sums: a block is through with its steps sooner, and k need not be cut."""
