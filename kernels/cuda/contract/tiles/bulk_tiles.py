"""The tiles of wgmma_bulk.cuh: those of warp groups whose operands TMA copies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from graphc.kernels.cuda.contract.contract import Problem
from graphc.kernels.cuda.contract.tiles.tensor_tiles import GroupTile, Operand
from graphc.kernels.program.kernel import TensorMap


@dataclass(frozen=True)
class BulkTile(GroupTile):
    """As `GroupTile`, of matrices that TMA copies, for one warp more, in clusters of so many
    blocks."""

    cluster: int = 1
    clusters: ClassVar[bool] = False
    header: ClassVar[str] = "contract/tiles/wgmma_bulk"
    by: ClassVar[str] = "tensor cores by wgmma of what TMA copies"
    sums_columns: ClassVar[bool] = False

    @property
    def template(self) -> str:
        return f"BulkContract<Problem, Tile, {self.cluster}>"

    @property
    def threads(self) -> int:
        return super().threads + 32

    def instructions(self, size: int) -> float:
        """As of `GroupTile`; a thread copies nothing, but waits and says what it has read."""
        return self.n / 128 * self.k / 16 * 6 + 20

    def shared_bytes(self, size: int) -> int:
        """As of `TensorTile`, with two barriers of 8 bytes for each stage."""
        return super().shared_bytes(size) + 16 * self.stages

    def copies(self, a: Operand, b: Operand) -> bool:
        """Whether TMA can copy such operands."""
        return a.matrix and b.matrix

    def maps(self, problem: Problem) -> Mapping[str, TensorMap]:
        return {"map_a": problem.a.map_of(), "map_b": problem.b.map_of()}

    def call(self, operands: Sequence[str], maps: Sequence[str]) -> str:
        return f"{self.template}::run(block, dynamic_shared, {', '.join(maps)}"

    def units(self, sections: int) -> int:
        """All columns: what is cut into sections is no matrix."""
        return self.n if sections == 1 else 0


BULK_TILES = (
    BulkTile(128, 256, 64, 16, 256, 4, 1, 1.4, cluster=2),
    BulkTile(128, 256, 64, 16, 256, 4, 1, 1.4),
    BulkTile(128, 128, 64, 16, 128, 3, 2, 1.2, cluster=2),
    BulkTile(128, 128, 64, 16, 128, 3, 2, 1.2),
)
"""With `GRAPHC_TMA` besides `GRAPHC_WGMMA`. Their speeds are those of `GROUP_TILES`: what they gain
is in the bytes that they read and in the instructions."""
