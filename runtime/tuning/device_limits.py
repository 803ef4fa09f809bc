"""Limits of a device, which a profile compares kernels with."""

from __future__ import annotations

import ctypes
import functools
from dataclasses import dataclass

from graphc.base.target import CPU, kind_of
from graphc.runtime.compilers import cache
from graphc.runtime.compilers.shared_objects import CppSource, build
from graphc.runtime.compilers.shipped import PLAYER_SOURCE
from graphc.runtime.tuning.stream_autotuner import cpu_name

SOURCE = PLAYER_SOURCE.parent / "limits.cpp"


@dataclass(frozen=True)
class DeviceLimits:
    """The peak rates of a device."""

    flops: float
    """Floating-point operations per microsecond."""
    bytes: float
    """Bytes per microsecond."""
    origin: str
    """Where the figures come from."""

    def share(self, flops: int, nbytes: int, microseconds: float) -> float:
        """The fraction of the time that the limiting rate, arithmetic or memory, would need. Arrays
        that stay in caches may exceed 1."""
        least = max(flops / self.flops, nbytes / self.bytes)
        return least / microseconds if microseconds else 0.0


def limits_of(device: str, threads: int) -> DeviceLimits:
    """The limits of a device.

    Those of this machine's CPU are measured for `threads` in some tenths of a second; the best
    result ever seen counts, since others may use the machine. Those of a GPU come from its data
    sheet.
    """
    if kind_of(device) is not CPU:
        rates = kind_of(device).rates
        return DeviceLimits(rates.flops, rates.bytes, "estimated")
    key = cache.choice_key("limits", cpu_name(threads))
    library = _library()
    flops, nbytes = library.graphc_flops(threads) / 1e6, library.graphc_bytes(threads) / 1e6
    best = cache.recall_choice(key) or (0.0, 0.0)
    found = max(flops, best[0]), max(nbytes, best[1])
    cache.remember_choice(key, found)
    return DeviceLimits(*found, origin="measured")


@functools.cache
def _library() -> ctypes.CDLL:
    source = CppSource("limits", SOURCE.read_text(), "the machine's limits", flags=("-pthread",))
    (library,) = build([source], "")
    library.graphc_flops.restype = library.graphc_bytes.restype = ctypes.c_double
    return library
