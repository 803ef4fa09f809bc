"""What graphc uses of `pycuda.driver`, by NVIDIA's cuda-bindings, for where PyCUDA is missing.

Names and behaviour are PyCUDA's. Importing this raises ImportError where cuda-bindings is missing;
the driver's library is not loaded before `init`.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
from cuda.bindings import driver as cuda

from graphc.base.dtypes import Array

event_flags = SimpleNamespace(
    DEFAULT=0, DISABLE_TIMING=int(cuda.CUevent_flags.CU_EVENT_DISABLE_TIMING)
)
function_attribute = SimpleNamespace(
    MAX_DYNAMIC_SHARED_SIZE_BYTES=int(
        cuda.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
    )
)
device_attribute = SimpleNamespace(
    MULTIPROCESSOR_COUNT=cuda.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT
)
_COMPUTE_CAPABILITY = (
    cuda.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
    cuda.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
)
_SUCCESS, _OUT_OF_MEMORY, _NOT_READY = (
    cuda.CUresult.CUDA_SUCCESS,
    cuda.CUresult.CUDA_ERROR_OUT_OF_MEMORY,
    cuda.CUresult.CUDA_ERROR_NOT_READY,
)
_BUFFER, _SIZE, _END = 1, 2, 0
"""CU_LAUNCH_PARAM_BUFFER_POINTER, CU_LAUNCH_PARAM_BUFFER_SIZE, CU_LAUNCH_PARAM_END."""


class Error(Exception):
    """An error of the driver."""


class LogicError(Error):
    """Any error but of memory."""


class MemoryError(Error):
    """Too little memory."""


def _call(function: Callable[..., Any], *arguments: Any) -> Any:
    """The results of a function of the driver: None, one, or several."""
    found = function(*arguments)
    if found[0] is not _SUCCESS:
        raise _error(function.__name__, found[0])
    return found[1] if len(found) == 2 else found[1:] or None


def _error(name: str, error: Any) -> Error:
    """The error of a function of the driver."""
    _, text = cuda.cuGetErrorString(error)
    kind = MemoryError if error is _OUT_OF_MEMORY else LogicError
    return kind(f"{name} failed: {(text or b'').decode() or error.name}")


def _address(array: Array) -> int:
    """Where an array's elements begin."""
    address: int = array.__array_interface__["data"][0]
    return address


def init() -> None:
    """Start the driver. Raises Error if there is none."""
    try:
        _call(cuda.cuInit, 0)
    except RuntimeError as error:  # of cuda-bindings, which finds no library
        raise LogicError(f"cuInit failed: {str(error).rstrip('.')}") from error


def get_driver_version() -> int:
    """The newest version of CUDA that the driver supports, such as 13000."""
    return int(_call(cuda.cuDriverGetVersion))


def mem_get_info() -> tuple[int, int]:
    """(free, total) bytes of the current device."""
    free, total = _call(cuda.cuMemGetInfo)
    return int(free), int(total)


class Device:
    """The GPU of this number."""

    def __init__(self, number: int) -> None:
        self._device = _call(cuda.cuDeviceGet, number)

    @staticmethod
    def count() -> int:
        """The number of GPUs."""
        return int(_call(cuda.cuDeviceGetCount))

    def name(self) -> str:
        name: bytes = _call(cuda.cuDeviceGetName, 256, self._device)
        return name.split(b"\0")[0].decode()

    def compute_capability(self) -> tuple[int, int]:
        major, minor = (self.get_attribute(each) for each in _COMPUTE_CAPABILITY)
        return major, minor

    def get_attribute(self, attribute: Any) -> int:
        return int(_call(cuda.cuDeviceGetAttribute, attribute, self._device))

    def total_memory(self) -> int:
        """Bytes of memory."""
        return int(_call(cuda.cuDeviceTotalMem, self._device))

    def retain_primary_context(self) -> Context:
        return Context(self._device)


class Context:
    """The primary context of a device; static methods act on the current one."""

    def __init__(self, device: Any) -> None:
        self._device = device
        self._context = _call(cuda.cuDevicePrimaryCtxRetain, device)

    def push(self) -> None:
        _call(cuda.cuCtxPushCurrent, self._context)

    @staticmethod
    def pop() -> None:
        _call(cuda.cuCtxPopCurrent)

    def detach(self) -> None:
        _call(cuda.cuDevicePrimaryCtxRelease, self._device)

    @staticmethod
    def synchronize() -> None:
        _call(cuda.cuCtxSynchronize)

    @staticmethod
    def get_device() -> Device:
        return Device(int(_call(cuda.cuCtxGetDevice)))


class Stream:
    """A stream with its `handle` as a number."""

    def __init__(self, flags: int = 0) -> None:
        self.stream = _call(cuda.cuStreamCreate, flags)
        self.handle = int(self.stream)

    def synchronize(self) -> None:
        _call(cuda.cuStreamSynchronize, self.stream)

    def wait_for_event(self, event: Event) -> None:
        _call(cuda.cuStreamWaitEvent, self.stream, event.handle, 0)

    def __del__(self) -> None:
        if hasattr(self, "stream"):
            cuda.cuStreamDestroy(self.stream)


