"""Create tensors from numbers and arrays."""

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
    """Return a tensor with every element equal to `fill_value`.

    Args:
        shape: The shape of the result, an integer or integers.
        fill_value: The value of every element.
        dtype: The dtype of the result; by default f32, i64 or bool, after the type of `fill_value`.

    Returns:
        A tensor of shape `shape`.

    Raises:
        GraphError: A size is negative or no integer, or the dtype is unknown.

    Example:
        >>> graphc.compile(lambda: graphc.full((2, 2), 7))()
        array([[7, 7],
               [7, 7]])
    """
    scalar = as_tensor(fill_value, None if dtype is None else dtype_of(dtype))
    return broadcast_to(scalar, shape_of("full", shape))


def zeros(shape: Shape, dtype: DTypeLike = "f32") -> Tensor:
    """Return a tensor of zeros.

    Args:
        shape: The shape of the result, an integer or integers.
        dtype: The dtype of the result.

    Example:
        >>> graphc.compile(lambda: graphc.zeros((2, 3)))()
        array([[0., 0., 0.],
               [0., 0., 0.]], dtype=float32)
    """
    return full(shape, 0, dtype)


def ones(shape: Shape, dtype: DTypeLike = "f32") -> Tensor:
    """Return a tensor of ones.

    Args:
        shape: The shape of the result, an integer or integers.
        dtype: The dtype of the result.

    Example:
        >>> graphc.compile(lambda: graphc.ones(3, "int32"))()
        array([1, 1, 1], dtype=int32)
    """
    return full(shape, 1, dtype)


def full_like(x: TensorLike, fill_value: Scalar, dtype: DTypeLike | None = None) -> Tensor:
    """Return a tensor of the shape of `x` with every element equal to `fill_value`.

    Args:
        x: The tensor whose shape is used.
        fill_value: The value of every element.
        dtype: The dtype of the result; by default that of `x`.

    Example:
        >>> graphc.compile(lambda: graphc.full_like([1.0, 2.0], 5))()
        array([5., 5.], dtype=float32)
    """
    tensor = as_tensor(x)
    return full(tensor.shape, fill_value, tensor.dtype if dtype is None else dtype)


def zeros_like(x: TensorLike, dtype: DTypeLike | None = None) -> Tensor:
    """Return a tensor of zeros of the shape of `x`.

    Args:
        x: The tensor whose shape is used.
        dtype: The dtype of the result; by default that of `x`.

    Example:
        >>> graphc.compile(lambda: graphc.zeros_like([1, 2]))()
        array([0, 0])
    """
    return full_like(x, 0, dtype)


def ones_like(x: TensorLike, dtype: DTypeLike | None = None) -> Tensor:
    """Return a tensor of ones of the shape of `x`.

    Args:
        x: The tensor whose shape is used.
        dtype: The dtype of the result; by default that of `x`.

    Example:
        >>> graphc.compile(lambda: graphc.ones_like([1, 2]))()
        array([1, 1])
    """
    return full_like(x, 1, dtype)


def asarray(obj: object, dtype: DTypeLike | None = None) -> Tensor:
    """Convert an object to a tensor.

    Args:
        obj: A tensor, parameter, array, number or nested list of numbers.
        dtype: The dtype of the result; by default that of `obj`.

    Returns:
        A tensor with the elements of `obj`.

    Example:
        >>> graphc.compile(lambda: graphc.asarray([1, 2], dtype="float32"))()
        array([1., 2.], dtype=float32)
    """
    tensor = as_tensor(obj)
    return tensor if dtype is None else cast(tensor, dtype_name(dtype))


def arange(
    start: Scalar, stop: Scalar | None = None, step: Scalar = 1, dtype: DTypeLike | None = None
) -> Tensor:
    """Return evenly spaced numbers in the half-open interval [start, stop).

    Args:
        start: The first number; the end of the interval, which then begins at 0, without `stop`.
        stop: The end of the interval, which is not included.
        step: The difference between two neighbours.
        dtype: The dtype of the result; by default i64, or f32 if any argument is a float.

    Returns:
        A tensor [ceil((stop - start) / step)].

    Raises:
        GraphError: `step` is 0.

    Example:
        >>> graphc.compile(lambda: graphc.arange(1, 8, 2))()
        array([1, 3, 5, 7])
    """
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
    """Return the lower triangle of matrices, with zeros above the diagonal.

    Args:
        x: Matrices [..., rows, columns].
        k: The diagonal above which elements are zero: 0 is the main one, 1 the one above it.

    Raises:
        GraphError: `x` has fewer than two axes.

    Example:
        >>> graphc.compile(lambda: graphc.tril([[1, 2], [3, 4]]))()
        array([[1, 0],
               [3, 4]])
    """
    tensor, rows, columns = _places("tril", x)
    return where(less_equal(columns, add(rows, k)), tensor, as_tensor(0, tensor.dtype))


def triu(x: TensorLike, k: int = 0) -> Tensor:
    """Return the upper triangle of matrices, with zeros below the diagonal.

    Args:
        x: Matrices [..., rows, columns].
        k: The diagonal below which elements are zero: 0 is the main one, 1 the one above it.

    Raises:
        GraphError: `x` has fewer than two axes.

    Example:
        >>> graphc.compile(lambda: graphc.triu([[1, 2], [3, 4]], k=1))()
        array([[0, 2],
               [0, 0]])
    """
    tensor, rows, columns = _places("triu", x)
    return where(greater_equal(columns, add(rows, k)), tensor, as_tensor(0, tensor.dtype))


def _places(name: str, x: TensorLike) -> tuple[Tensor, Tensor, Tensor]:
    """x with its row numbers [rows, 1] and column numbers [1, columns]."""
    tensor = as_tensor(x)
    if tensor.ndim < 2:
        raise error(f"{name}: expected 2 axes or more, got {tensor.value.type}")
    rows, columns = tensor.shape[-2:]
    return tensor, emit(ops.Iota((rows, 1), 0)), emit(ops.Iota((1, columns), 1))
