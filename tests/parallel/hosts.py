"""Two hosts in one machine: network namespaces joined by a virtual cable, made without root."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pytest

ADDRESS = "10.0.0.1:5000"
"""Where rank 0 listens, on the first host."""
NAMES = ("left", "right")
"""The ends of the cable."""


@dataclass(frozen=True)
class Hosts:
    """The processes whose namespaces the hosts are, which end with the context that made them."""

    pids: tuple[int, int]

    def command(self, host: int, *command: str) -> list[str]:
        """A command as it is run on a host."""
        enter = ["nsenter", "-t", str(self.pids[host]), "-U", "-n", "--preserve-credentials"]
        return [*enter, "--", *command]

    def run(self, host: int, *command: str) -> None:
        """Run a command on a host."""
        subprocess.run(self.command(host, *command), check=True, capture_output=True, text=True)

    def unplug(self) -> None:
        """Pull the cable: no packet arrives any more, and no connection is closed."""
        self.run(0, "ip", "link", "set", NAMES[0], "down")


@contextlib.contextmanager
def two_hosts() -> Iterator[Hosts]:
    """Make hosts of the addresses 10.0.0.1 and 10.0.0.2, which reach nothing but each other.

    Skips where the system lacks the tools or does not allow namespaces.
    """
    for tool in ("unshare", "nsenter", "ip"):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not on the PATH")
    with contextlib.ExitStack() as stack:
        first = _namespace(stack, ["unshare", "--user", "--map-root-user", "--net"])
        inside = Hosts((first, first))
        second = _namespace(stack, inside.command(0, "unshare", "--net"))
        hosts = Hosts((first, second))
        cable = "ip", "link", "add", NAMES[0], "type", "veth", "peer", "name", NAMES[1]
        hosts.run(0, *cable, "netns", str(second))
        for host, name in enumerate(NAMES):
            hosts.run(host, "ip", "address", "add", f"10.0.0.{host + 1}/24", "dev", name)
            for end in (name, "lo"):
                hosts.run(host, "ip", "link", "set", end, "up")
        yield hosts


def _namespace(stack: contextlib.ExitStack, command: Sequence[str]) -> int:
    """The process of a new namespace, which ends when its input is closed."""
    pipe = subprocess.PIPE
    started = subprocess.Popen([*command, "cat"], stdin=pipe, stdout=pipe, stderr=pipe, text=True)
    stack.enter_context(started)
    assert started.stdin is not None
    assert started.stdout is not None
    with contextlib.suppress(BrokenPipeError):
        started.stdin.write("ready\n")
        started.stdin.flush()
    if not started.stdout.readline():
        assert started.stderr is not None
        pytest.skip(f"no namespaces here: {started.stderr.read().strip()}")
    return started.pid
