"""Run a test's module on several ranks, by TCP or by mpiexec, within a time limit."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.parallel.hosts import ADDRESS, Hosts
from tests.tools import ROOT, missing, need_module

LIMIT = 120.0
"""Seconds that all ranks together may take."""


@dataclass(frozen=True)
class Ended:
    """What one rank left."""

    code: int
    out: str
    err: str

    @property
    def result(self) -> Any:
        """What the last line of its output says, as JSON."""
        assert self.code == 0, self.err
        return json.loads(self.out.splitlines()[-1])


def environment(more: Mapping[str, str] | None = None) -> dict[str, str]:
    """That of a rank: one thread each, this checkout, warnings being errors."""
    own = {"PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    return {**os.environ, **own, "GRAPHC_NUM_THREADS": "1", **(more or {})}


def over_tcp(
    ranks: int, module: str, *arguments: str, more: Mapping[str, str] | None = None
) -> list[Ended]:
    """Run a module on ranks that find each other at a free port, and wait for all of them."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
    return _ended(
        [_over_tcp(r, ranks, address, [], module, *arguments, more=more) for r in range(ranks)]
    )


@contextlib.contextmanager
def on_hosts(
    hosts: Hosts, places: Sequence[int], module: str, *arguments: str
) -> Iterator[Callable[[], list[Ended]]]:
    """Start a module on ranks, each on the host of its place; what is yielded waits for them."""
    begun = [
        _over_tcp(rank, len(places), ADDRESS, hosts.command(host), module, *arguments)
        for rank, host in enumerate(places)
    ]
    try:
        yield lambda: _ended(begun)
    finally:
        _kill(begun)


def _over_tcp(
    rank: int,
    ranks: int,
    address: str,
    prefix: Sequence[str],
    module: str,
    *arguments: str,
    more: Mapping[str, str] | None = None,
) -> subprocess.Popen[str]:
    names = {"GRAPHC_ADDRESS": address, "GRAPHC_RANK": str(rank), "GRAPHC_RANKS": str(ranks)}
    command = [*prefix, sys.executable, "-W", "error", "-m", module, *arguments]
    return _begun(command, {**(more or {}), **names})


def over_mpi(
    ranks: int, *arguments: str, more: Mapping[str, str] | None = None, folder: Path = ROOT
) -> Ended:
    """Run Python with these arguments on ranks of mpiexec."""
    # A rank that is killed ends the others by itself, rather than by mpiexec, in silence.
    command = [mpiexec(), "-disable-auto-cleanup", "-n", str(ranks)]
    command += [sys.executable, "-W", "error", *arguments]
    return _ended([_begun(command, more or {}, folder)])[0]


def mpiexec() -> str:
    """The path of mpiexec; else skips, or fails where CI=true."""
    need_module("mpi4py")
    found = shutil.which("mpiexec", path=f"{Path(sys.executable).parent}{os.pathsep}{os.defpath}")
    return found or missing("mpiexec")


def _begun(
    command: Sequence[str], more: Mapping[str, str], folder: Path = ROOT
) -> subprocess.Popen[str]:
    pipe = subprocess.PIPE
    return subprocess.Popen(
        command,
        cwd=folder,
        env=environment(more),
        stdout=pipe,
        stderr=pipe,
        text=True,
        start_new_session=True,
    )


def _ended(begun: Sequence[subprocess.Popen[str]]) -> list[Ended]:
    """What the processes left; those that take too long are killed with their children."""
    until = time.monotonic() + LIMIT
    found = []
    try:
        for process in begun:
            out, err = process.communicate(timeout=max(1.0, until - time.monotonic()))
            found.append(Ended(process.returncode, out, err))
    finally:
        _kill(begun)
    return found


def _kill(begun: Sequence[subprocess.Popen[str]]) -> None:
    for process in begun:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
