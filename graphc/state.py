"""What lives on devices between calls: parameters, moments, running statistics, counters."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphc.errors import GraphError
from graphc.ir import Type, dtype_name

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
    a device's name to its copy, and `current` names who wrote last ("host" is the CPU)."""

    def __init__(self, value: Any, dtype: Any = None) -> None:
        source = np.asarray(value, dtype=dtype)
        dtype_name(source.dtype)
        self.array = aligned_empty(source.shape, source.dtype)
        self.array[...] = source
        self.version = 0
        self.copies: dict[str, Any] = {}
        self.current = "host"

    @property
    def type(self) -> Type:
        return Type(self.array.shape, dtype_name(self.array.dtype))

    def __reduce__(self) -> tuple[Any, ...]:
        # A deep copy or an unpickled buffer must be aligned and lie on the host, as every one does.
        return StateBuffer, (self.numpy(),)

    def numpy(self) -> np.ndarray[Any, np.dtype[Any]]:
        """A fresh copy of the current contents."""
        self.refresh_host()
        return self.array.copy()

    def assign(self, value: Any, name: str = "state") -> None:
        """Overwrite the contents; GraphError if shape or dtype do not fit."""
        source = np.asarray(value)
        if source.shape != self.array.shape or not np.can_cast(
            source.dtype, self.array.dtype, "same_kind"
        ):
            got = f"{source.dtype.name}{list(source.shape)}"
            raise GraphError(
                f"{name}: expected {self.array.dtype.name}{list(self.array.shape)}, got {got}"
            )
        self.array[...] = source
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
