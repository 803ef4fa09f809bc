"""What a process holds: memory, files, threads, mappings; and whether that stays flat."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from graphc.runtime.cpu.addresses import ARENA

KIB = 1024


class SoakError(Exception):
    """Something was lost, torn, leaked or unclear; the message says what."""


@dataclass(frozen=True)
class Vitals:
    """What this process holds at one moment."""

    resident: int
    """Bytes of memory."""
    files: int
    """Open file descriptors."""
    threads: int
    """Threads."""
    mappings: int
    """Mappings of memory, which loaded objects are among."""
    arena: int
    """Bytes of the work memory that programs on the CPU share."""


def vitals() -> Vitals:
    """Return what this process holds now (Linux)."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    maps = Path("/proc/self/maps").read_text().count("\n")
    threads, files = len(os.listdir("/proc/self/task")), len(os.listdir("/proc/self/fd"))
    page = os.sysconf("SC_PAGE_SIZE")
    return Vitals(pages * page, files, threads, maps, ARENA.memory.nbytes)


SLACK = {"resident": 1 << 20, "threads": 1}
"""How much more later vitals may be: a thread that has been joined may be there for a moment."""


def check_flat(seen: Iterable[Vitals], slack: Mapping[str, int] = SLACK) -> dict[str, int]:
    """Compare later vitals with the first ones.

    Returns:
        The growth of each from the first to the last, and the largest resident size.

    Raises:
        SoakError: A number has grown by more than its `slack`, or at all where it has none.
    """
    first, *later = seen
    grown: dict[str, int] = {}
    for name, begin in asdict(first).items():
        last = [getattr(each, name) for each in later]
        grown[f"{name} grown"] = last[-1] - begin
        if max(last) > begin + slack.get(name, 0):
            raise SoakError(f"{name} was {begin}, then {last}")
    return {**grown, "resident KiB": max(each.resident for each in later) // KIB}


def check(condition: bool, message: str) -> None:
    """Raise SoakError with the message unless the condition holds."""
    if not condition:
        raise SoakError(message)
