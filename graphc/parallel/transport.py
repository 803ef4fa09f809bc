"""What moves bytes between ranks: the protocol, and that of a run of one rank."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Protocol

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]


class LostError(Exception):
    """A rank does not take part any more."""

    def __init__(self, rank: int | None, what: str) -> None:
        super().__init__(what)
        self.rank = rank
        """Its number, if it is known."""


class Transport(Protocol):
    """Moves arrays of bytes (u8, contiguous) between ranks.

    All ranks call the same methods in the same order, one at a time, from any thread; `send` and
    `receive` are called by two ranks alone, in one order on both. Methods return when the arrays
    are complete. They sleep while they wait, and raise LostError if a rank is gone, or when `wake`
    was called meanwhile.
    """

    name: str
    """What users call it."""
    rank: int
    """The number of this process."""
    ranks: int
    """The number of processes."""

    def all_to_all(self, source: Array, bounds: Sequence[int], target: Array) -> None:
        """Send each rank its slice, and receive one's own slice of every rank.

        Args:
            source: The bytes of all slices; that of rank r is bounds[r] to bounds[r + 1].
            bounds: Those of the slices, one more than there are ranks.
            target: Receives rank r's bytes of this rank's slice in row r, u8 [ranks, size]; its own
                row too.
        """

    def all_gather(self, whole: Array, bounds: Sequence[int]) -> None:
        """Let each rank's slice of `whole` be that of the rank; one's own is there already."""

    def broadcast(self, array: Array, root: int = 0) -> None:
        """Let `array` be that of rank `root`."""

    def send(self, array: Array, peer: int) -> None:
        """Send an array to another rank, which may have to receive it before this returns."""

    def receive(self, array: Array, peer: int) -> None:
        """Let `array` be what another rank sends."""

    def wake(self) -> None:
        """Let a method that waits in another thread raise LostError."""

    def close(self, failed: bool) -> None:
        """End: nothing is called afterwards. `failed` says that other ranks may be gone."""


class Alone:
    """The transport of a run of one rank."""

    name = "none"
    rank, ranks = 0, 1

    def all_to_all(self, source: Array, bounds: Sequence[int], target: Array) -> None:
        target[0] = source

    def all_gather(self, whole: Array, bounds: Sequence[int]) -> None:
        pass

    def broadcast(self, array: Array, root: int = 0) -> None:
        pass

    def send(self, array: Array, peer: int) -> None:
        pass

    def receive(self, array: Array, peer: int) -> None:
        pass

    def wake(self) -> None:
        pass

    def close(self, failed: bool) -> None:
        pass


def collect(transport: Transport, text: bytes) -> list[bytes]:
    """Return what each rank gives, in the order of the ranks."""
    ranks, rank = transport.ranks, transport.rank
    sizes = np.zeros(ranks, np.int64)
    sizes[rank] = len(text)
    transport.all_gather(sizes.view(np.uint8), [8 * r for r in range(ranks + 1)])
    bounds = [0, *np.cumsum(sizes).tolist()]
    whole = np.zeros(bounds[-1], np.uint8)
    whole[bounds[rank] : bounds[rank + 1]] = np.frombuffer(text, np.uint8)
    transport.all_gather(whole, bounds)
    return [whole[a:b].tobytes() for a, b in pairwise(bounds)]
