"""Split-k reduction: k is cut into parts that are then added in one fixed order, whoever adds them.

A second launch does (split_k.cuh, columns.cuh), the last block of each tile (tickets.cuh) or the
blocks of a cluster (cluster_sums.cuh).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from graphc.kernels.cuda.shared.gpu_model import GPU

MOST_CLUSTERED = 8
"""Blocks of a cluster that every GPU with clusters can place."""
MANY_PARTS = 24
"""Parts of k from which on several threads add those of one sum."""
LANES = 8
"""Those threads."""


class SplitK(Enum):
    """Who adds the parts, as notes say it."""

    LAUNCH = "in order"
    BLOCK = "in order by the last block of a tile"
    CLUSTER = "in order within a cluster"


@dataclass(frozen=True)
class Partial:
    """`parts` > 1 of each of `sums` sums of `itemsize` bytes, in so many `tiles` of `tile_sums`;
    whose last block may add them, as it `draws` tickets, or the blocks of `clusters`."""

    parts: int
    sums: int
    itemsize: int
    tiles: int
    tile_sums: int
    draws: bool
    clusters: bool

    @property
    def workspace(self) -> int:
        """Bytes of the parts of whole tiles."""
        return self.parts * self.tiles * self.tile_sums * self.itemsize

    @property
    def moved(self) -> float:
        """Cycles in which the parts go to memory, or come from it."""
        return self.parts * self.sums * self.itemsize / GPU.l2_rate

    @property
    def waits(self) -> float:
        """Cycles that a thread waits for the parts of a sum."""
        return GPU.partial_wait * self.parts / lanes_of(self.parts, self.itemsize)

    def second_launch(self) -> float:
        """Cycles of a launch that adds the parts."""
        return max(GPU.launch, GPU.launch_gap + self.moved + self.waits)

    def by_launch(self, behind: bool = False) -> float:
        """Cycles of storing the parts, and of a launch that adds them, or that is `behind` anyway
        and adds them besides."""
        added = self.moved + self.waits if behind else self.second_launch()
        return self.moved + added

    def by_block(self) -> float:
        """Cycles of storing the parts, and until the last blocks have added them."""
        rounds = max(1.0, self.tiles / GPU.multiprocessors)
        read = rounds * self.parts * self.tile_sums * self.itemsize / GPU.l2_rate_of_one
        return GPU.ticket + self.workspace / GPU.l2_rate + read

    def by_cluster(self) -> float:
        """Cycles of leaving and adding the parts within clusters."""
        return GPU.cluster + GPU.partial_wait * self.parts + self.moved


@dataclass(frozen=True)
class SplitKOptions:
    """Who may add parts besides a second launch: the last block, which draws `tickets`, or the
    blocks of `clusters`, which then do so wherever they can. The second launch may be one that is
    `behind` the contraction anyway."""

    tickets: bool = False
    clusters: bool = False
    behind: bool = False

    def best(self, partial: Partial) -> tuple[float, SplitK]:
        """The estimated cycles, and who takes them."""
        clusters = self.clusters and partial.clusters
        if clusters and adds_in_cluster(partial.parts, partial.itemsize):
            return partial.by_cluster(), SplitK.CLUSTER
        launch, block = partial.by_launch(self.behind), partial.by_block()
        if self.tickets and partial.draws and block < launch:
            return block, SplitK.BLOCK
        return launch, SplitK.LAUNCH


BY_LAUNCH = SplitKOptions()
"""A second launch adds all parts."""


def adds_in_cluster(splits: int, itemsize: int) -> bool:
    """Whether the blocks of a cluster can add so many parts, of sums of this many bytes."""
    return 1 < splits <= MOST_CLUSTERED and itemsize == 4


def lanes_of(splits: int, itemsize: int) -> int:
    """How many threads add the parts of one sum, whose elements are of `itemsize` bytes."""
    return LANES if splits >= MANY_PARTS and itemsize % 4 == 0 else 1