class Event:
    """An event with its `handle`."""

    def __init__(self, flags: int = 0) -> None:
        self.handle = _call(cuda.cuEventCreate, flags)

    def record(self, stream: Stream) -> None:
        _call(cuda.cuEventRecord, self.handle, stream.stream)

    def synchronize(self) -> None:
        _call(cuda.cuEventSynchronize, self.handle)

    def query(self) -> bool:
        """Whether all before the event has ended."""
        (error,) = cuda.cuEventQuery(self.handle)
        if error not in (_SUCCESS, _NOT_READY):
            raise _error("cuEventQuery", error)
        return error is _SUCCESS

    def time_since(self, before: Event) -> float:
        """Milliseconds."""
        return float(_call(cuda.cuEventElapsedTime, before.handle, self.handle))

    def __del__(self) -> None:
        if hasattr(self, "handle"):
            cuda.cuEventDestroy(self.handle)


class DeviceAllocation:
    """Memory of the device; int() is its address."""

    def __init__(self, nbytes: int) -> None:
        self._address = int(_call(cuda.cuMemAlloc, nbytes))

    def __int__(self) -> int:
        return self._address

    def free(self) -> None:
        address, self._address = self._address, 0
        _call(cuda.cuMemFree, address)

    def __del__(self) -> None:
        if getattr(self, "_address", 0):
            cuda.cuMemFree(self._address)


mem_alloc = DeviceAllocation


class _Pagelocked:
    """Page-locked memory of the host."""

    def __init__(self, nbytes: int) -> None:
        self.address = int(_call(cuda.cuMemHostAlloc, nbytes, 0))

    def __del__(self) -> None:
        if hasattr(self, "address"):
            cuda.cuMemFreeHost(self.address)


def pagelocked_empty(shape: int | tuple[int, ...], dtype: Any) -> Array:
    """An uninitialized array that asynchronous copies may read and write."""
    nbytes = math.prod(np.atleast_1d(shape).tolist()) * np.dtype(dtype).itemsize
    owner = _Pagelocked(nbytes)
    memory = (ctypes.c_uint8 * nbytes).from_address(owner.address)
    memory.owner = owner
    return np.frombuffer(memory, dtype).reshape(shape)


def memcpy_htod(target: Any, source: Array) -> None:
    """Copy an array to the device, and wait for it."""
    _call(cuda.cuMemcpyHtoD, int(target), _address(source), source.nbytes)


def memcpy_dtoh(target: Array, source: Any) -> None:
    """Copy to an array of the host, and wait for it."""
    _call(cuda.cuMemcpyDtoH, _address(target), int(source), target.nbytes)


def memcpy_htod_async(target: Any, source: Array, stream: Stream) -> None:
    """Copy an array to the device."""
    _call(cuda.cuMemcpyHtoDAsync, int(target), _address(source), source.nbytes, stream.stream)


def memcpy_dtoh_async(target: Array, source: Any, stream: Stream) -> None:
    """Copy to an array of the host."""
    _call(cuda.cuMemcpyDtoHAsync, _address(target), int(source), target.nbytes, stream.stream)


def memcpy_dtod_async(target: Any, source: Any, nbytes: int, stream: Stream) -> None:
    """Copy on the device."""
    _call(cuda.cuMemcpyDtoDAsync, int(target), int(source), nbytes, stream.stream)


class Module:
    """A loaded module."""

    def __init__(self, image: bytes) -> None:
        self._module = _call(cuda.cuModuleLoadData, image)

    def get_function(self, name: str) -> Function:
        """The kernel of this name."""
        return Function(self, _call(cuda.cuModuleGetFunction, self._module, name.encode()))

    def __del__(self) -> None:
        if hasattr(self, "_module"):
            cuda.cuModuleUnload(self._module)


module_from_buffer = Module


class Function:
    """A kernel, which keeps its module."""

    def __init__(self, module: Module, function: Any) -> None:
        self._module, self._function = module, function

    def set_attribute(self, attribute: int, value: int) -> None:
        number = cuda.CUfunction_attribute(attribute)
        _call(cuda.cuFuncSetAttribute, self._function, number, value)

    def _launch_kernel(
        self, grid: Sequence[int], block: Sequence[int], arguments: bytes, shared: int, stream: Any
    ) -> None:
        """Launch with packed arguments."""
        size = ctypes.c_size_t(len(arguments))
        values = ctypes.create_string_buffer(arguments, len(arguments))
        places = ctypes.addressof(values), ctypes.addressof(size)
        extra = (ctypes.c_void_p * 5)(_BUFFER, places[0], _SIZE, places[1], _END)
        where = ctypes.addressof(extra)
        _call(
            cuda.cuLaunchKernel, self._function, *grid, *block, shared, stream.handle, 0, where
        )  # fmt: skip
