"""Results that stay on a GPU."""

from __future__ import annotations

import math
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from graphc.base.dlpack import write_capsule
from graphc.base.dtypes import Array, is_bfloat16, long_name, shown
from graphc.runtime.cuda.blocks import Holder
from graphc.runtime.cuda.device import Device
from graphc.runtime.cuda.driver import LEGACY_STREAM

CUDA = 2
"""DLPack's number of a GPU's memory."""


class DeviceArray:
    """A result on a GPU: a row-major array that no later call changes.

    PyTorch, CuPy and JAX take it where it lies, by `__dlpack__` or `__cuda_array_interface__`;
    programs on the same device too. `numpy()` and `numpy.asarray` copy it to the host, which waits
    for the call.

    Attributes:
        shape: The extents.
        dtype: The NumPy dtype.
        device: The name of the device, such as "cuda:0".
    """

    def __init__(
        self,
        device: Device,
        holder: Holder,
        address: int,
        shape: tuple[int, ...],
        dtype: np.dtype[Any],
        stream: int,
    ) -> None:
        self._device, self._holder, self.address = device, holder, address
        self._stream = stream
        """The handle of the stream that writes it."""
        self.shape, self.dtype, self.device = shape, dtype, device.name

    @property
    def nbytes(self) -> int:
        """The number of bytes."""
        return math.prod(self.shape) * self.dtype.itemsize

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    def lies_on(self, device: Device) -> bool:
        """Return whether this is in the memory of `device`."""
        return self._device is device

    def raw(self) -> Array:
        """Return a copy on the host in the dtype that the device stores."""
        array, device = np.empty(self.shape, self.dtype), self._device
        with device.entered():
            if self._is_foreign:  # other streams may launch the graph that writes it
                device.driver.Context.synchronize()
            device.staging.download(array, self.address, device.streams[0])
        return array

    @property
    def _is_foreign(self) -> bool:
        """Whether a graph of another library writes it."""
        return self._stream != int(self._device.streams[0].handle)

    def numpy(self) -> Array:
        """Return a copy on the host, bfloat16 as float32. Waits for the call."""
        return shown(self.raw())

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        if copy is False:
            raise ValueError("an array on a GPU is copied to become one of NumPy")
        found = self.numpy()
        return found if dtype is None else found.astype(dtype, copy=False)

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of an array without axes")
        return self.shape[0]

    def __float__(self) -> float:
        return float(self.numpy())

    def __repr__(self) -> str:
        extents = ",".join(map(str, self.shape))
        return f"DeviceArray({long_name(self.dtype)}[{extents}] on {self.device})"

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        if not self._device.is_visible:
            raise AttributeError(f"the memory of {self.device} is no GPU's")
        if is_bfloat16(self.dtype):
            raise AttributeError("__cuda_array_interface__ has no bfloat16; __dlpack__ has")
        self._holder.block.readers.add(None)
        return {
            "shape": self.shape,
            "typestr": self.dtype.str,
            "data": (self.address, False),
            "strides": None,
            "stream": self._stream,
            "version": 3,
        }

    def __dlpack_device__(self) -> tuple[int, int]:
        self._check_visible()
        return CUDA, self._device.ordinal

    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: Any = None,
        dl_device: Any = None,
        copy: bool | None = None,
    ) -> Any:
        self._check_visible()
        if copy or dl_device not in (None, self.__dlpack_device__()):
            raise BufferError(f"{self!r} is given where it lies; numpy() copies it to the host")
        reader = LEGACY_STREAM if stream is None else stream
        if reader < 0:  # whoever reads it waits in a way of their own
            self._holder.block.readers.add(None)
        else:
            self._holder.block.readers.add(reader)
            if reader != self._stream:
                self._wait(reader)
        place = CUDA, self._device.ordinal
        return write_capsule(self.address, self.shape, self.dtype, place, self._holder)

    def _wait(self, reader: int) -> None:
        """Let the stream with this handle wait for the one that writes this."""
        with self._device.entered(in_capture=self._is_foreign):
            self._device.driver.wait_for_stream(SimpleNamespace(handle=reader), self._stream)

    def _check_visible(self) -> None:
        if not self._device.is_visible:
            raise BufferError(
                f"the memory of {self.device} is no GPU's, so that other libraries cannot read it; "
                "numpy() copies it to the host"
            )


def arrays_in(
    device: Device,
    holder: Holder,
    results: Sequence[tuple[int, tuple[int, ...], np.dtype[Any]]],
    stream: int,
) -> list[Any]:
    """Return the arrays in a block, each with (its first byte, its shape, its dtype), which the
    stream with the handle `stream` writes."""
    start = holder.block.address
    return [
        DeviceArray(device, holder, start + at, shape, dtype, stream)
        for at, shape, dtype in results
    ]
