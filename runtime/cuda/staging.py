"""Page-locked memory through which host arrays pass on their way to and from a device.

Copies from ordinary memory would wait for the device, or not wait where they must. A ring of two
halves lets the host write one while the device still reads the other.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from graphc.dtypes import Array
from graphc.state import ALIGNMENT

HALF_BYTES = 8 << 20


class Staging:
    """Copies between host arrays and addresses of a device, whose context is current in every
    call here."""

    def __init__(self, driver: Any) -> None:
        self._driver = driver
        self._halves = [_Half(driver) for _ in range(2)]
        self._down: Array = driver.pagelocked_empty(HALF_BYTES, np.uint8)

    def upload(self, address: int, array: Array, stream: Any) -> None:
        """Copy a C-contiguous array to the device, in the order of `stream`. The array may be
        changed as soon as this returns."""
        content = array.reshape(-1).view(np.uint8)
        start = 0
        while start < content.nbytes:
            half = self._halves[0]
            room = HALF_BYTES - half.used
            if room <= 0:
                self._turn(stream)
                continue
            piece = content[start : start + room]
            staged = half.memory[half.used : half.used + piece.nbytes]
            staged[...] = piece
            self._driver.memcpy_htod_async(address + start, staged, stream)
            half.used += -(-piece.nbytes // ALIGNMENT) * ALIGNMENT
            start += piece.nbytes

    def download(self, array: Array, address: int, stream: Any) -> None:
        """Copy what the device holds, after all that is on `stream`, into a C-contiguous array,
        and wait for it."""
        content = array.reshape(-1).view(np.uint8)
        for start in range(0, content.nbytes, HALF_BYTES):
            piece = content[start : start + HALF_BYTES]
            staged = self._down[: piece.nbytes]
            self._driver.memcpy_dtoh_async(staged, address + start, stream)
            stream.synchronize()
            piece[...] = staged

    def _turn(self, stream: Any) -> None:
        """Go on in the other half once the device has read it."""
        self._halves[0].done.record(stream)
        self._halves.reverse()
        half = self._halves[0]
        if half.recorded:
            half.done.synchronize()
        half.used = 0
        self._halves[1].recorded = True


class _Half:
    def __init__(self, driver: Any) -> None:
        self.memory: Array = driver.pagelocked_empty(HALF_BYTES, np.uint8)
        self.used = 0
        self.done = driver.Event(driver.event_flags.DISABLE_TIMING)
        self.recorded = False
