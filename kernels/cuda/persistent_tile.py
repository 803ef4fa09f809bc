"""Tiles of persistent.cuh, whose blocks hold their columns' operand in registers for all iterations
of a loop, and which products in loops take them.

The way of Persistent RNNs (Diamos et al., 2016), and of FlashRNN (Poeppel et al., 2024), which has
the cell's pointwise part behind products of two bytes by tensor cores: the weights of all units are
on the chip, a share in each block, and what the units exchange once per iteration goes through the
second-level cache.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from graphc.kernels.cuda.figures import BYTES, MULTIPROCESSORS
from graphc.kernels.cuda.own_patches import PATCH, count
from graphc.kernels.cuda.row_tile import NEAR_BYTES
from graphc.kernels.cuda.shell import THREADS
from graphc.kernels.cuda.tiles import MULTIPLY_ADDS

WARPS = THREADS // 32
"""Of a block, among which k, or columns, are dealt out."""
PAIRED = ("half", "bfloat", "as_bfloat")
"""Elements of which a register holds two."""
MOST_HELD = 16
"""Pairs of fragments, of 16 of k, that a warp holds: of each eight registers, 128 of 255; twice as
many of pairs of elements."""
MOST_SECTIONS = 5
"""The sums of all warps take 8 KB of shared memory for each section."""
LEAST_PARTS = 3
"""Parts of k from which on to store sums of all columns and read those of 16 takes fewer bytes than
to read all of k."""
ALONE = 2000
"""Cycles of a block beside its loads: products, sums of all warps, epilogue, latencies."""


@dataclass(frozen=True)
class PersistentTile:
    """As `Tile`: `m` rows and as many columns of each section, whose operand the block holds; `n`
    are the columns of all blocks and sections. Of several `parts` of k, as long as the columns are
    many, a block takes 16 of each, for all columns, and its sums are added in a second launch. Of
    several `strips`, into which the columns of a product of one section are divided, it takes 16 of
    each. `exact` products are those of registers, of float32."""

    n: int
    parts: int = 1
    exact: bool = False
    strips: int = 1
    m: ClassVar[int] = PATCH
    groups: ClassVar[int] = 1
    threads: ClassVar[int] = THREADS
    blocks: ClassVar[int] = 1

    @property
    def header(self) -> str:
        """As of `Tile`."""
        return "persistent_exact" if self.exact else "persistent"

    def units(self, sections: int) -> int:
        """Columns of each of `sections` among all blocks'."""
        return self.n // sections

    def workspace(self, rows: int) -> int:
        """Bytes of the sums of all blocks."""
        across = -(-self.n // PATCH)
        return count(rows, self.n) * across * PATCH * PATCH * 4 if self.parts > 1 else 0


def persistent_tile(
    m: int, n: int, k: int, sections: int, element: str = "tf32"
) -> tuple[float, PersistentTile] | None:
    """The tile of a product in a loop, with the cycles that it takes there; None where a block's
    part of the columns' operand does not fit its registers, or all parts do not fit the
    multiprocessors. Tensor cores take less time than what they read; registers, which multiply
    "float", take theirs, and none where the operand is so small that it stays in L1: loops of
    float32 then are parts of launches that do more."""
    exact, most_held = element == "float", MOST_HELD * (2 if element in PAIRED else 1)
    if exact and n * sections * k * 4 <= NEAR_BYTES:
        return None
    parts = k // n if sections == 1 and k % n == 0 and k // n >= LEAST_PARTS else 1
    if max(sections, parts) > MOST_SECTIONS:
        return None
    shares = -(-(n if parts > 1 else k) // (PATCH * WARPS))
    moved = 2 * n if parts > 1 else k
    divided = range(1, MOST_SECTIONS + 1) if sections == 1 and parts == 1 else (1,)
    best: tuple[float, PersistentTile] | None = None
    for strips in (s for s in divided if n % s == 0):
        across = -(-n // (strips * PATCH))
        if shares * max(sections, parts, strips) > most_held or across > MULTIPROCESSORS:
            continue
        blocks = count(m, n // strips)
        rounds = -(-blocks // (MULTIPROCESSORS // across * across))
        products = PATCH * PATCH * sections * strips * k / MULTIPLY_ADDS if exact else 0.0
        cycles = rounds * (ALONE + products) + blocks * PATCH * moved * 4 / BYTES
        if best is None or cycles < best[0]:
            best = cycles, PersistentTile(n * sections, parts, exact, strips)
        if rounds == 1:
            break
    return best
