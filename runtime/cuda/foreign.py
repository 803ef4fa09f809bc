"""Arrays of other libraries that lie on a GPU already: by DLPack or `__cuda_array_interface__`."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from graphc.errors import GraphError
from graphc.runtime.cuda.driver import LEGACY_STREAM

CUDA, CUDA_MANAGED = 2, 13
"""DLPack's numbers of devices whose memory a GPU's address names."""

KINDS = {0: "i", 1: "u", 2: "f", 6: "b"}
"""DLPack's codes of dtypes as NumPy's letters."""


@dataclass(frozen=True)
class ForeignArray:
    """A row-major array at `address` of a device. It lives as long as `owner`. What writes it is
    on the stream with the handle `stream`; None if it need not be waited for."""

    address: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    owner: Any
    stream: int | None = None

    @property
    def nbytes(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize


def foreign_array(value: Any, name: str, ordinal: int, stream: int) -> ForeignArray | None:
    """`value` as it lies on the GPU `ordinal`, ready for what is put on the stream with the handle
    `stream` from now on; None if it lies on the host.

    GraphError if it lies on another GPU or is not contiguous; `name` says which argument it is.
    """
    if isinstance(value, np.ndarray):
        return None
    if hasattr(value, "__dlpack_device__"):
        kind, number = value.__dlpack_device__()
        if int(kind) not in (CUDA, CUDA_MANAGED):
            return None
        if int(kind) == CUDA and number != ordinal:
            raise GraphError(
                f"{name}: expected an array on cuda:{ordinal} or on the host, got one on "
                f"cuda:{number}"
            )
        return from_capsule(value.__dlpack__(stream=stream), name)
    if hasattr(value, "__cuda_array_interface__"):
        return _from_interface(value, value.__cuda_array_interface__, name)
    return None


def from_capsule(capsule: Any, name: str) -> ForeignArray:
    """The array of a DLPack capsule. The capsule frees it, so it is the owner."""
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    tensor = _Tensor.from_address(pointer(capsule, b"dltensor"))
    shape = tuple(tensor.shape[i] for i in range(tensor.ndim))
    code, bits, lanes = tensor.code, tensor.bits, tensor.lanes
    if code not in KINDS or lanes != 1:
        raise GraphError(f"{name}: NumPy has no dtype for DLPack's type {code} of {bits} bits")
    dtype = np.dtype(f"{KINDS[code]}{bits // 8}")
    if tensor.strides:
        steps = [tensor.strides[i] * dtype.itemsize for i in range(tensor.ndim)]
        _check_contiguous(name, shape, steps, dtype)
    address = (tensor.data or 0) + tensor.byte_offset
    return ForeignArray(address, shape, dtype, capsule)


def _from_interface(value: Any, interface: dict[str, Any], name: str) -> ForeignArray:
    shape, dtype = tuple(interface["shape"]), np.dtype(interface["typestr"])
    if interface.get("strides") is not None:
        _check_contiguous(name, shape, interface["strides"], dtype)
    # Before version 3 producers do not say which stream they use: then it is the default one.
    stream = interface.get("stream") if interface["version"] >= 3 else LEGACY_STREAM
    return ForeignArray(interface["data"][0] or 0, shape, dtype, value, stream)


def _check_contiguous(
    name: str, shape: Sequence[int], steps: Sequence[int], dtype: np.dtype[Any]
) -> None:
    expected = dtype.itemsize
    for extent, step in zip(reversed(shape), reversed(steps), strict=True):
        if extent > 1 and step != expected and 0 not in shape:
            raise GraphError(
                f"{name}: expected a contiguous array on the GPU, got shape {list(shape)} with "
                f"strides of {list(steps)} bytes"
            )
        expected *= extent


class _Tensor(ctypes.Structure):
    """DLTensor of dlpack.h, with its device and dtype in line."""

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
