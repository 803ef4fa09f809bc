"""State that lives on devices between calls: parameters, moments, running statistics, counters."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, TypeVar
from weakref import WeakValueDictionary

import numpy as np

from graphc.base.dlpack import host_array
from graphc.base.dtypes import can_hold, convert, long_name, shown
from graphc.base.errors import GraphError, RunError
from graphc.base.locks import HOST, Lock, completed, holding, refuse_reentry
from graphc.ir import DTYPES, Array, Layout, Type, dtype_name

T = TypeVar("T")
AWAY = "away"
"""What is current of a buffer whose contents another process has."""
ALIGNMENT = 64
"""Bytes: a cache line, and the widest vector register. Every buffer starts on a multiple of it, in
every segment."""


def aligned_empty(shape: tuple[int, ...], dtype: Any) -> Array:
    """Return an uninitialized row-major array, aligned to ALIGNMENT bytes.

    At least one vector of readable bytes follows it.
    """
    return _aligned(np.empty, shape, np.dtype(dtype))


def _aligned(make: Callable[..., Array], shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    nbytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    raw = make(nbytes + 2 * ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % ALIGNMENT
    array: Array = raw[start : start + nbytes].view(dtype).reshape(shape)
    return array


class StateBuffer:
    """One piece of state.

    `array` is its host copy, row-major and aligned. It never moves, so that programs on the CPU may
    keep its address, unless its contents `leave` this process. Programs on other devices have
    copies, perhaps under a layout: `copies` has them by name, and `current` is the name of the one
    written last ("host" is the CPU). bf16 is stored as two opaque bytes; `numpy` and `assign` take
    and return float32.
    """

    def __init__(self, value: Any, dtype: Any = None) -> None:
        source = host_array(value)
        kind = DTYPES[dtype_name(source.dtype if dtype is None else dtype)]
        source = convert(source, kind)
        self.array = aligned_empty(source.shape, kind)
        self.array[...] = source
        self._begin()

    @classmethod
    def zeros(cls, type: Type) -> StateBuffer:
        """Return a buffer of zeros, which takes memory only when it is touched."""
        buffer = cls.__new__(cls)
        buffer.array = _aligned(np.zeros, type.shape, DTYPES[type.dtype])
        buffer._begin()
        return buffer

    def _begin(self) -> None:
        self.version = 0
        self.copies: dict[str, Any] = {}
        self.current = "host"
        self._left: tuple[str, weakref.ref[Array]] = "", weakref.ref(self.array)
        self._packed: WeakValueDictionary[Layout, PackedBuffer] = WeakValueDictionary()

    def packed(self, layout: Layout) -> PackedBuffer:
        """Return the contents under `layout`, which all programs on the CPU share."""
        found = self._packed.get(layout)
        if found is None:
            found = self._packed[layout] = PackedBuffer(self, layout)
        return found

    @property
    def type(self) -> Type:
        return Type(self.array.shape, dtype_name(self.array.dtype))

    @property
    def whole_type(self) -> Type:
        """The type of what is saved and loaded; another one if this process has a part of it."""
        return self.type

    def whole(self, array: Array) -> Array:
        """Return what is saved of contents."""
        return array

    def own(self, whole: Array) -> Array:
        """Return what this process has of an array that is loaded."""
        return whole

    def __reduce__(self) -> tuple[Any, ...]:
        # A deep copy or an unpickled buffer must be aligned and lie on the host, as every one does.
        def copied() -> Array:
            self.refresh_host()
            return self.array.copy()

        return StateBuffer, (between_calls([self], "state", copied),)

    def numpy(self) -> Array:
        """A fresh copy of the contents as of the last finished call; of bf16 as float32."""
        return snapshot({"": self}, "numpy")[""]

    def assign(self, value: Any, name: str = "state") -> None:
        """Overwrite the contents; GraphError if shape or dtype do not fit."""
        source = host_array(value)
        shape = self.whole_type.shape
        if source.shape != shape or not can_hold(self.array.dtype, source.dtype):
            got = f"{long_name(source.dtype)}{list(source.shape)}"
            expected = f"{long_name(self.array.dtype)}{list(shape)}"
            raise GraphError(f"{name}: expected {expected}, got {got}")
        overwrite({name: self}, {name: source}, name)

    def leave(self, where: str) -> None:
        """Free the memory, since another process has the contents from now on.

        Reading them raises RunError, which says `where` they are; writing them brings them back.
        """
        if self.current != AWAY:
            kind = self.type
            self._left = where, weakref.ref(self.array)
            zero = np.zeros((), kind.numpy_dtype)
            self.array = np.broadcast_to(zero, kind.shape)
            self.copies, self.current = {}, AWAY

    def come_back(self) -> None:
        """Have memory again for contents that are about to be written."""
        if self.current == AWAY:
            known = self._left[1]()  # alive where a program has its address
            self.array = (
                aligned_empty(self.array.shape, self.array.dtype) if known is None else known
            )
            self.current = "host"

    def refresh_host(self) -> None:
        """Copy the newest contents to `array`."""
        if self.current == AWAY:
            raise RunError(self._left[0])
        if self.current != "host":
            self.copies[self.current].read_into(self.array)
            self.current = "host"


class PackedBuffer(StateBuffer):
    """A copy of another buffer under a layout, with zeros in the rest of its blocks.

    Only `refresh` writes it.
    """

    def __init__(self, source: StateBuffer, layout: Layout) -> None:
        self.source, self.layout = source, layout
        self.array = aligned_empty(self.type.storage_shape, source.array.dtype)
        self.version, self.copies, self.current = -1, {}, "host"

    @property
    def type(self) -> Type:
        return self.source.type.with_layout(self.layout)

    def refresh_host(self) -> None:
        self.refresh()

    def refresh(self) -> None:
        """Copy the newest contents of the source to `array`."""
        if self.version == self.source.version:
            return
        self.source.refresh_host()
        self.array[...] = stored(self.source.array, self.layout)
        self.version = self.source.version


def stored(array: Array, layout: Layout) -> Array:
    """Return the elements of `array` as they lie in memory under a layout.

    They have the type's `storage_shape`, with zeros in the rest of the last block. A row-major
    array is returned itself; other results may be views of it.
    """
    axis, width = layout.axis, layout.width
    if axis is None:
        return array
    shape, lack = array.shape, -array.shape[axis] % width
    if lack:
        array = np.pad(array, [(0, lack if d == axis else 0) for d in range(len(shape))])
    split = (*shape[:axis], array.shape[axis] // width, width, *shape[axis + 1 :])
    return np.moveaxis(array.reshape(split), axis + 1, -1)


def elements(array: Array, type: Type) -> Array:
    """Return the elements of a value from memory, without the padding of its layout."""
    whole, axis = array.reshape(type.storage_shape), type.layout.axis
    if axis is None:
        return whole
    blocks = np.moveaxis(whole, -1, axis + 1)
    extent = whole.shape[axis] * type.layout.width
    whole = blocks.reshape(*type.shape[:axis], extent, *type.shape[axis + 1 :])
    return whole[(*[slice(None)] * axis, slice(type.shape[axis]))]


def wrote(buffers: Iterable[StateBuffer], copy: str) -> None:
    """Mark the copies of that name as the newest contents of all buffers."""
    for buffer in buffers:
        buffer.version += 1
        buffer.current = copy


def snapshot(buffers: Mapping[str, StateBuffer], what: str = "state_dict") -> dict[str, Array]:
    """Return copies of all buffers as of one moment between calls, by name; bf16 as float32.

    It raises RunError, saying that `what` was called, from within a call.
    """
    return {name: shown(array) for name, array in contents(buffers, what).items()}


def contents(buffers: Mapping[str, StateBuffer], what: str) -> dict[str, Array]:
    """Return what `snapshot` does, with bf16 as it is in memory."""

    def copied() -> dict[str, Array]:
        for buffer in buffers.values():
            buffer.refresh_host()
        return {name: buffer.array.copy() for name, buffer in buffers.items()}

    found = between_calls(buffers.values(), what, copied)
    return {name: buffers[name].whole(array) for name, array in found.items()}


def overwrite(
    buffers: Mapping[str, StateBuffer],
    arrays: Mapping[str, Array],
    what: str = "load_state_dict",
) -> None:
    """Overwrite all buffers at one moment between calls.

    The arrays have the names and shapes of the buffers, and dtypes that these can hold. It raises
    RunError, saying that `what` was called, from within a call.
    """
    new = {name: convert(arrays[name], b.array.dtype) for name, b in buffers.items()}

    def write() -> None:
        for name, buffer in buffers.items():
            buffer.come_back()
            buffer.array[...] = buffer.own(new[name])
        wrote(buffers.values(), "host")

    between_calls(buffers.values(), what, lambda: completed(write))


def between_calls(buffers: Collection[StateBuffer], what: str, act: Callable[[], T]) -> T:
    """Return what `act` returns, called with the locks of all devices that may write `buffers`."""
    refuse_reentry(what)
    found: list[T] = []
    while not found:
        locks = _locks_of(buffers)

        def attempt(count: int = len(locks)) -> None:
            if len(_locks_of(buffers)) == count:  # else one more device has got a copy
                found.append(act())

        holding(locks, attempt)
    return found[0]


def _locks_of(buffers: Collection[StateBuffer]) -> list[Lock]:
    copies = {id(c.lock): c.lock for b in buffers for c in tuple(b.copies.values())}
    return [HOST, *copies.values()]
