"""Running results along an axis."""

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
    """y[i] = x[0] + ... + x[i] along `axis`; dtypes as of `sum`."""
    tensor = summable(x, dtype)
    return emit(ops.Cumsum(axis_of("cumsum", axis, tensor)), tensor)


@or_without_axes
def cumprod(x: TensorLike, axis: int, dtype: DTypeLike | None = None) -> Tensor:
    """y[i] = x[0] * ... * x[i] along `axis`; dtypes as of `prod`."""
    tensor = summable(x, dtype)
    return emit(ops.Cumprod(axis_of("cumprod", axis, tensor)), tensor)


@or_without_axes
def cummax(x: TensorLike, axis: int) -> tuple[Tensor, Tensor]:
    """The largest of x[0], ..., x[i] along `axis`, and its place, i64: the last of equal ones. NaN
    is larger than anything."""
    tensor = as_tensor(x)
    return _extremes(ops.Cummax(axis_of("cummax", axis, tensor)), tensor)


@or_without_axes
def cummin(x: TensorLike, axis: int) -> tuple[Tensor, Tensor]:
    """The smallest of x[0], ..., x[i] along `axis`, and its place, i64: the last of equal ones. NaN
    is smaller than anything."""
    tensor = as_tensor(x)
    return _extremes(ops.Cummin(axis_of("cummin", axis, tensor)), tensor)


def _extremes(op: Op, x: Tensor) -> tuple[Tensor, Tensor]:
    numbers = cast(x, "u8") if x.dtype == "bool" else x
    values, places = current_builder().emit(op, numbers)
    return cast(values, x.dtype), places


@or_without_axes
def logcumsumexp(x: TensorLike, axis: int) -> Tensor:
    """y[i] = log(exp(x[0]) + ... + exp(x[i])) along `axis`, without overflow."""
    tensor = floating(x)
    return emit(ops.Logcumsumexp(axis_of("logcumsumexp", axis, tensor)), tensor)


def cumulative_sum(
    x: TensorLike,
    axis: int | None = None,
    dtype: DTypeLike | None = None,
    include_initial: bool = False,
) -> Tensor:
    """`cumsum`; with 0 before it if `include_initial`. `axis` may be None where x has one."""
    return _cumulative("cumulative_sum", ops.Cumsum, 0, x, axis, dtype, include_initial)


def cumulative_prod(
    x: TensorLike,
    axis: int | None = None,
    dtype: DTypeLike | None = None,
    include_initial: bool = False,
) -> Tensor:
    """`cumprod`; with 1 before it if `include_initial`. `axis` may be None where x has one."""
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
