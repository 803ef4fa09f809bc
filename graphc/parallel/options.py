"""`DataParallel`, what users give to `compile`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from graphc.base import config
from graphc.base.errors import GraphError

if TYPE_CHECKING:
    from graphc.parallel.group import Group

FEWEST, MOST = 1 << 18, 1 << 25
"""Bytes of the smallest and the largest bucket that are chosen by measurement."""
LATENCY_SHARE = 10
"""A bucket takes so many times as long as its latency."""


class DataParallel:
    """Training by several processes, the ranks, each with its part of the batch.

    The first one that is made in a process waits for the other ranks.

    Args:
        shards: The number of parts of the whole batch whose gradients are added in order: the bits
            of a run are then those of every number of ranks that divides it. By default each rank
            has one part, and the bits depend on the number of ranks.
        sync_batch_norm: Whether batch normalization uses the statistics of the whole batch, rather
            than those of each rank's part.
        shard_optimizer_state: Whether each rank keeps, of every moment of the optimizer, only the
            part that it updates (ZeRO, stage 1). On CPUs the bits are the same. The optimizer must
            update each element by itself, as SGD and Adam do, and neither clip nor average.
        transport: "mpi", "tcp" or "none"; by default MPI under `mpiexec`, else TCP if
            GRAPHC_ADDRESS is set, else none.
        overlap: Whether gradients are sent while others are computed; if not, one bucket holds all.
        timeout: The seconds that a rank waits for others.

    Attributes:
        rank: The number of this process, from 0 up.
        ranks: The number of processes.

    Raises:
        GraphError: An argument is wrong.
        RunError: The other ranks do not come.

    Example:
        >>> parallel = graphc.DataParallel()
        >>> parallel.rank, parallel.ranks
        (0, 1)
    """

    def __init__(
        self,
        *,
        shards: int | None = None,
        sync_batch_norm: bool = False,
        shard_optimizer_state: bool = False,
        transport: str | None = None,
        overlap: bool = True,
        timeout: float = 300.0,
    ) -> None:
        if shards is not None and (isinstance(shards, bool) or not isinstance(shards, int)):
            raise GraphError(f"shards: expected a whole number or None, got {shards!r}")
        from graphc.parallel.join import join

        self.group: Group = join(transport, float(timeout))
        self.rank, self.ranks = self.group.rank, self.group.ranks
        if shards is not None and (shards < 1 or shards % self.ranks):
            raise GraphError(f"shards: expected a multiple of the {self.ranks} ranks, got {shards}")
        self.shards, self.sync_batch_norm, self.overlap = shards, bool(sync_batch_norm), overlap
        self.shard_optimizer_state = bool(shard_optimizer_state)

    @property
    def active(self) -> bool:
        """Whether programs differ from those of a process that trains by itself."""
        return self.ranks > 1 or self.shards is not None

    @property
    def divides_state(self) -> bool:
        """Whether each rank has a part of the optimizer's state."""
        return self.shard_optimizer_state and self.ranks > 1

    @property
    def pieces(self) -> int:
        """The parts of the batch that this rank keeps apart."""
        return 1 if self.shards is None else self.shards // self.ranks

    @property
    def parts(self) -> int:
        """The parts of the whole batch whose gradients are added."""
        return self.ranks if self.shards is None else self.shards

    def part(self, size: int) -> slice:
        """Return which of `size` samples, the whole batch, this rank has.

        Args:
            size: The samples of the whole batch.

        Raises:
            GraphError: The ranks do not divide it.

        Example:
            >>> graphc.DataParallel().part(8)
            slice(0, 8, None)
        """
        if size % self.ranks:
            raise GraphError(f"part: expected a multiple of the {self.ranks} ranks, got {size}")
        own = size // self.ranks
        return slice(self.rank * own, (self.rank + 1) * own)

    @property
    def described(self) -> str:
        """All that a program depends on, in a word."""
        flags = f"{self.sync_batch_norm}.{self.divides_state}"
        return f"{self.ranks}.{self.parts}.{flags}.{self.bucket_bytes()}"

    def bucket_bytes(self) -> int:
        """Return the bytes of a bucket: GRAPHC_BUCKET_BYTES, or as rank 0 measures.

        All ranks call this together, unless they overlap nothing.
        """
        wanted = config.bucket_bytes()
        if not self.overlap:
            return 1 << 62
        if wanted is not None or self.ranks == 1:
            return wanted or MOST
        latency, rate = self.group.measured
        wished = LATENCY_SHARE * latency * rate
        size = FEWEST
        while size < min(wished, MOST):
            size *= 2
        return size


def buckets(sizes: Sequence[int], limit: int) -> list[list[int]]:
    """Return the numbers of things in order, in groups of at most `limit`, or of one thing.

    Args:
        sizes: The size of each thing.
        limit: The largest size of a group.
    """
    groups: list[list[int]] = []
    held = 0
    for number, size in enumerate(sizes):
        if not groups or held + size > limit:
            groups.append([])
            held = 0
        groups[-1].append(number)
        held += size
    return groups
