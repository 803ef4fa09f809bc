"""A transport over TCP, by sockets of the standard library."""

from __future__ import annotations

import selectors
import socket
import time
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from graphc.parallel.mesh import Peers
from graphc.parallel.transport import Array, LostError

PART = 1 << 20
"""The most bytes that one call of the system moves."""
_NOTHING = np.empty(0, np.uint8)


class TcpTransport:
    """Moves arrays over one connection per pair of ranks.

    A rank sends to all others and receives from all of them at once, by non-blocking calls.
    """

    name = "tcp"

    def __init__(self, rank: int, peers: Peers, timeout: float) -> None:
        self.rank, self.ranks, self.timeout = rank, len(peers.data), timeout
        self._peers = peers
        self._woken, self._wakes = socket.socketpair()
        for connection in peers.data:
            if connection is not None:
                connection.setblocking(False)

    def all_to_all(self, source: Array, bounds: Sequence[int], target: Array) -> None:
        pairs = pairwise(bounds)
        slices = [source[start:stop] for start, stop in pairs]
        target[self.rank] = slices[self.rank]
        self._swap(slices, [*target])

    def all_gather(self, whole: Array, bounds: Sequence[int]) -> None:
        slices = [whole[start:stop] for start, stop in pairwise(bounds)]
        self._swap([slices[self.rank]] * self.ranks, slices)

    def broadcast(self, array: Array, root: int = 0) -> None:
        mine = [array if self.rank == root else _NOTHING] * self.ranks
        theirs = [array if r == root != self.rank else _NOTHING for r in range(self.ranks)]
        self._swap(mine, theirs)

    def send(self, array: Array, peer: int) -> None:
        nothing = [_NOTHING] * self.ranks
        self._swap([array if r == peer else _NOTHING for r in range(self.ranks)], nothing)

    def receive(self, array: Array, peer: int) -> None:
        nothing = [_NOTHING] * self.ranks
        self._swap(nothing, [array if r == peer else _NOTHING for r in range(self.ranks)])

    def wake(self) -> None:
        self._wakes.send(b"!")

    def close(self, failed: bool) -> None:
        self._peers.close()
        self._woken.close()
        self._wakes.close()

    def _swap(self, sends: Sequence[Array], receives: Sequence[Array]) -> None:
        """Send one array to each other rank, and receive one of each."""
        others = [(r, c) for r, c in enumerate(self._peers.data) if c is not None]
        out = {r: _bytes(sends[r]) for r, _ in others if sends[r].size}
        into = {r: _bytes(receives[r]) for r, _ in others if receives[r].size}
        until = time.monotonic() + self.timeout
        with selectors.DefaultSelector() as selector:
            selector.register(self._woken, selectors.EVENT_READ)
            for r, connection in others:
                if events := _events(r, out, into):
                    selector.register(connection, events, r)
            while out or into:
                found = selector.select(max(0.0, until - time.monotonic()))
                if not found:
                    raise LostError(
                        None, f"{self.timeout:g} seconds went by without {_named({*out, *into})}"
                    )
                for key, events in found:
                    if key.data is None:
                        raise LostError(None, "another rank ended")
                    rank, peer = key.data, self._peers.data[key.data]
                    assert peer is not None, "a rank has no connection to itself"
                    _move(rank, peer, events, out, into)
                    left = _events(rank, out, into)
                    if not left:
                        selector.unregister(peer)
                    elif left != key.events:
                        selector.modify(peer, left, rank)


def _bytes(array: Array) -> memoryview:
    whole: Any = array
    return memoryview(whole).cast("B")


def _events(rank: int, out: dict[int, memoryview], into: dict[int, memoryview]) -> int:
    """What is awaited of a rank's connection."""
    return selectors.EVENT_WRITE * (rank in out) | selectors.EVENT_READ * (rank in into)


def _move(
    rank: int,
    connection: socket.socket,
    events: int,
    out: dict[int, memoryview],
    into: dict[int, memoryview],
) -> None:
    """Send and receive what a connection takes at once; what is complete is removed."""
    try:
        if events & selectors.EVENT_WRITE and rank in out:
            sent = connection.send(out[rank][:PART])
            _advance(out, rank, sent)
        if events & selectors.EVENT_READ and rank in into:
            got = connection.recv_into(into[rank][:PART])
            if not got:
                raise ConnectionResetError
            _advance(into, rank, got)
    except BlockingIOError:
        pass
    except (ConnectionResetError, BrokenPipeError):
        raise LostError(rank, f"rank {rank} closed its connection") from None
    except OSError as problem:
        raise LostError(rank, f"rank {rank}: {problem.strerror}") from None


def _advance(views: dict[int, memoryview], rank: int, count: int) -> None:
    views[rank] = views[rank][count:]
    if not views[rank]:
        del views[rank]


def _named(ranks: set[int]) -> str:
    numbers = ", ".join(map(str, sorted(ranks)))
    return f"rank {numbers}" if len(ranks) == 1 else f"ranks {numbers}"
