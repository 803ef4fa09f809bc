"""Find the other ranks: by mpiexec, or by an address."""

from __future__ import annotations

import functools

from graphc.base import config
from graphc.base.errors import GraphError
from graphc.parallel import mesh
from graphc.parallel.group import ALONE, Group
from graphc.parallel.mpi import join_mpi, under_mpi
from graphc.parallel.tcp import TcpTransport

TRANSPORTS = ("mpi", "tcp", "none")
"""The transports that `join` takes by name."""


def join(transport: str | None, timeout: float) -> Group:
    """Return the group of this process, the same for each call of a transport.

    Args:
        transport: "mpi", "tcp", "none", or None: MPI under `mpiexec`, else TCP if GRAPHC_ADDRESS is
            set, else a run of one rank.
        timeout: Seconds that a rank waits for others.

    Raises:
        GraphError: The transport is unknown, or the environment lacks what TCP needs.
        RunError: Others do not come, or a package is missing.
    """
    if transport not in (None, *TRANSPORTS):
        raise GraphError(f"transport: expected mpi, tcp, none or None, got {transport!r}")
    chosen = transport or ("mpi" if under_mpi() else "tcp" if config.ranks() else "none")
    return ALONE if chosen == "none" else _joined(chosen, timeout)


@functools.cache
def _joined(transport: str, timeout: float) -> Group:
    group = _over_mpi(timeout) if transport == "mpi" else _over_tcp(timeout)
    group.end_with_process()
    return group


def _over_mpi(timeout: float) -> Group:
    return Group(*join_mpi(timeout))


def _over_tcp(timeout: float) -> Group:
    found = config.ranks()
    if found is None:
        raise GraphError(
            "transport: tcp expects GRAPHC_ADDRESS, GRAPHC_RANK and GRAPHC_RANKS in the environment"
        )
    rank, ranks, address, key = found
    peers = mesh.connect(rank, ranks, address, key, timeout)
    return Group(TcpTransport(rank, peers, timeout), peers)
