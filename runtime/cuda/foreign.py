"""Arrays of other libraries on a GPU, by DLPack or `__cuda_array_interface__`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from graphc.base.dlpack import read_capsule
from graphc.base.errors import GraphError
from graphc.runtime.cuda.driver import LEGACY_STREAM

CUDA, CUDA_MANAGED = 2, 13
"""DLPack's numbers of devices whose memory has GPU addresses."""

NO_STREAM = -1
"""DLPack's stream of a reader that needs no producer to wait."""


@dataclass(frozen=True)
class ForeignArray:
    """A row-major array on a device."""

    address: int
    """The device address."""
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    owner: Any
    """The object that keeps the memory alive."""
    stream: int | None = None
    """The handle of the stream that writes it; None if there is nothing to wait for."""

    @property
    def nbytes(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize


def foreign_array(value: Any, name: str, ordinal: int, stream: int) -> ForeignArray | None:
    """`value` as an array on the GPU `ordinal`, ready for later work on the stream with the handle
    `stream`; None if it is on the host.

    Raises GraphError if it is on another GPU or not contiguous; `name` names the argument.
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
    """The array of a DLPack capsule, which is its owner."""
    found = read_capsule(capsule, name)
    _check_contiguous(name, found.shape, found.strides, found.dtype)
    return ForeignArray(found.address, found.shape, found.dtype, capsule)


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
