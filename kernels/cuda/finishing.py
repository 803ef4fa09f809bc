"""Who adds the parts into which the k of a contraction is cut, and what that takes: a second launch
(splits.cuh), the last block of each tile (tickets.cuh), or the blocks of a cluster
(cluster_sums.cuh). All add a sum's parts in a fixed order."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from graphc.kernels.cuda.clusters import CLUSTERED, adds_in_cluster
from graphc.kernels.cuda.figures import BYTES, MULTIPROCESSORS

LAUNCH = 4500
"""Cycles that a second launch takes at least, as a node of a graph."""
GAP = 2400
"""Those of them in which it does nothing yet."""
WAIT = 34
"""Cycles that a thread waits for each partial sum: a latency of the cache for every eighth."""
MANY_PARTS = 24
"""Parts of k from which on several threads add those of one sum."""
LANES = 8
"""Those threads."""
DRAWN = 3000
"""Cycles from a block's last partial sum to the first that it has of others, and from its last sum
to the end: stores, an atomic operation, a load and stores reach the second-level cache one after
the other. An assumption: four latencies of 600 to 700 cycles, and barriers."""
ALONE = 48
"""Bytes per cycle that a multiprocessor reads from the second-level cache: three quarters of 64."""


class Finish(Enum):
    """Who adds the parts, as notes say it."""

    LAUNCH = "in order"
    BLOCK = "in order by the last block of a tile"
    CLUSTER = "in order within a cluster"


class AnyTile(Protocol):
    """What is asked of a tile."""

    @property
    def m(self) -> int: ...
    @property
    def n(self) -> int: ...
    @property
    def clusters(self) -> bool: ...
    @property
    def draws(self) -> bool: ...


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

    @staticmethod
    def of(tile: AnyTile, tiles: int, parts: int, sums: int, itemsize: int) -> Partial:
        draws, clusters = tile.draws and itemsize % 4 == 0, tile.clusters
        return Partial(parts, sums, itemsize, tiles, tile.m * tile.n, draws, clusters)

    @property
    def workspace(self) -> int:
        """Bytes of the parts of whole tiles."""
        return self.parts * self.tiles * self.tile_sums * self.itemsize

    def by_launch(self, behind: bool = False) -> float:
        """Cycles of storing the parts, and of a launch that adds them, or that is `behind` anyway
        and adds them besides."""
        moved = self.parts * self.sums * self.itemsize / BYTES
        waits = WAIT * self.parts / lanes_of(self.parts, self.itemsize)
        return moved + (moved + waits if behind else max(LAUNCH, GAP + moved + waits))

    def by_block(self) -> float:
        """Cycles of storing the parts, and until the last blocks have added them."""
        rounds = max(1.0, self.tiles / MULTIPROCESSORS)
        read = rounds * self.parts * self.tile_sums * self.itemsize / ALONE
        return DRAWN + self.workspace / BYTES + read

    def by_cluster(self) -> float:
        """Cycles of leaving and adding the parts within clusters."""
        return CLUSTERED + WAIT * self.parts + self.parts * self.sums * self.itemsize / BYTES


@dataclass(frozen=True)
class Finishes:
    """Who may add parts besides a second launch: the last block, which draws `tickets`, or the
    blocks of `clusters`, which then do so wherever they can. The second launch may be one that is
    `behind` the contraction anyway."""

    tickets: bool = False
    clusters: bool = False
    behind: bool = False

    def best(self, partial: Partial) -> tuple[float, Finish]:
        """The estimated cycles, and who takes them."""
        clusters = self.clusters and partial.clusters
        if clusters and adds_in_cluster(partial.parts, partial.itemsize):
            return partial.by_cluster(), Finish.CLUSTER
        launch, block = partial.by_launch(self.behind), partial.by_block()
        if self.tickets and partial.draws and block < launch:
            return block, Finish.BLOCK
        return launch, Finish.LAUNCH


BY_LAUNCH = Finishes()
"""A second launch adds all parts."""


def lanes_of(splits: int, itemsize: int) -> int:
    """How many threads add the parts of one sum, whose elements are of `itemsize` bytes."""
    return LANES if splits >= MANY_PARTS and itemsize % 4 == 0 else 1
