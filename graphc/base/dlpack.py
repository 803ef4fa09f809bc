"""Read arrays of other libraries by DLPack, where NumPy lacks their dtype or device."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

import numpy as np

from graphc.base.dtypes import BFLOAT16, Array, is_bfloat16
from graphc.base.errors import GraphError

HOST = 1
"""DLPack's number of the host's memory."""
_KINDS = {0: "i", 1: "u", 2: "f", 6: "b"}
"""DLPack's codes of dtypes as NumPy's letters."""
_CODES = {letter: code for code, letter in _KINDS.items()}
_BFLOAT = 4
_NAME = b"dltensor"
"""The name of a capsule until someone takes its array."""


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
    tensor = _Tensor.from_address(_pointer_in(capsule, _NAME))
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


def write_capsule(
    address: int,
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
    device: tuple[int, int],
    owner: Any,
) -> Any:
    """Return a DLPack capsule of a row-major array; it keeps `owner` until its reader is done.

    Args:
        address: The address of the first element.
        shape: The extents.
        dtype: The dtype of the elements.
        device: DLPack's kind and number of the device.
        owner: What keeps the memory alive.
    """
    made = _Managed()
    extents = (ctypes.c_int64 * max(1, len(shape)))(*shape)
    tensor = made.tensor
    tensor.data, tensor.device_type, tensor.device_id = address, *device
    tensor.ndim, tensor.shape = len(shape), extents
    tensor.code = _BFLOAT if is_bfloat16(dtype) else _CODES[dtype.kind]
    tensor.bits, tensor.lanes = 8 * dtype.itemsize, 1
    made.deleter = ctypes.cast(_delete, ctypes.c_void_p)
    _exported[ctypes.addressof(made)] = made, extents, owner
    return _new_capsule(ctypes.addressof(made), _NAME, _destroy)


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


class _Managed(ctypes.Structure):
    """DLManagedTensor."""

    _fields_ = (("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p))


_Callback = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_Parameters = (ctypes.c_void_p, ctypes.c_char_p)
_capi = ctypes.pythonapi
_pointer_in = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", _capi)
)
_new_capsule = ctypes.PYFUNCTYPE(ctypes.py_object, *_Parameters, _Callback)(
    ("PyCapsule_New", _capi)
)
# In its destructor a capsule is an address: a reference to it would destroy it again.
_is_untaken = ctypes.PYFUNCTYPE(ctypes.c_int, *_Parameters)(("PyCapsule_IsValid", _capi))
_pointer_at = ctypes.PYFUNCTYPE(ctypes.c_void_p, *_Parameters)(("PyCapsule_GetPointer", _capi))
_exported: dict[int, Any] = {}
"""What was exported and its owner, by address, until its reader is done."""


def _deleted(address: int, exported: dict[int, Any] = _exported) -> None:
    """Whoever has taken a capsule's array calls this when done."""
    exported.pop(address, None)


def _destroyed(capsule: int, exported: dict[int, Any] = _exported) -> None:
    """The destructor of capsules."""
    if _is_untaken(capsule, _NAME):
        exported.pop(_pointer_at(capsule, _NAME), None)


_delete, _destroy = _Callback(_deleted), _Callback(_destroyed)
for _callback in (_delete, _destroy):  # arrays may outlive this module when the process ends
    _capi.Py_IncRef(ctypes.py_object(_callback))
