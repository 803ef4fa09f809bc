"""Connections between all ranks of a run, by TCP.

Rank 0 listens at a known address. Every other rank connects to it, says where it listens itself,
and gets the list of all. Then each pair of ranks makes two connections: one for data, one that says
that the other is alive. Whoever connects names the run's key, so that processes of another run, or
strangers, are turned away. Nothing that is received is executed or unpickled.
"""

from __future__ import annotations

import hashlib
import json
import os
import socket
import struct
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from graphc.base.errors import RunError

DATA, LIFE = 0, 1
"""The connections of a pair of ranks: for data, and for news of the other's end."""
_HELLO = struct.Struct("<16sIII")
"""The run's key, the rank, the kind of the connection (`_JOIN` for the first to rank 0), a port."""
_JOIN = 2
_LENGTH = struct.Struct("<Q")
MOST_NEWS = 1 << 24
"""The most bytes of a short message."""


@dataclass(frozen=True)
class Peers:
    """The connections of one rank, by the other ranks; None for itself."""

    data: Sequence[socket.socket | None]
    life: Sequence[socket.socket | None]

    def close(self) -> None:
        """Close all connections."""
        for connection in (*self.data, *self.life):
            if connection is not None:
                connection.close()


def connect(
    rank: int,
    ranks: int,
    address: str,
    key: str,
    seconds: float,
    listener: socket.socket | None = None,
) -> Peers:
    """Return the connections of this rank to all others.

    Args:
        rank: The number of this process.
        ranks: The number of processes.
        address: Where rank 0 listens, "host:port".
        key: What all processes of the run know, and no others.
        seconds: How long to wait for the others.
        listener: On rank 0, what already listens at the address, if anything does.

    Raises:
        RunError: Some ranks do not come in time; the message names them.
    """
    digest = hashlib.sha256(key.encode()).digest()[:16]
    meeting = _Meeting(rank, ranks, digest, time.monotonic() + seconds)
    try:
        if rank:
            return meeting.join(*_parts(address))
        with listener or socket.create_server(_parts(address), backlog=4 * ranks) as own:
            return meeting.host(own)
    except OSError as problem:
        raise RunError(
            f"rank {rank} of {ranks} waited {seconds:g} seconds at {address} for "
            f"{meeting.missing()}: {problem.strerror or problem}"
        ) from None


def send_news(connection: socket.socket, news: Any) -> None:
    """Send a small value of JSON."""
    text = json.dumps(news).encode()
    connection.sendall(_LENGTH.pack(len(text)) + text)


def receive_news(connection: socket.socket) -> Any:
    """Return a small value of JSON. Raises EOFError if the other end is gone."""
    (size,) = _LENGTH.unpack(_exactly(connection, _LENGTH.size))
    if size > MOST_NEWS:
        raise EOFError
    return json.loads(_exactly(connection, size))


class _Meeting:
    """The beginning of a run, as seen by one rank."""

    def __init__(self, rank: int, ranks: int, key: bytes, until: float) -> None:
        self.rank, self.ranks, self.key, self.until = rank, ranks, key, until
        self.found: dict[tuple[int, int], socket.socket] = {}
        """The connections by (the other rank, kind)."""
        self.joined: dict[int, tuple[socket.socket, tuple[str, int]]] = {}
        """On rank 0: the first connection of each rank, and where that rank listens."""

    def missing(self) -> str:
        """The ranks that are not connected, in words."""
        known = {other for other, _ in self.found} | set(self.joined) | {self.rank}
        ranks = [str(r) for r in range(self.ranks) if r not in known]
        return f"{'rank' if len(ranks) == 1 else 'ranks'} {', '.join(ranks)}" if ranks else ""

    def host(self, listener: socket.socket) -> Peers:
        """What rank 0 does."""
        while len(self.joined) < self.ranks - 1:
            connection, (rank, kind, port) = self.accepted(listener)
            if kind != _JOIN:
                connection.close()
                continue
            self.joined[rank] = connection, (connection.getpeername()[0], port)
        places = [self.joined[r][1] if r else ("", 0) for r in range(self.ranks)]
        for first, _ in self.joined.values():
            send_news(first, places)
        self.accept_others(listener)
        for first, _ in self.joined.values():
            first.close()
        return self.peers()

    def join(self, host: str, port: int) -> Peers:
        """What every other rank does."""
        first = self.connected(host, port)
        with (
            first,
            socket.create_server((first.getsockname()[0], 0), backlog=4 * self.ranks) as own,
        ):
            first.sendall(_HELLO.pack(self.key, self.rank, _JOIN, own.getsockname()[1]))
            first.settimeout(self.left())
            try:
                places = receive_news(first)
            except EOFError:
                raise OSError("rank 0 closed the connection") from None
            for other in range(self.rank):
                place = (host, port) if other == 0 else places[other]
                for kind in (DATA, LIFE):
                    connection = self.connected(*place)
                    connection.sendall(_HELLO.pack(self.key, self.rank, kind, 0))
                    self.found[other, kind] = connection
            self.accept_others(own)
        return self.peers()

    def accept_others(self, listener: socket.socket) -> None:
        """Take the connections of all ranks above."""
        while len(self.found) < 2 * (self.ranks - 1):
            connection, (rank, kind, _) = self.accepted(listener)
            if kind == _JOIN or rank <= self.rank or (rank, kind) in self.found:
                connection.close()
                continue
            self.found[rank, kind] = connection

    def accepted(self, listener: socket.socket) -> tuple[socket.socket, tuple[int, int, int]]:
        """The next connection of this run, and (rank, kind, port) as it says."""
        while True:
            listener.settimeout(self.left())
            connection, _ = listener.accept()
            connection.settimeout(min(5.0, self.left()))
            try:
                key, rank, kind, port = _HELLO.unpack(_exactly(connection, _HELLO.size))
            except (OSError, EOFError):
                connection.close()
                continue
            if key == self.key and rank < self.ranks and kind in (DATA, LIFE, _JOIN):
                return connection, (rank, kind, port)
            connection.close()

    def connected(self, host: str, port: int) -> socket.socket:
        """A connection to another rank, which may not listen yet."""
        while True:
            try:
                return socket.create_connection((host, port), timeout=self.left())
            except ConnectionRefusedError:
                if self.left() < 0.1:
                    raise
                time.sleep(0.02)

    def left(self) -> float:
        """The seconds that are left. Raises TimeoutError if there are none."""
        left = self.until - time.monotonic()
        if left <= 0:
            raise TimeoutError("timed out")
        return left

    def peers(self) -> Peers:
        """The connections, without delays of small messages and without limits of time."""
        for connection in self.found.values():
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.settimeout(None)
        rows = [[self.found.get((r, kind)) for r in range(self.ranks)] for kind in (DATA, LIFE)]
        return Peers(*rows)


def _parts(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host, int(port)


def _exactly(connection: socket.socket, size: int) -> bytes:
    """The next `size` bytes. Raises EOFError at the end."""
    parts: list[bytes] = []
    while size:
        part = connection.recv(min(size, 1 << 20))
        if not part:
            raise EOFError
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def listen(host: str) -> tuple[socket.socket, str]:
    """Return what listens at a free port of this host, and its address, for rank 0."""
    listener = socket.create_server((host, 0), backlog=1024)
    return listener, f"{host}:{listener.getsockname()[1]}"


def free_address(host: str) -> str:
    """Return "host:port" of a port that nothing listens at."""
    listener, address = listen(host)
    listener.close()
    return address


def fresh_key() -> str:
    """Return a key for a new run."""
    return os.urandom(16).hex()
