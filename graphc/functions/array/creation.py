"""Tensors that are made from numbers alone."""

from __future__ import annotations

import math

import numpy as np

from graphc import ops
from graphc.functions.array.elementwise.elementwise import (
    add,
    greater_equal,
    less_equal,
    multiply,
    where,
)
from graphc.functions.array.shape.shapes import broadcast_to
from graphc.functions.array.tensors import (
    Scalar,
    Shape,
    as_tensor,
    cast,
    dtype_of,
    error,
    scalar_dtype,
    shape_of,
)
from graphc.ir import DTypeLike, TensorLike, dtype_name
from graphc.trace import Tensor, emit


def full(shape: Shape, fill_value: Scalar, dtype: DTypeLike | None = None) -> Tensor:
    """`fill_value` everywhere; f32, i64 or bool unless `dtype` says otherwise."""
    scalar = as_tensor(fill_value, None if dtype is None else dtype_of(dtype))
    return broadcast_to(scalar, shape_of("full", shape))


def zeros(shape: Shape, dtype: DTypeLike = "f32") -> Tensor:
    """0 everywhere."""
    return full(shape, 0, dtype)


def ones(shape: Shape, dtype: DTypeLike = "f32") -> Tensor:
    """1 everywhere."""
    return full(shape, 1, dtype)


def full_like(x: TensorLike, fill_value: Scalar, dtype: DTypeLike | None = None) -> Tensor:
    """`fill_value` in the shape of x, and in its dtype unless `dtype` says otherwise."""
    tensor = as_tensor(x)
    return full(tensor.shape, fill_value, tensor.dtype if dtype is None else dtype)


def zeros_like(x: TensorLike, dtype: DTypeLike | None = None) -> Tensor:
    """0 in the shape of x, and in its dtype unless `dtype` says otherwise."""
    return full_like(x, 0, dtype)


def ones_like(x: TensorLike, dtype: DTypeLike | None = None) -> Tensor:
    """1 in the shape of x, and in its dtype unless `dtype` says otherwise."""
    return full_like(x, 1, dtype)


def asarray(obj: object, dtype: DTypeLike | None = None) -> Tensor:
    """`obj` (a tensor, parameter, array, number or nested list of numbers) as a tensor, converted
    to `dtype` if that is given."""
    tensor = as_tensor(obj)
    return tensor if dtype is None else cast(tensor, dtype_name(dtype))


def arange(
    start: Scalar, stop: Scalar | None = None, step: Scalar = 1, dtype: DTypeLike | None = None
) -> Tensor:
    """start, start + step, ... below `stop` (from 0 if one number is given): i64 for integers, f32
    if any is a float, unless `dtype` says otherwise."""
    if step == 0:
        raise error("arange: step is not 0")
    first, last = (0, start) if stop is None else (start, stop)
    floats = "f32" in (scalar_dtype(first), scalar_dtype(last), scalar_dtype(step))
    kind = dtype_of(dtype) if dtype is not None else "f32" if floats else "i64"
    count = max(math.ceil((last - first) / step), 0)
    ramp = emit(ops.Iota((count,), 0, kind))
    scaled = ramp if step == 1 else multiply(ramp, np.asarray(step).item())
    return scaled if first == 0 else cast(add(scaled, np.asarray(first).item()), kind)


def tril(x: TensorLike, k: int = 0) -> Tensor:
    """x [..., rows, columns] with zeros above diagonal number k (0: the main one)."""
    tensor, rows, columns = _places("tril", x)
    return where(less_equal(columns, add(rows, k)), tensor, as_tensor(0, tensor.dtype))


def triu(x: TensorLike, k: int = 0) -> Tensor:
    """x [..., rows, columns] with zeros below diagonal number k (0: the main one)."""
    tensor, rows, columns = _places("triu", x)
    return where(greater_equal(columns, add(rows, k)), tensor, as_tensor(0, tensor.dtype))


def _places(name: str, x: TensorLike) -> tuple[Tensor, Tensor, Tensor]:
    """x with its row numbers [rows, 1] and column numbers [1, columns]."""
    tensor = as_tensor(x)
    if tensor.ndim < 2:
        raise error(f"{name}: expected 2 axes or more, got {tensor.value.type}")
    rows, columns = tensor.shape[-2:]
    return tensor, emit(ops.Iota((rows, 1), 0)), emit(ops.Iota((1, columns), 1))
