"""Elements in order of size. Each element's place is the number of elements that come before it, so
the work grows with the square of the axis's extent; all of it is parallel."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphc import ops
from graphc.functions.elementwise import (
    equal,
    greater,
    isnan,
    less,
    logical_and,
    logical_not,
    logical_or,
)
from graphc.functions.gathering import sum_by_index
from graphc.functions.reductions import sum
from graphc.functions.shapes import broadcast_to, expand_dims
from graphc.functions.tensors import as_tensor, axis_of, cast, error
from graphc.ir import FLOATS
from graphc.trace import Tensor, emit

__all__ = ["argsort", "sort", "topk"]


def argsort(x: Any, axis: int = -1, descending: bool = False) -> Tensor:
    """The places along `axis` of the elements in order, i64; equal ones keep theirs (stable), NaN
    counts as the largest."""
    tensor = as_tensor(x)
    place = axis_of("argsort", axis, tensor)
    return _placed(tensor, place, descending, tensor.shape[place])


def sort(x: Any, axis: int = -1, descending: bool = False) -> Tensor:
    """The elements in order along `axis`; NaN counts as the largest."""
    tensor = as_tensor(x)
    place = axis_of("sort", axis, tensor)
    order = _placed(tensor, place, descending, tensor.shape[place])
    return emit(ops.TakeAlongAxis(place), tensor, order)


def topk(x: Any, k: int, axis: int = -1, largest: bool = True) -> tuple[Tensor, Tensor]:
    """The k largest (or smallest) elements along `axis`, in order, and their places, i64. Of equal
    ones the first comes first."""
    tensor = as_tensor(x)
    place = axis_of("topk", axis, tensor)
    if not isinstance(k, int | np.integer) or not 0 <= k <= tensor.shape[place]:
        raise error(
            f"topk: k expected an integer from 0 to {tensor.shape[place]} for axis {place} of "
            f"{tensor.value.type}, got {k!r}"
        )
    order = _placed(tensor, place, largest, int(k))
    return emit(ops.TakeAlongAxis(place), tensor, order), order


def _placed(x: Tensor, axis: int, descending: bool, count: int) -> Tensor:
    """The places of the first `count` elements in order."""
    ramp = tuple(x.shape[axis] if a == axis else 1 for a in range(x.ndim))
    places = broadcast_to(emit(ops.Iota(ramp, axis, "i32")), x.shape)
    return cast(sum_by_index(_ranks(x, axis, descending), places, axis, count), "i64")


def _ranks(x: Tensor, axis: int, descending: bool) -> Tensor:
    """How many elements along `axis` come before each one: i32."""
    mine, other = expand_dims(x, axis + 1), expand_dims(x, axis)
    before = (greater if descending else less)(other, mine)
    same = equal(other, mine)
    if x.dtype in FLOATS:
        first, second = (other, mine) if descending else (mine, other)
        last = logical_and(isnan(first), logical_not(isnan(second)))
        before = logical_or(before, last)
        same = logical_or(same, logical_and(isnan(mine), isnan(other)))
    shape = [x.shape[axis] if a in (axis, axis + 1) else 1 for a in range(x.ndim + 1)]
    numbers = [
        emit(ops.Iota(tuple(n if b == a else 1 for b, n in enumerate(shape)), a, "i32"))
        for a in (axis, axis + 1)
    ]
    earlier = logical_and(same, less(numbers[1], numbers[0]))
    return sum(cast(logical_or(before, earlier), "i32"), axis + 1, dtype="i32")
