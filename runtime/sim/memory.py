"""Memory of one simulated device: its allocations, and the host's page-locked arrays."""

from __future__ import annotations

import bisect
import weakref
from typing import Any

import numpy as np

from graphc.runtime.sim import native
from graphc.runtime.sim.errors import LogicError, MemoryError
from graphc.runtime.sim.queues import Bytes

HOST = 0
"""The owner of all bytes of the host."""


class Memory:
    """`total` bytes, of which `used` are allocated."""

    def __init__(self, total: int) -> None:
        self.total, self.used = total, 0
        self._starts: list[int] = []
        self._sizes: dict[int, int] = {}
        self._pagelocked: dict[int, int] = {}

    def allocate(self, nbytes: int) -> int:
        """The address of `nbytes` new bytes, filled with 0xFF."""
        if nbytes <= 0:
            raise LogicError(f"mem_alloc: expected at least 1 byte, got {nbytes}")
        if nbytes > self.total - self.used:
            free = self.total - self.used
            raise MemoryError(f"mem_alloc: {nbytes} bytes, of {self.total} are {free} free")
        address = native.allocate(nbytes)
        bisect.insort(self._starts, address)
        self._sizes[address] = nbytes
        self.used += nbytes
        return address

    def free(self, address: int) -> None:
        self._starts.remove(address)
        self.used -= self._sizes.pop(address)
        native.free(address)

    def owner(self, place: Bytes, name: str) -> int:
        """The start of the allocation that contains the bytes; HOST for those of the host. Raises
        LogicError for bytes of the device that are not allocated."""
        if not native.on_device(place.start):
            return HOST
        index = bisect.bisect_right(self._starts, place.start) - 1
        start = self._starts[index] if index >= 0 else 0
        if index < 0 or place.stop > start + self._sizes[start]:
            size = place.stop - place.start
            raise LogicError(
                f"{name}: the {size} bytes of {place.name or hex(place.start)} do not lie in one "
                "allocation"
            )
        return start

    def pagelocked(self, shape: Any, dtype: Any) -> np.ndarray[Any, Any]:
        """A page-locked array, filled with 0xFF bytes."""
        array: np.ndarray[Any, Any] = np.empty(shape, dtype)
        base = np.full(max(array.nbytes, 1), 0xFF, np.uint8)
        start = base.ctypes.data
        self._pagelocked[start] = base.nbytes
        weakref.finalize(base, self._pagelocked.pop, start, None)
        memory: np.ndarray[Any, Any] = base[: array.nbytes].view(array.dtype)
        return memory.reshape(array.shape)

    def is_pagelocked(self, array: np.ndarray[Any, Any]) -> bool:
        """Whether all bytes of a contiguous array are page-locked."""
        start, stop = array.ctypes.data, array.ctypes.data + array.nbytes
        return any(s <= start and stop <= s + n for s, n in self._pagelocked.items())
