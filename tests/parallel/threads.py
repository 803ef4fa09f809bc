"""Ranks that are threads of the test's process."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from graphc.parallel import mesh
from graphc.parallel.group import Group
from graphc.parallel.tcp import TcpTransport

SECONDS = 20.0
"""How long ranks wait for each other."""


@contextmanager
def groups(ranks: int, seconds: float = SECONDS) -> Iterator[list[Group]]:
    """The group of each rank, over TCP."""
    listener, address = mesh.listen("127.0.0.1")
    key = mesh.fresh_key()

    def joined(rank: int) -> Group:
        own = listener if rank == 0 else None
        peers = mesh.connect(rank, ranks, address, key, SECONDS, own)
        return Group(TcpTransport(rank, peers, seconds), peers)

    found = at_once(ranks, joined)
    try:
        yield found
    finally:
        for group in found:
            group.end()


def at_once(ranks: int, call: Callable[[int], Any]) -> list[Any]:
    """What a call gives on each rank, all at once; the first error is raised."""
    results: list[Any] = [None] * ranks
    errors: list[BaseException] = []

    def run(rank: int) -> None:
        try:
            results[rank] = call(rank)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(ranks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    if errors:
        raise errors[0]
    return results
