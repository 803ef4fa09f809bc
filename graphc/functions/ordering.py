"""Elements in order of size: sorting, selection, order statistics, binary search."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphc import ops
from graphc.functions.tensors import as_tensor, axis_of, error
from graphc.trace import Tensor, current_builder

__all__ = ["argsort", "sort", "topk"]


def argsort(x: Any, axis: int = -1, descending: bool = False) -> Tensor:
    """The places along `axis` of the elements in order, i64; equal ones keep theirs (stable), NaN
    counts as the largest."""
    return _sorted("argsort", x, axis, descending)[1]


def sort(x: Any, axis: int = -1, descending: bool = False) -> Tensor:
    """The elements in order along `axis`; NaN counts as the largest."""
    return _sorted("sort", x, axis, descending)[0]


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
    return _first(tensor, place, int(k), largest)


def _sorted(name: str, x: Any, axis: int, descending: bool) -> tuple[Tensor, Tensor]:
    tensor = as_tensor(x)
    place = axis_of(name, axis, tensor)
    return _first(tensor, place, tensor.shape[place], descending)


def _first(x: Tensor, axis: int, count: int, descending: bool = False) -> tuple[Tensor, Tensor]:
    """The first `count` elements in order, and their places."""
    values, places = current_builder().emit(ops.Sort(axis, count, descending), x)
    return values, places
