"""Copies and fills of the simulated driver, with PyCUDA's names and arguments.

A copy from the host checks that its source has not changed between the call and the copy; a copy to
the host first fills its destination with 0xFF bytes, which a host that does not wait will see.
"""

from __future__ import annotations

import ctypes
import zlib
from typing import Any

import numpy as np

from graphc.base.dtypes import Array
from graphc.runtime.sim import native
from graphc.runtime.sim.errors import LogicError
from graphc.runtime.sim.machine import SimulatedDevice
from graphc.runtime.sim.objects import Stream
from graphc.runtime.sim.queues import Bytes, StreamOperation


class CopyFunctions(SimulatedDevice):
    """The copy functions of `Simulator`. Addresses are integers or convertible by `int()`."""

    def memcpy_htod_async(self, dest: Any, src: Array, stream: Stream | None = None) -> None:
        """Copy a page-locked array to the device."""
        self._page_locked("memcpy_htod_async", src)
        self.put(stream, _to_device(int(dest), src))

    def memcpy_dtoh_async(self, dest: Array, src: Any, stream: Stream | None = None) -> None:
        """Copy from the device to a page-locked array."""
        self._page_locked("memcpy_dtoh_async", dest)
        self.put(stream, _to_host(dest, int(src)))

    def memcpy_dtod_async(
        self, dest: Any, src: Any, size: int, stream: Stream | None = None
    ) -> None:
        """Copy `size` bytes on the device."""
        self.put(stream, _on_device(int(dest), int(src), size))

    def memset_d8_async(
        self, dest: Any, data: int, count: int, stream: Stream | None = None
    ) -> None:
        """Fill `count` bytes."""
        self.put(stream, _fill(int(dest), data, count, 1))

    def memset_d32_async(
        self, dest: Any, data: int, count: int, stream: Stream | None = None
    ) -> None:
        """Fill `count` words of 4 bytes."""
        self.put(stream, _fill(int(dest), data, count, 4))

    def memcpy_htod(self, dest: Any, src: Array) -> None:
        self.run_now(_to_device(int(dest), src))

    def memcpy_dtoh(self, dest: Array, src: Any) -> None:
        self.run_now(_to_host(dest, int(src)))

    def memcpy_dtod(self, dest: Any, src: Any, size: int) -> None:
        self.run_now(_on_device(int(dest), int(src), size))

    def memset_d8(self, dest: Any, data: int, count: int) -> None:
        self.run_now(_fill(int(dest), data, count, 1))

    def _page_locked(self, name: str, array: Array) -> None:
        if not self.memory.is_pagelocked(array):
            raise LogicError(f"{name}: expected a page-locked array, of pagelocked_empty")


def _to_device(address: int, source: Array) -> StreamOperation:
    _contiguous("copy to the device", source)
    size = source.nbytes

    def copy(checksum: int) -> None:
        if _checksum(source) != checksum:
            raise LogicError("the source of a copy to the device was changed before the copy ran")
        ctypes.memmove(address, source.ctypes.data, size)
        native.wrote(address, size)

    host = Bytes(source.ctypes.data, source.ctypes.data + size, "a host array")
    device = Bytes(address, address + size)
    return StreamOperation(
        "copy to the device", copy, (host,), (device,), lambda: _checksum(source)
    )


def _to_host(target: Array, address: int) -> StreamOperation:
    _contiguous("copy to the host", target)
    size = target.nbytes
    start = target.ctypes.data

    def copy(_: Any) -> None:
        ctypes.memmove(target.ctypes.data, address, size)

    def poison() -> None:
        ctypes.memset(target.ctypes.data, 0xFF, size)

    host, device = Bytes(start, start + size, "a host array"), Bytes(address, address + size)
    return StreamOperation("copy to the host", copy, (device,), (host,), poison)


def _on_device(target: int, source: int, size: int) -> StreamOperation:
    def copy(_: Any) -> None:
        ctypes.memmove(target, source, size)
        native.wrote(target, size)

    reads, writes = Bytes(source, source + size), Bytes(target, target + size)
    return StreamOperation("copy on the device", copy, (reads,), (writes,))


def _fill(address: int, data: int, count: int, width: int) -> StreamOperation:
    pattern = data.to_bytes(width, "little") * count

    def fill(_: Any) -> None:
        ctypes.memmove(address, pattern, len(pattern))
        native.wrote(address, len(pattern))

    return StreamOperation("memset", fill, (), (Bytes(address, address + len(pattern)),))


def _checksum(array: Array) -> int:
    return zlib.crc32(array.reshape(-1).view(np.uint8).data)


def _contiguous(name: str, array: Array) -> None:
    if not array.flags.c_contiguous:
        raise LogicError(f"{name}: expected a contiguous array")
