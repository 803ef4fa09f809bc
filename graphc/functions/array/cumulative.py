"""Cumulative sums, products and extremes along an axis."""

from __future__ import annotations

from typing import Any

from graphc import ops
from graphc.functions.array.shape.no_axes import or_without_axes
from graphc.functions.array.tensors import as_tensor, axis_of, cast, floating, summable
from graphc.ir import DTypeLike, TensorLike
from graphc.ops.base import Op
from graphc.trace import Tensor, current_builder, emit


@or_without_axes
def cumsum(x: TensorLike, axis: int, dtype: DTypeLike | None = None) -> Tensor:
    """Return cumulative sums along an axis: y[i] = x[0] + ... + x[i].

    Args:
        x: The input; a scalar counts as a vector of one element.
        axis: The axis to sum along.
        dtype: The dtype of the sums; by default that of floats, and i64 for integers and booleans.

    Returns:
        A tensor of the shape of `x`.

    Example:
        >>> graphc.compile(lambda: graphc.cumsum([[1, 2], [3, 4]], axis=0))()
        array([[1, 2],
               [4, 6]])
    """
    tensor = summable(x, dtype)
    return emit(ops.Cumsum(axis_of("cumsum", axis, tensor)), tensor)


@or_without_axes
def cumprod(x: TensorLike, axis: int, dtype: DTypeLike | None = None) -> Tensor:
    """Return cumulative products along an axis: y[i] = x[0] * ... * x[i].

    Args:
        x: The input; a scalar counts as a vector of one element.
        axis: The axis to multiply along.
        dtype: The dtype of the products; by default that of floats, and i64 for integers and
            booleans.

    Returns:
        A tensor of the shape of `x`.

    Example:
        >>> graphc.compile(lambda: graphc.cumprod([1, 2, 3, 4], axis=0))()
        array([ 1,  2,  6, 24])
    """
    tensor = summable(x, dtype)
    return emit(ops.Cumprod(axis_of("cumprod", axis, tensor)), tensor)


@or_without_axes
def cummax(x: TensorLike, axis: int) -> tuple[Tensor, Tensor]:
    """Return the maximum of the elements up to each position, and its index.

    Args:
        x: The input; NaN counts as the largest value.
        axis: The axis to scan.

    Returns:
        Two tensors of the shape of `x`: max(x[0], ..., x[i]), and the i64 index of the last element
        equal to it.

    Example:
        >>> graphc.compile(lambda: graphc.cummax([1, 3, 2, 4], axis=0))()
        (array([1, 3, 3, 4]), array([0, 1, 1, 3]))
    """
    tensor = as_tensor(x)
    return _extremes(ops.Cummax(axis_of("cummax", axis, tensor)), tensor)


@or_without_axes
def cummin(x: TensorLike, axis: int) -> tuple[Tensor, Tensor]:
    """Return the minimum of the elements up to each position, and its index.

    Args:
        x: The input; NaN counts as the smallest value.
        axis: The axis to scan.

    Returns:
        Two tensors of the shape of `x`: min(x[0], ..., x[i]), and the i64 index of the last element
        equal to it.

    Example:
        >>> graphc.compile(lambda: graphc.cummin([3, 1, 2, 0], axis=0))()
        (array([3, 1, 1, 0]), array([0, 1, 1, 3]))
    """
    tensor = as_tensor(x)
    return _extremes(ops.Cummin(axis_of("cummin", axis, tensor)), tensor)


def _extremes(op: Op, x: Tensor) -> tuple[Tensor, Tensor]:
    numbers = cast(x, "u8") if x.dtype == "bool" else x
    values, places = current_builder().emit(op, numbers)
    return cast(values, x.dtype), places


@or_without_axes
def logcumsumexp(x: TensorLike, axis: int) -> Tensor:
    """Return cumulative log-sum-exp along an axis: y[i] = log(exp(x[0]) + ... + exp(x[i])).

    The exponentials never overflow.

    Args:
        x: The input; integers become f32.
        axis: The axis to sum along.

    Returns:
        A float tensor of the shape of `x`.

    Example:
        >>> graphc.compile(lambda: graphc.logcumsumexp([0.0, 0.0], axis=0))()
        array([0.       , 0.6931472], dtype=float32)
    """
    tensor = floating(x)
    return emit(ops.Logcumsumexp(axis_of("logcumsumexp", axis, tensor)), tensor)


def cumulative_sum(
    x: TensorLike,
    axis: int | None = None,
    dtype: DTypeLike | None = None,
    include_initial: bool = False,
) -> Tensor:
    """Return cumulative sums along an axis, by the name and arguments of the Array API.

    Args:
        x: The input.
        axis: The axis to sum along; it may be None for a vector.
        dtype: The dtype of the sums, as in `cumsum`.
        include_initial: Whether to put 0 before the first sum, which makes the axis longer by one.

    Example:
        >>> graphc.compile(lambda: graphc.cumulative_sum([1, 2, 3], include_initial=True))()
        array([0, 1, 3, 6])
    """
    return _cumulative("cumulative_sum", ops.Cumsum, 0, x, axis, dtype, include_initial)


def cumulative_prod(
    x: TensorLike,
    axis: int | None = None,
    dtype: DTypeLike | None = None,
    include_initial: bool = False,
) -> Tensor:
    """Return cumulative products along an axis, by the name and arguments of the Array API.

    Args:
        x: The input.
        axis: The axis to multiply along; it may be None for a vector.
        dtype: The dtype of the products, as in `cumprod`.
        include_initial: Whether to put 1 before the first product, which makes the axis longer by
            one.

    Example:
        >>> graphc.compile(lambda: graphc.cumulative_prod([1, 2, 3], include_initial=True))()
        array([1, 1, 2, 6])
    """
    return _cumulative("cumulative_prod", ops.Cumprod, 1, x, axis, dtype, include_initial)


def _cumulative(
    name: str,
    op: Any,
    start: int,
    x: TensorLike,
    axis: int | None,
    dtype: DTypeLike | None,
    include_initial: bool,
) -> Tensor:
    tensor = summable(x, dtype)
    place = axis_of(name, 0 if axis is None and tensor.ndim == 1 else axis, tensor)
    y = emit(op(place), tensor)
    if not include_initial:
        return y
    none = (0,) * y.ndim
    low = tuple(int(a == place) for a in range(y.ndim))
    return emit(ops.Pad(low, none, none, start), y)
