"""Read and write safetensors files.

A file is eight bytes with the length of the header, the header as JSON, and the elements of all
tensors without gaps, little-endian:

    {"__metadata__": {"key": "text"}, "weight": {"dtype": "F32", "shape": [2, 3],
     "data_offsets": [0, 24]}}

Nothing in a file is executed. Whatever is not exactly of this form is refused.
"""

from __future__ import annotations

import json
import math
import os
import stat
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np

from graphc.base.dtypes import BFLOAT16, Array

HEADER_BYTES = 100_000_000
"""The longest header, as in the format's own library."""
METADATA = "__metadata__"
DTYPES: dict[str, np.dtype[Any]] = {
    "BOOL": np.dtype(np.bool_),
    "U8": np.dtype(np.uint8),
    "I8": np.dtype(np.int8),
    "U16": np.dtype(np.uint16),
    "I16": np.dtype(np.int16),
    "U32": np.dtype(np.uint32),
    "I32": np.dtype(np.int32),
    "U64": np.dtype(np.uint64),
    "I64": np.dtype(np.int64),
    "F16": np.dtype(np.float16),
    "BF16": BFLOAT16,
    "F32": np.dtype(np.float32),
    "F64": np.dtype(np.float64),
}
"""The dtypes of the format that NumPy has too, and bf16."""

_NAMES = {dtype: name for name, dtype in DTYPES.items()}
_LENGTH = 8


class FormatError(ValueError):
    """A file is not of the format; the message says in what."""


class DTypeError(FormatError):
    """A file is of the format, but holds a dtype that NumPy lacks; the message is its name."""


def file_parts(arrays: Mapping[str, Array], metadata: Mapping[str, str]) -> list[Any]:
    """Return the file of arrays as parts to be written one after the other.

    Args:
        arrays: The arrays by name, row-major; they are not copied.
        metadata: Texts by name.

    Returns:
        The length of the header, the header, and the bytes of each array.

    Raises:
        FormatError: The format has no such dtype, or a name is not a tensor's.
    """
    header: dict[str, Any] = {METADATA: dict(metadata)} if metadata else {}
    # Wide elements first, so that all are aligned in a file that is mapped to memory.
    order = sorted(arrays, key=lambda name: -arrays[name].dtype.itemsize)
    place = 0
    for name in order:
        array = arrays[name]
        if array.dtype not in _NAMES:
            raise FormatError(f"{name} is of {array.dtype}, which safetensors lacks")
        if name == METADATA:
            raise FormatError(f"{name} is no name of a tensor")
        offsets = [place, place + array.nbytes]
        kind = _NAMES[array.dtype]
        header[name] = {"dtype": kind, "shape": [*array.shape], "data_offsets": offsets}
        place = offsets[1]
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _LENGTH)
    content = (_little_endian(arrays[name]).reshape(-1).view(np.uint8).data for name in order)
    return [len(text).to_bytes(_LENGTH, "little"), text, *content]


def read_bytes(path: str | os.PathLike[str]) -> Array:
    """Return the contents of a regular file as u8 [n].

    Raises:
        OSError: It cannot be read.
        FormatError: It is no regular file.
    """
    with open(path, "rb", opener=_open) as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise FormatError("no regular file")
        # Not np.fromfile, which turns an interrupt into a TypeError.
        content = np.empty(status.st_size, np.uint8)
        return content[: file.readinto(content.data)]


def parsed(data: Array) -> tuple[dict[str, Array], dict[str, str]]:
    """Return the arrays and the metadata of a file.

    Args:
        data: The file u8 [n].

    Returns:
        The arrays by name, which are views of `data`; and the metadata.

    Raises:
        FormatError: The file is not exactly of the format.
    """
    header = header_of(data)
    start = _LENGTH + int.from_bytes(data[:_LENGTH].tobytes(), "little")
    metadata = header.pop(METADATA, {})
    if not _is_texts(metadata):
        raise FormatError("metadata is no dict of texts")
    whole = data[start:]
    arrays, ends = {}, []
    for name, item in header.items():
        dtype, shape, (begin, end) = _item(name, item, whole.nbytes)
        ends.append((begin, end))
        arrays[name] = _shaped(name, whole[begin:end], dtype, shape)
    place = 0
    for begin, end in sorted(ends):
        if begin != place:
            raise FormatError(f"gaps or overlaps at byte {min(begin, place)} of the elements")
        place = end
    if place != whole.nbytes:
        raise FormatError(f"{whole.nbytes} bytes of elements, the header says {place}")
    return arrays, metadata


def header_of(data: Array) -> dict[str, Any]:
    """Return the header of a file u8 [n] as JSON, without a check of what it says."""
    size = int.from_bytes(data[:_LENGTH].tobytes(), "little")
    if data.nbytes < _LENGTH or size > HEADER_BYTES or data.nbytes - _LENGTH < size:
        raise FormatError(f"{data.nbytes} bytes cannot hold the header")
    header = parsed_json(data[_LENGTH : _LENGTH + size].tobytes())
    if not isinstance(header, dict):
        raise FormatError("the header is no JSON object")
    return header


def parsed_json(text: bytes | str) -> Any:
    """Return JSON without `NaN`, infinities and names given twice; else raise FormatError."""
    try:
        return json.loads(text, object_pairs_hook=_once, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"JSON: {error}") from None


def _no_number(text: str) -> Any:
    raise FormatError(f"{text} is no number of JSON")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise FormatError("a name is given twice")
    return found


def _item(name: str, item: Any, nbytes: int) -> tuple[np.dtype[Any], list[int], list[int]]:
    """The dtype, shape and place of a tensor in `nbytes` bytes."""
    if not isinstance(item, dict) or item.keys() != {"dtype", "shape", "data_offsets"}:
        raise FormatError(f"{name}: expected dtype, shape and data_offsets")
    kind, shape, offsets = item["dtype"], item["shape"], item["data_offsets"]
    if not isinstance(kind, str):
        raise FormatError(f"{name}: no dtype")
    if kind not in DTYPES:
        raise DTypeError(kind)
    if not _is_sizes(shape) or not _is_sizes(offsets) or len(offsets) != 2:
        raise FormatError(f"{name}: shape or offsets are no sizes")
    begin, end = offsets
    if not begin <= end <= nbytes:
        raise FormatError(f"{name}: bytes {begin} to {end} of {nbytes}")
    if math.prod(shape) * DTYPES[kind].itemsize != end - begin:
        raise FormatError(f"{name}: {kind}{shape} in {end - begin} bytes")
    return DTYPES[kind], shape, offsets


def _is_sizes(value: Any) -> bool:
    most = np.iinfo(np.int64).max
    return isinstance(value, list) and all(type(n) is int and 0 <= n <= most for n in value)


def _is_texts(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(text, str) for text in value.values())


def _shaped(name: str, content: Array, dtype: np.dtype[Any], shape: list[int]) -> Array:
    """The elements in bytes u8 [n]; a copy where they are not aligned."""
    if content.ctypes.data % dtype.itemsize:
        content = content.copy()
    if dtype == np.bool_ and content.max(initial=0) > 1:
        raise FormatError(f"{name}: a BOOL is neither 0 nor 1")
    try:
        return _little_endian(content.view(dtype).reshape(shape))
    except ValueError:
        raise FormatError(f"{name}: no array has the shape {shape}") from None


def _little_endian(array: Array) -> Array:
    return array if sys.byteorder == "little" or array.dtype == BFLOAT16 else array.byteswap()


def _open(path: str, flags: int) -> int:
    # Opening a pipe that nobody writes to would wait for ever.
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))
