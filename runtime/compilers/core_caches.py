"""The caches of this machine's cores, as the system tells of them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

from graphc.base.target import Caches

CORE = Path("/sys/devices/system/cpu/cpu0")
"""What Linux says of the first core. It is the same for every thread, whatever cores it may use."""
SMALLEST, LARGEST = 8 * 1024, 64 * 1024 * 1024
"""Bytes that cores' caches have: a virtual machine may say anything."""


def read_caches(core: Path = CORE) -> Caches:
    """The data caches of `core`, of shared ones its share in bytes; the defaults where the system
    does not say, or what no core has."""
    sizes = dict(_sizes(core))
    found = Caches(sizes.get(1, Caches.first), sizes.get(2, Caches.second))
    return found if SMALLEST <= found.first < found.second <= LARGEST else Caches()


def _sizes(core: Path) -> Iterator[tuple[int, int]]:
    """(level, the core's bytes) of each cache that holds data."""
    for index in sorted(core.glob("cache/index*")):
        try:
            kind, level, size, shared = (
                (index / name).read_text().strip()
                for name in ("type", "level", "size", "shared_cpu_list")
            )
            if kind in ("Data", "Unified"):
                threads = (core / "topology" / "thread_siblings_list").read_text().strip()
                cores = math.ceil(_count(shared) / _count(threads))
                yield int(level), int(size.removesuffix("K")) * 1024 // cores
        except (OSError, ValueError):
            continue


def _count(cpus: str) -> int:
    """How many there are in a list such as "0-3,8"."""
    spans = [span.partition("-") for span in cpus.split(",")]
    return sum(int(last or first) - int(first) + 1 for first, _, last in spans)
