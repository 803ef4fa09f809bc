"""Page-locked staging memory between host arrays and a device.

Copies from ordinary memory would wait for the device, or not wait where they must. A ring of two
halves lets the host write one while the device still reads the other.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any

import numpy as np

from graphc.base.cached import cached_property
from graphc.base.cores import usable_cores
from graphc.base.dtypes import Array
from graphc.ir.state import ALIGNMENT

HALF_BYTES = 8 << 20
"""Bytes of each half."""
SHARED = 4 << 20
"""Bytes from which several threads copy a piece; for less, waking them takes as long."""
COPIERS = 4
"""Threads that copy a piece, the caller included, and at most half of the cores: one copies at 10
to 20 GB/s, while the bus to a GPU does about 50. On two cores a second one gains nothing."""


class Staging:
    """Copies between host arrays and device addresses. The device's context is current in every
    call."""

    def __init__(self, driver: Any) -> None:
        self._driver, self._size = driver, HALF_BYTES
        self._halves = [_Half(driver) for _ in range(2)]
        self._down: Array = driver.pagelocked_empty(HALF_BYTES, np.uint8)

    def upload(self, address: int, array: Array, stream: Any) -> None:
        """Copy a C-contiguous array to the device, in the order of `stream`. The array may be
        changed as soon as this returns."""
        content = array.reshape(-1).view(np.uint8)
        start = 0
        while start < content.nbytes:
            half = self._halves[0]
            free = self._size - half.used
            if free <= 0:
                self._advance(stream)
                continue
            piece = content[start : start + free]
            staged = half.memory[half.used : half.used + piece.nbytes]
            self._stage(staged, piece, address + start, stream)
            half.used += -(-piece.nbytes // ALIGNMENT) * ALIGNMENT
            start += piece.nbytes

    def _stage(self, staged: Array, piece: Array, address: int, stream: Any) -> None:
        """Copy a piece through page-locked memory. Several threads share a large one, and each part
        goes on to the device as soon as it is ready."""
        copiers = max(1, min(COPIERS, usable_cores() // 2)) if piece.nbytes >= SHARED else 1
        size = -(-piece.nbytes // (copiers * ALIGNMENT)) * ALIGNMENT
        first, *others = (
            slice(at, min(at + size, piece.nbytes)) for at in range(0, piece.nbytes, size)
        )
        copies = [self._pool.submit(np.copyto, staged[x], piece[x]) for x in others]
        try:
            staged[first] = piece[first]
            self._driver.memcpy_htod_async(address, staged[first], stream)
            for part, copy in zip(others, copies, strict=True):
                copy.result()
                self._driver.memcpy_htod_async(address + part.start, staged[part], stream)
        finally:
            wait(copies)

    @cached_property
    def _pool(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(COPIERS - 1, "graphc-staging")

    def download(self, array: Array, address: int, stream: Any) -> None:
        """Copy from the device, after all work on `stream`, into a C-contiguous array, and wait for
        it."""
        content = array.reshape(-1).view(np.uint8)
        for start in range(0, content.nbytes, self._size):
            piece = content[start : start + self._size]
            staged = self._down[: piece.nbytes]
            self._driver.memcpy_dtoh_async(staged, address + start, stream)
            stream.synchronize()
            piece[...] = staged

    def _advance(self, stream: Any) -> None:
        """Switch to the other half once the device has read it."""
        self._halves[0].done.record(stream)
        self._halves.reverse()
        half = self._halves[0]
        if half.recorded and not half.done.query():
            half.done.synchronize()
        half.used = 0
        self._halves[1].recorded = True


class _Half:
    def __init__(self, driver: Any) -> None:
        self.memory: Array = driver.pagelocked_empty(HALF_BYTES, np.uint8)
        self.used = 0
        self.done = driver.Event(driver.event_flags.DISABLE_TIMING)
        self.recorded = False
