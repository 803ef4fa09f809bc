"""Read arrays of other libraries by DLPack, where NumPy lacks their dtype or device."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

import numpy as np

from graphc.base.dtypes import BFLOAT16, Array
from graphc.base.errors import GraphError

HOST = 1
"""DLPack's number of the host's memory."""
_KINDS = {0: "i", 1: "u", 2: "f", 6: "b"}
"""DLPack's codes of dtypes as NumPy's letters."""
_BFLOAT = 4


@dataclass(frozen=True)
class Exported:
    """The contents of a capsule: elements of `dtype` at `address`, `strides` in bytes."""

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: np.dtype[Any]


def read_capsule(capsule: Any, name: str) -> Exported:
    """What a DLPack capsule describes. The capsule frees the memory, so it is to be kept.

    GraphError for a dtype that graphc lacks; `name` says which array it is.
    """
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    tensor = _Tensor.from_address(pointer(capsule, b"dltensor"))
    shape = tuple(tensor.shape[i] for i in range(tensor.ndim))
    code, bits, lanes = tensor.code, tensor.bits, tensor.lanes
    if (code, bits, lanes) == (_BFLOAT, 16, 1):
        dtype = BFLOAT16
    elif code in _KINDS and lanes == 1:
        dtype = np.dtype(f"{_KINDS[code]}{bits // 8}")
    else:
        raise GraphError(f"{name}: NumPy has no dtype for DLPack's type {code} of {bits} bits")
    steps = [1] * tensor.ndim
    for axis in reversed(range(tensor.ndim - 1)):
        steps[axis] = steps[axis + 1] * shape[axis + 1]
    if tensor.strides:
        steps = [tensor.strides[i] for i in range(tensor.ndim)]
    strides = tuple(step * dtype.itemsize for step in steps)
    return Exported((tensor.data or 0) + tensor.byte_offset, shape, strides, dtype)


def bfloat16_array(value: Any, name: str) -> Array:
    """A bfloat16 array of another library on the host, by its `__dlpack__`, where it lies."""
    if value.__dlpack_device__()[0] != HOST:
        raise GraphError(f"{name}: expected an array on the host, got {type(value).__name__}")
    capsule = value.__dlpack__()
    found = read_capsule(capsule, name)
    reach = sum(s * (n - 1) for s, n in zip(found.strides, found.shape, strict=True))
    memory = (ctypes.c_char * (reach + found.dtype.itemsize)).from_address(found.address)
    memory.owner = capsule  # type: ignore[attr-defined]
    if 0 in found.shape:
        return np.empty(found.shape, found.dtype)
    flat = np.frombuffer(memory, found.dtype)  # type: ignore[call-overload]
    return np.lib.stride_tricks.as_strided(flat, found.shape, found.strides)


def refuse_gradient(value: Any, name: str) -> None:
    """Raise GraphError if `value` is a PyTorch tensor that requires grad."""
    if getattr(value, "requires_grad", False) is True:
        raise GraphError(
            f"{name}: expected an array, got a tensor that requires grad, and PyTorch's gradients "
            f"end where graphc begins; {name}.detach() is the array"
        )


def host_array(value: Any, name: str = "array") -> Array:
    """Return `value` as a NumPy array; bfloat16, which NumPy lacks, gets our dtype.

    GraphError for a tensor that requires grad.
    """
    refuse_gradient(value, name)
    dtype = getattr(value, "dtype", None)
    if not isinstance(dtype, np.dtype) and str(dtype).endswith("bfloat16"):
        return bfloat16_array(value, name)
    array = np.asarray(value)
    return array.view(BFLOAT16) if array.dtype.name == "bfloat16" else array


class _Tensor(ctypes.Structure):
    """DLTensor of dlpack.h, with its device and dtype inlined."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )
