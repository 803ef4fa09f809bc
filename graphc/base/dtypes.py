"""Arrays of each dtype: bfloat16, which NumPy lacks, and conversions as in PyTorch.

f16 and bf16 are ways to store a number: every op computes in float32 and rounds its results once,
to nearest even. NumPy has no bfloat16; in memory an element is two opaque bytes, the upper half of
a float32. Users see arrays of float32 that hold such values.
"""

from __future__ import annotations

from typing import Any

import numpy as np

DType = np.dtype[Any]
Array = np.ndarray[Any, DType]
BFLOAT16 = np.dtype("V2")
"""What NumPy calls an array of bf16."""
FLOAT16 = np.dtype(np.float16)


def is_bfloat16(dtype: DType) -> bool:
    """Return whether `dtype` is a bfloat16, ours or that of ml_dtypes, which JAX uses."""
    return dtype == BFLOAT16 or dtype.name == "bfloat16"


def is_narrow(dtype: DType) -> bool:
    """Return whether elements are f16 or bf16."""
    return dtype == FLOAT16 or dtype == BFLOAT16


def largest(dtype: DType) -> float:
    """Return the largest finite number of a float dtype."""
    return 255 * 2.0**120 if dtype == BFLOAT16 else float(np.finfo(dtype).max)


def convert(array: Array, dtype: DType) -> Array:
    """Return `array` in another dtype; itself if it has it.

    To f16 and bf16 by way of float32; from floats to integers of one byte by way of i64, so that
    -1.0 is 255 as u8. What no integer of that dtype holds, and NaN, become anything.
    """
    if array.dtype == dtype:
        return array
    if is_bfloat16(array.dtype):
        if dtype == BFLOAT16:
            return array.view(BFLOAT16)
        array = _from_bfloat16(array)
    if dtype == BFLOAT16:
        return _to_bfloat16(array)
    with np.errstate(all="ignore"):
        if dtype == FLOAT16:
            array = array.astype(np.float32)
        elif dtype.itemsize == 1 and dtype.kind != "b" and array.dtype.kind == "f":
            array = array.astype(np.int64)
        return array.astype(dtype)


def long_name(dtype: DType) -> str:
    """Return NumPy's name of a dtype, or "bfloat16"."""
    return "bfloat16" if is_bfloat16(dtype) else dtype.name


def can_hold(dtype: DType, other: DType) -> bool:
    """Return whether `other` may be written to `dtype`.

    Any float may be written to a float, but no float to an integer.
    """
    source, target = (FLOAT16 if is_bfloat16(d) else d for d in (other, dtype))
    return np.can_cast(source, target, "same_kind")


def array_of(value: Any, dtype: DType) -> Array:
    """A new array of `dtype` that holds numbers. OverflowError where integers do not fit."""
    if is_narrow(dtype):
        return convert(np.array(value, np.float32), dtype)
    return np.array(value, dtype)


def widened(array: Array) -> Array:
    """Return `array` as float32 if it is f16 or bf16, else itself."""
    return convert(array, np.dtype(np.float32)) if is_narrow(array.dtype) else array


def flushed(array: Array) -> Array:
    """Return `array` with denormals of f32 and f64 replaced by zeros of the same sign."""
    if array.dtype not in (np.float32, np.float64):
        return array
    small = np.abs(array) < np.finfo(array.dtype).tiny
    return np.where(small, np.copysign(array.dtype.type(0), array), array)


def shown(array: Array) -> Array:
    """Return `array` as users get it: bf16 as float32, else itself."""
    return _from_bfloat16(array) if array.dtype == BFLOAT16 else array


def _from_bfloat16(array: Array) -> Array:
    bits = array.view(np.uint16).astype(np.uint32)
    return np.asarray(bits << np.uint32(16)).view(np.float32)


def _to_bfloat16(array: Array) -> Array:
    with np.errstate(all="ignore"):
        bits = np.asarray(array).astype(np.float32, order="K").view(np.uint32)
    upper = bits >> np.uint32(16)
    rounded = (bits + np.uint32(0x7FFF) + (upper & np.uint32(1))) >> np.uint32(16)
    is_nan = (bits & np.uint32(0x7FFFFFFF)) > np.uint32(0x7F800000)
    # A NaN keeps its bits, but for one that would be an infinity without the lower half.
    nan = np.where(upper & np.uint32(0x7F), upper, upper | np.uint32(0x40))
    return np.where(is_nan, nan, rounded).astype(np.uint16).view(BFLOAT16)
