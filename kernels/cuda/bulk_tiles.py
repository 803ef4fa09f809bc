"""The tiles of wgmma_bulk.cuh: those of warp groups whose operands TMA copies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from graphc.kernels.cuda.tiles import GroupTile, Operand


@dataclass(frozen=True)
class BulkTile(GroupTile):
    """As `GroupTile`, of matrices that TMA copies, for one warp more. `together` are the blocks of
    a cluster."""

    together: int = 1
    clusters: ClassVar[bool] = False
    header: ClassVar[str] = "wgmma_bulk"

    @property
    def template(self) -> str:
        """As of `Tile`."""
        return f"BulkContract<Problem, Tile, {self.cluster}>"

    @property
    def threads(self) -> int:
        return super().threads + 32

    @property
    def cluster(self) -> int:
        return self.together

    def instructions(self, size: int) -> float:
        """As of `GroupTile`; a thread copies nothing, but waits and says what it has read."""
        return self.n / 128 * self.k / 16 * 6 + 20

    def shared_bytes(self, size: int) -> int:
        """As of `TensorTile`, with two barriers of 8 bytes for each stage."""
        return super().shared_bytes(size) + 16 * self.stages

    def copies(self, a: Operand, b: Operand) -> bool:
        """Whether TMA can copy such operands."""
        return a.matrix and b.matrix

    def units(self, sections: int) -> int:
        """All columns: what is cut into sections is no matrix."""
        return self.n if sections == 1 else 0


BULK_TILES = (
    BulkTile(128, 256, 64, 16, 256, 4, 1, 1.4, together=2),
    BulkTile(128, 256, 64, 16, 256, 4, 1, 1.4),
    BulkTile(128, 128, 64, 16, 128, 3, 2, 1.2, together=2),
    BulkTile(128, 128, 64, 16, 128, 3, 2, 1.2),
)
"""With `GRAPHC_TMA` besides `GRAPHC_WGMMA`. Their speeds are those of `GROUP_TILES`: what they gain
is in the bytes that they read and in the instructions."""
