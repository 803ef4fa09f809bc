"""The cache sizes of this machine's cores, as reported by the system."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

from graphc.base.target import Caches

CORE = Path("/sys/devices/system/cpu/cpu0")
"""Where Linux describes the first core. The sizes do not depend on the cores that a thread may
use."""
SMALLEST, LARGEST = 8 * 1024, 64 * 1024 * 1024
"""Plausible bytes of a core's cache, as a virtual machine may report anything."""


def read_caches(core: Path = CORE) -> Caches:
    """The data caches of `core` in bytes, of shared ones its share; the defaults where the system
    does not tell or reports implausible sizes."""
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
    """The number of CPUs in a list such as "0-3,8"."""
    spans = [span.partition("-") for span in cpus.split(",")]
    return sum(int(last or first) - int(first) + 1 for first, _, last in spans)
