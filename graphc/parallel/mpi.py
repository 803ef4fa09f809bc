"""A transport over MPI, by mpi4py's non-blocking collectives."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Sequence
from dataclasses import replace
from importlib import import_module
from itertools import pairwise
from typing import Any

from graphc.base.errors import RunError
from graphc.parallel import mesh
from graphc.parallel.transport import Array, LostError

RANK_VARIABLES = ("PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK", "MV2_COMM_WORLD_RANK")
"""Those that `mpiexec` sets for its processes."""
PAUSE, LOOKS = 10e-6, 32
"""Seconds that a rank sleeps between looks at a collective, and how many looks follow each other:
each moves 64 KB on, if the other side is there."""
LAST_WORDS = 1.0
"""Seconds that the others have to say what happened before the run is aborted."""


def under_mpi() -> bool:
    """Return whether `mpiexec` has started this process."""
    return any(name in os.environ for name in RANK_VARIABLES)


class MpiTransport:
    """Moves arrays within a communicator of mpi4py."""

    name = "mpi"

    def __init__(self, communicator: Any, timeout: float) -> None:
        self.rank, self.ranks = communicator.Get_rank(), communicator.Get_size()
        self.timeout = timeout
        self._communicator = communicator
        self._woken = False

    def all_to_all(self, source: Array, bounds: Sequence[int], target: Array) -> None:
        counts = [stop - start for start, stop in pairwise(bounds)]
        size = counts[self.rank]
        places = [size * r for r in range(self.ranks)]
        self._wait(
            self._communicator.Ialltoallv(
                (source, (counts, list(bounds[:-1]))), (target, ([size] * self.ranks, places))
            )
        )

    def all_gather(self, whole: Array, bounds: Sequence[int]) -> None:
        counts = [stop - start for start, stop in pairwise(bounds)]
        in_place = _mpi().IN_PLACE
        self._wait(self._communicator.Iallgatherv(in_place, (whole, (counts, list(bounds[:-1])))))

    def broadcast(self, array: Array, root: int = 0) -> None:
        self._wait(self._communicator.Ibcast(array, root))

    def send(self, array: Array, peer: int) -> None:
        self._wait(self._communicator.Isend(array, peer))

    def receive(self, array: Array, peer: int) -> None:
        self._wait(self._communicator.Irecv(array, peer))

    def wake(self) -> None:
        self._woken = True

    def close(self, failed: bool) -> None:
        """End the run at once if ranks are gone, since `MPI_Finalize` would wait for them."""
        if failed:
            time.sleep(LAST_WORDS)
            self._communicator.Abort(1)

    def _wait(self, request: Any) -> None:
        """Look whether it has ended, seldom: a core that spins is missing elsewhere."""
        until = time.monotonic() + self.timeout
        while not any(request.Test() for _ in range(LOOKS)):
            if self._woken:
                raise LostError(None, "another rank ended")
            if time.monotonic() > until:
                raise LostError(None, f"{self.timeout:g} seconds went by without another rank")
            time.sleep(PAUSE)


def join_mpi(timeout: float) -> tuple[MpiTransport, mesh.Peers]:
    """Return the transport of all processes of `mpiexec`, and connections that tell of their ends.

    Raises:
        RunError: mpi4py or an MPI library is missing.
    """
    communicator = _mpi().COMM_WORLD.Dup()
    transport = MpiTransport(communicator, timeout)
    listener, place = None, ("", "")
    host = _own_host(communicator)
    if transport.rank == 0:
        listener, address = mesh.listen(host)
        place = address, mesh.fresh_key()
    address, key = communicator.bcast(place)
    peers = mesh.connect(transport.rank, transport.ranks, address, key, timeout, listener)
    for connection in filter(None, peers.data):  # MPI moves the data
        connection.close()
    return transport, replace(peers, data=())


def _own_host(communicator: Any) -> str:
    """Where the others reach rank 0: this machine alone if all of them are on it."""
    shared = communicator.Split_type(_mpi().COMM_TYPE_SHARED)
    alone = shared.Get_size() == communicator.Get_size()
    return "127.0.0.1" if alone else socket.gethostbyname(socket.gethostname())


def _mpi() -> Any:
    try:
        return import_module("mpi4py.MPI")
    except (ImportError, RuntimeError) as problem:
        raise RunError(
            f"data-parallel training by MPI needs mpi4py and an MPI library "
            f"(pip install 'graphc[mpi]'): {problem}"
        ) from None
