"""Parts of a tensor: Python's subscripts, and elements taken by number."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphc import ops
from graphc.bounds import expect_below
from graphc.functions.elementwise import equal
from graphc.functions.shapes import reshape
from graphc.functions.tensors import as_tensor, astype, axis_of, cast, error
from graphc.ir import INTEGERS
from graphc.trace import Operand, Tensor, emit

__all__ = ["embedding", "getitem", "one_hot", "take"]


def getitem(x: Any, key: Any) -> Tensor:
    """x[key]: integers, slices with any step, None and Ellipsis, as in NumPy."""
    tensor = as_tensor(x)
    items = _expanded(tensor, key if isinstance(key, tuple) else (key,))
    starts, stops, steps, flips = [], [], [], []
    shape: list[int] = []
    axis = 0
    for item in items:
        if item is None:
            shape.append(1)
            continue
        extent = tensor.shape[axis]
        places = _places(tensor, item, axis)
        if isinstance(item, slice):
            shape.append(len(places))
        if places.step < 0:
            flips.append(axis)
            places = places[::-1]
        starts.append(places.start if len(places) else 0)
        stops.append(min(places[-1] + 1, extent) if len(places) else 0)
        steps.append(places.step)
        axis += 1
    op = ops.Slice(tuple(starts), tuple(stops), tuple(steps))
    if op != ops.Slice((0,) * tensor.ndim, tensor.shape, (1,) * tensor.ndim):
        tensor = emit(op, tensor)
    if flips:
        tensor = emit(ops.Flip(tuple(flips)), tensor)
    return reshape(tensor, tuple(shape))


def _expanded(x: Tensor, key: tuple[Any, ...]) -> list[Any]:
    """The key with a slice for each axis that it leaves out."""
    for item in key:
        if not (item is None or item is Ellipsis or isinstance(item, slice) or _is_integer(item)):
            raise error(
                "a tensor's subscripts are integers, slices, None and Ellipsis, "
                f"got {type(item).__name__}; use graphc.take for places that a tensor names"
            )
    named = [item for item in key if item is not None and item is not Ellipsis]
    missing = x.ndim - len(named)
    if missing < 0 or sum(item is Ellipsis for item in key) > 1:
        raise error(f"{len(named)} subscripts for {x.value.type} of {x.ndim} axes")
    if Ellipsis not in key:
        key = (*key, Ellipsis)
    items: list[Any] = []
    for item in key:
        items += [slice(None)] * missing if item is Ellipsis else [item]
    return items


def _is_integer(item: Any) -> bool:
    return isinstance(item, int | np.integer) and not isinstance(item, bool)


def _places(x: Tensor, item: Any, axis: int) -> range:
    """The places along `axis` that a slice or an integer names."""
    extent = x.shape[axis]
    if isinstance(item, slice):
        if item.step == 0:
            raise error("a slice's step is not 0")
        return range(*item.indices(extent))
    if not -extent <= item < extent:
        raise error(f"subscript {item} is out of range for axis {axis} of {x.value.type}")
    return range(int(item) % extent, int(item) % extent + 1)


def take(x: Any, indices: Any, axis: int | None = None) -> Tensor:
    """The elements of x at `indices` (i32 or i64) along `axis`, whose place the indices' axes take.

    `axis` may be left out for one axis. Indices are not negative; those out of range give 0.
    """
    tensor = as_tensor(x)
    if axis is None and tensor.ndim != 1:
        raise error(f"take: expected an axis for {tensor.value.type}")
    place = axis_of("take", 0 if axis is None else axis, tensor)
    return emit(ops.Take(place), tensor, checked_indices("take", indices, tensor.shape[place]))


def embedding(x: Any, weight: Any) -> Tensor:
    """Row x[...] of `weight` [rows, features] for each element of x (i32 or i64): [..., features].

    Out of range gives a row of zeros.
    """
    table = as_tensor(weight)
    if table.ndim != 2:
        raise error(f"embedding: expected a weight of 2 axes, got {table.value.type}")
    return emit(ops.Take(0), table, checked_indices("embedding", x, table.shape[0]))


def one_hot(x: Any, num_classes: int, dtype: Any = "i64") -> Tensor:
    """[..., num_classes] with 1 at place x[...] (integers) and 0 elsewhere: out of range, all 0."""
    if not _is_integer(num_classes) or num_classes < 1:
        raise error(f"one_hot: num_classes expected a positive integer, got {num_classes!r}")
    labels = _indices("one_hot", x)
    expect_below("one_hot", labels, int(num_classes))
    ramp = emit(ops.Iota((int(num_classes),), 0, labels.dtype))
    return astype(equal(reshape(labels, (*labels.shape, 1)), ramp), dtype)


def checked_indices(name: str, x: Any, extent: int) -> Tensor:
    """The indices, which must be below `extent` as far as they are known."""
    if not isinstance(x, Operand):
        known = np.asarray(x)
        wrong = known[(known < 0) | (known >= extent)]
        if wrong.size:
            raise error(f"{name}: index {wrong.flat[0]} is not in the range 0 to {extent - 1}")
    indices = _indices(name, x)
    expect_below(name, indices, extent)
    return indices


def _indices(name: str, x: Any) -> Tensor:
    tensor = as_tensor(x)
    if tensor.dtype not in INTEGERS:
        raise error(f"{name}: expected integer indices, got {tensor.value.type}")
    return tensor if tensor.dtype in ("i32", "i64") else cast(tensor, "i32")
