"""Sorting, selection and order statistics."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphc import ops
from graphc.functions.array.creation import arange
from graphc.functions.array.cumulative import cummax
from graphc.functions.array.elementwise.elementwise import (
    floor,
    floor_divide,
    isnan,
    logical_not,
    maximum,
    not_equal,
    where,
)
from graphc.functions.array.elementwise.numeric import ceil, lerp, round
from graphc.functions.array.indexing.gathering import take_along_axis
from graphc.functions.array.reductions import any, argmax, sum
from graphc.functions.array.shape.no_axes import or_without_axes
from graphc.functions.array.shape.rearrange import moveaxis
from graphc.functions.array.shape.shapes import broadcast_to, expand_dims, reshape, squeeze
from graphc.functions.array.tensors import as_tensor, axis_of, cast, error
from graphc.functions.array.values_alone import values_alone
from graphc.ir import FLOATS, TensorLike
from graphc.trace import Tensor, current_builder, emit

INTERPOLATIONS = ("linear", "lower", "higher", "nearest", "midpoint")


@or_without_axes
def argsort(x: TensorLike, axis: int = -1, descending: bool = False) -> Tensor:
    """Return the indices that sort a tensor along an axis.

    The sort is stable: equal elements keep their order.

    Args:
        x: The input; NaN counts as the largest value.
        axis: The axis to sort along.
        descending: Whether to sort from the largest to the smallest.

    Returns:
        Indices, i64, of the shape of `x`.

    Example:
        >>> graphc.compile(lambda: graphc.argsort([3, 1, 2]))()
        array([1, 2, 0])
    """
    return _sorted("argsort", x, axis, descending)[1]


@or_without_axes
def sort(x: TensorLike, axis: int = -1, descending: bool = False) -> Tensor:
    """Sort a tensor along an axis.

    It returns values alone; `argsort` returns indices.

    Args:
        x: The input; NaN counts as the largest value.
        axis: The axis to sort along.
        descending: Whether to sort from the largest to the smallest.

    Example:
        >>> graphc.compile(lambda: graphc.sort([3, 1, 2], descending=True))()
        array([3, 2, 1])
    """
    return values_alone(_sorted("sort", x, axis, descending)[0], "sort", axis)


@or_without_axes
def topk(x: TensorLike, k: int, axis: int = -1, largest: bool = True) -> tuple[Tensor, Tensor]:
    """Return the `k` largest or smallest elements along an axis, and their indices.

    Args:
        x: The input; NaN counts as the largest value.
        k: The number of elements.
        axis: The axis to search.
        largest: Whether to return the largest elements, from the largest down; else the smallest,
            from the smallest up.

    Returns:
        Values and i64 indices; the first of equal elements comes first.

    Raises:
        GraphError: `k` is not between 0 and the size of the axis.

    Example:
        >>> graphc.compile(lambda: graphc.topk([3, 1, 4, 1, 5], 2))()
        (array([5, 4]), array([4, 2]))
    """
    tensor = as_tensor(x)
    place = axis_of("topk", axis, tensor)
    if not isinstance(k, int | np.integer) or not 0 <= k <= tensor.shape[place]:
        raise error(
            f"topk: k expected an integer from 0 to {tensor.shape[place]} for axis {place} of "
            f"{tensor.value.type}, got {k!r}"
        )
    return _first(tensor, place, int(k), largest)


def msort(x: TensorLike) -> Tensor:
    """Sort a tensor along its first axis."""
    return _sorted("msort", x, 0, False)[0]


@or_without_axes
def kthvalue(
    x: TensorLike, k: int, axis: int = -1, keepdims: bool = False
) -> tuple[Tensor, Tensor]:
    """Return the `k`-th smallest element along an axis, and its index.

    Args:
        x: The input; NaN counts as the largest value.
        k: The rank of the element, counted from 1.
        axis: The axis to search.
        keepdims: Whether to keep the reduced axes, with size 1.

    Returns:
        Values and i64 indices.

    Raises:
        GraphError: `k` is not between 1 and the size of the axis.

    Example:
        >>> graphc.compile(lambda: graphc.kthvalue([3, 1, 2], 2))()
        (array(2), array(2))
    """
    tensor = as_tensor(x)
    place = axis_of("kthvalue", axis, tensor)
    if not isinstance(k, int | np.integer) or not 1 <= k <= tensor.shape[place]:
        raise error(
            f"kthvalue: k expected an integer from 1 to {tensor.shape[place]} for axis {place} of "
            f"{tensor.value.type}, got {k!r}"
        )
    values, places = _first(tensor, place, int(k))
    at = (*(slice(None),) * place, slice(int(k) - 1, int(k)))
    return _kept(values[at], place, keepdims), _kept(places[at], place, keepdims)


@or_without_axes
def median(x: TensorLike, axis: int | None = None, keepdims: bool = False) -> Any:
    """Return the median along an axis, the lower of two middle elements.

    If any element is NaN, so is the median.

    Args:
        x: The input.
        axis: The axis to reduce; None takes the median of all elements.
        keepdims: Whether to keep the reduced axes, with size 1.

    Returns:
        Values and i64 indices along `axis`; the value alone where `axis` is None.

    Example:
        >>> graphc.compile(lambda: graphc.median([3.0, 1.0, 2.0, 4.0], axis=0))()
        (array(2., dtype=float32), array(2))
    """
    tensor, place = _with_elements("median", x, axis)
    extent = tensor.shape[place]
    value, where_it_is = kthvalue(tensor, (extent + 1) // 2, place, keepdims=True)
    if tensor.dtype in FLOATS:
        lost = isnan(tensor)
        value = where(any(lost, place, keepdims=True), float("nan"), value)
        where_it_is = where(isnan(value), argmax(cast(lost, "i32"), place, True), where_it_is)
    return _pair(value, where_it_is, place, axis, keepdims)


@or_without_axes
def nanmedian(x: TensorLike, axis: int | None = None, keepdims: bool = False) -> Any:
    """Return the median of the elements that are not NaN; NaN if all are.

    Args:
        x: The input.
        axis: The axis to reduce; None takes the median of all elements.
        keepdims: Whether to keep the reduced axes, with size 1.

    Returns:
        Values and i64 indices along `axis`; the value alone where `axis` is None.

    Example:
        >>> graphc.compile(lambda: graphc.nanmedian([3.0, np.nan, 2.0]))()
        array(2., dtype=float32)
    """
    tensor, place = _with_elements("nanmedian", x, axis)
    values, places = _first(tensor, place, tensor.shape[place])
    count = sum(cast(logical_not(isnan(values)), "i64"), place, keepdims=True)
    middle = maximum(floor_divide(count - 1, 2), 0)
    value, where_it_is = (take_along_axis(t, middle, place) for t in (values, places))
    return _pair(value, where_it_is, place, axis, keepdims)


@or_without_axes
def mode(x: TensorLike, axis: int = -1, keepdims: bool = False) -> tuple[Tensor, Tensor]:
    """Return the most frequent element along an axis, the smallest of several.

    Args:
        x: The input.
        axis: The axis to reduce.
        keepdims: Whether to keep the reduced axes, with size 1.

    Returns:
        Values, and the i64 index of the last element equal to it.

    Example:
        >>> graphc.compile(lambda: graphc.mode([2, 1, 2, 3]))()
        (array(2), array(2))
    """
    tensor, place = _with_elements("mode", x, axis)
    values, places = _first(tensor, place, tensor.shape[place])
    extent = tensor.shape[place]
    index = arange(extent, dtype="i32")
    ramp = broadcast_to(
        reshape(index, [extent if a == place else 1 for a in range(tensor.ndim)]), tensor.shape
    )
    before = (*(slice(None),) * place, slice(0, extent - 1))
    after = (*(slice(None),) * place, slice(1, extent))
    starts = cast(not_equal(values[before], values[after]), "i32") * ramp[after]
    low = tuple(int(a == place) for a in range(tensor.ndim))
    none = (0,) * tensor.ndim
    start, _ = cummax(emit(ops.Pad(low, none, none, 0), starts), place)
    found = argmax(ramp - start, place, keepdims=True)
    value, where_it_is = (take_along_axis(t, found, place) for t in (values, places))
    return _kept(value, place, keepdims), _kept(where_it_is, place, keepdims)


def quantile(
    x: TensorLike,
    q: TensorLike,
    axis: int | None = None,
    keepdims: bool = False,
    interpolation: str = "linear",
) -> Tensor:
    """Return quantiles along an axis; NaN if any element is NaN.

    Args:
        x: The input, floats.
        q: The quantiles in [0, 1]: a number, or a vector, whose axis comes first in the result.
        axis: The axis to reduce; None takes the quantile of all elements.
        keepdims: Whether to keep the reduced axes, with size 1.
        interpolation: The value between two elements: "linear", "lower", "higher", "nearest" or
            "midpoint".

    Example:
        >>> graphc.compile(lambda: graphc.quantile([0.0, 1.0, 2.0, 3.0], 0.5))()
        array(1.5, dtype=float32)
    """
    return _quantile("quantile", x, q, axis, keepdims, interpolation)


def nanquantile(
    x: TensorLike,
    q: TensorLike,
    axis: int | None = None,
    keepdims: bool = False,
    interpolation: str = "linear",
) -> Tensor:
    """Return quantiles of the elements that are not NaN; NaN if all are.

    Args:
        x: The input, floats.
        q: The quantiles in [0, 1]: a number, or a vector, whose axis comes first in the result.
        axis: The axis to reduce; None takes the quantile of all elements.
        keepdims: Whether to keep the reduced axes, with size 1.
        interpolation: The value between two elements, as in `quantile`.

    Example:
        >>> graphc.compile(lambda: graphc.nanquantile([0.0, np.nan, 2.0], 0.5))()
        array(1., dtype=float32)
    """
    return _quantile("nanquantile", x, q, axis, keepdims, interpolation)


def _quantile(
    name: str, x: TensorLike, q: TensorLike, axis: int | None, keepdims: bool, kind: str
) -> Tensor:
    if not as_tensor(x).ndim and axis in (0, -1):
        axis = None
    tensor, place = _with_elements(name, x, axis)
    fractions = as_tensor(q if isinstance(q, Tensor) else np.asarray(q, np.float64))
    if tensor.dtype not in FLOATS or fractions.ndim > 1:
        raise error(
            f"{name}: expected floats and q of one axis or none, got {tensor.value.type} and "
            f"{fractions.value.type}"
        )
    if kind not in INTERPOLATIONS:
        raise error(f"{name}: interpolation expected {', '.join(INTERPOLATIONS)}, got {kind!r}")
    values = moveaxis(_first(tensor, place, tensor.shape[place])[0], place, -1)
    lost = isnan(values)
    last = as_tensor(tensor.shape[place] - 1, tensor.dtype)
    if name == "nanquantile":
        last = sum(cast(logical_not(lost), tensor.dtype), -1, keepdims=True) - 1
    ranks = maximum(reshape(cast(fractions, tensor.dtype), (-1,)) * last, 0)
    ranks = broadcast_to(ranks, (*values.shape[:-1], ranks.shape[-1]))
    if name == "quantile":
        ranks = where(any(lost, -1, keepdims=True), last, ranks)
    y = _between(values, ranks, kind)
    if keepdims:
        rank = tensor.ndim if axis is not None else as_tensor(x).ndim
        y = expand_dims(y, place) if axis is not None else reshape(y, (*(1,) * rank, -1))
    return moveaxis(y, -1, 0) if fractions.ndim else squeeze(y, -1)


def _between(values: Tensor, ranks: Tensor, kind: str) -> Tensor:
    """The elements of ascending `values` at `ranks` of the last axis, which may lie between two."""
    rounding = {"lower": floor, "higher": ceil, "nearest": round}
    if kind in rounding:
        return take_along_axis(values, cast(rounding[kind](ranks), "i64"), -1)
    below = floor(ranks)
    low = take_along_axis(values, cast(below, "i64"), -1)
    high = take_along_axis(values, cast(ceil(ranks), "i64"), -1)
    return lerp(low, high, 0.5 if kind == "midpoint" else ranks - below)


def _with_elements(name: str, x: TensorLike, axis: int | None) -> tuple[Tensor, int]:
    """x, flat if `axis` is None, and the axis, along which there are elements."""
    tensor = as_tensor(x)
    if axis is None:
        tensor = reshape(tensor, (-1,))
    place = axis_of(name, 0 if axis is None else axis, tensor)
    if tensor.shape[place] == 0:
        raise error(f"{name}: no elements along axis {place} of {tensor.value.type}")
    return tensor, place


def _kept(x: Tensor, axis: int, keepdims: bool) -> Tensor:
    return x if keepdims else squeeze(x, axis)


def _pair(value: Tensor, place: Tensor, axis: int, given: int | None, keepdims: bool) -> Any:
    values = _kept(value, axis, keepdims)
    return values if given is None else (values, _kept(place, axis, keepdims))


def _sorted(name: str, x: TensorLike, axis: int, descending: bool) -> tuple[Tensor, Tensor]:
    tensor = as_tensor(x)
    place = axis_of(name, axis, tensor)
    return _first(tensor, place, tensor.shape[place], descending)


def _first(x: Tensor, axis: int, count: int, descending: bool = False) -> tuple[Tensor, Tensor]:
    """The first `count` elements in order, and their places."""
    values, places = current_builder().emit(ops.Sort(axis, count, descending), x)
    return values, places
