"""What lives on devices between calls: parameters, moments, running statistics, counters."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphc.dlpack import host_array
from graphc.dtypes import can_hold, convert, long_name, shown
from graphc.errors import GraphError
from graphc.ir import DTYPES, Type, dtype_name

ALIGNMENT = 64
"""Bytes: a cache line, and the widest vector register."""


def aligned_empty(shape: tuple[int, ...], dtype: Any) -> np.ndarray[Any, np.dtype[Any]]:
    """An uninitialised row-major array whose first byte lies on a multiple of ALIGNMENT, with at
    least one vector of readable bytes behind it."""
    dtype = np.dtype(dtype)
    nbytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    raw = np.empty(nbytes + 2 * ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % ALIGNMENT
    array: np.ndarray[Any, np.dtype[Any]] = raw[start : start + nbytes].view(dtype).reshape(shape)
    return array


class StateBuffer:
    """One piece of state. `array` is its host form (row-major, aligned) and never moves, so that
    programs on the CPU may hold its address. Programs on other devices keep copies: `copies` maps
    a device's name to its copy, and `current` names who wrote last ("host" is the CPU). bf16 lies
    in it as two opaque bytes; `numpy` and `assign` speak of float32."""

    def __init__(self, value: Any, dtype: Any = None) -> None:
        source = host_array(value)
        kind = DTYPES[dtype_name(source.dtype if dtype is None else dtype)]
        source = convert(source, kind)
        self.array = aligned_empty(source.shape, kind)
        self.array[...] = source
        self.version = 0
        self.copies: dict[str, Any] = {}
        self.current = "host"

    @property
    def type(self) -> Type:
        return Type(self.array.shape, dtype_name(self.array.dtype))

    def __reduce__(self) -> tuple[Any, ...]:
        # A deep copy or an unpickled buffer must be aligned and lie on the host, as every one does.
        self.refresh_host()
        return StateBuffer, (self.array.copy(),)

    def numpy(self) -> np.ndarray[Any, np.dtype[Any]]:
        """A fresh copy of the current contents; of bf16 as float32."""
        self.refresh_host()
        return shown(self.array.copy())

    def assign(self, value: Any, name: str = "state") -> None:
        """Overwrite the contents; GraphError if shape or dtype do not fit."""
        source = host_array(value)
        if source.shape != self.array.shape or not can_hold(self.array.dtype, source.dtype):
            got = f"{long_name(source.dtype)}{list(source.shape)}"
            expected = f"{long_name(self.array.dtype)}{list(self.array.shape)}"
            raise GraphError(f"{name}: expected {expected}, got {got}")
        self.array[...] = convert(source, self.array.dtype)
        self.wrote("host")

    def wrote(self, device: str) -> None:
        """`device` has just written the newest contents."""
        self.version += 1
        self.current = device

    def refresh_host(self) -> None:
        """Bring the newest contents into `array`."""
        if self.current != "host":
            self.copies[self.current].read_into(self.array)
            self.current = "host"
