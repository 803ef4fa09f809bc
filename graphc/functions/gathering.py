"""Elements taken from, and put into, the places that indices of the same rank name."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphc import ops
from graphc.functions.elementwise import add, equal, greater, subtract, where
from graphc.functions.indexing import checked_indices, take
from graphc.functions.reductions import max, sum
from graphc.functions.shapes import broadcast_to, expand_dims
from graphc.functions.tensors import as_tensor, axis_of, error, promoted
from graphc.trace import Tensor, emit

__all__ = [
    "gather",
    "index_select",
    "masked_fill",
    "scatter",
    "scatter_add",
    "take_along_axis",
]


def take_along_axis(x: Any, indices: Any, axis: int = -1) -> Tensor:
    """y[..., i, ...] = x[..., indices[..., i, ...], ...] along `axis`; the other axes of x and of
    the indices (i32 or i64, not negative) broadcast. Out of range gives 0."""
    tensor = as_tensor(x)
    place = axis_of("take_along_axis", axis, tensor)
    places = checked_indices("take_along_axis", indices, tensor.shape[place])
    if places.ndim == tensor.ndim:
        others = [(*t.shape[:place], 1, *t.shape[place + 1 :]) for t in (tensor, places)]
        try:
            shape = np.broadcast_shapes(*others)
        except ValueError:
            shape = ()  # which the op reports
        if shape:
            tensor, places = (
                broadcast_to(t, (*shape[:place], t.shape[place], *shape[place + 1 :]))
                for t in (tensor, places)
            )
    return emit(ops.TakeAlongAxis(place), tensor, places)


def gather(x: Any, axis: int, index: Any) -> Tensor:
    """y[..., i, ...] = x[..., index[..., i, ...], ...] along `axis`, for the elements of `index`,
    whose other extents are at most those of x."""
    tensor = as_tensor(x)
    place = axis_of("gather", axis, tensor)
    places = checked_indices("gather", index, tensor.shape[place])
    return emit(ops.TakeAlongAxis(place), _shortened("gather", tensor, place, places), places)


def _shortened(name: str, x: Tensor, axis: int, index: Tensor) -> Tensor:
    """x up to the extents of `index` on the axes other than `axis`."""
    fits = x.ndim == index.ndim and all(
        m <= n or a == axis for a, (n, m) in enumerate(zip(x.shape, index.shape, strict=True))
    )
    if not fits:
        raise error(f"{name}: index {index.value.type} does not fit x {x.value.type}")
    return x[tuple(slice(None) if a == axis else slice(m) for a, m in enumerate(index.shape))]


def index_select(x: Any, axis: int, index: Any) -> Tensor:
    """The elements of x at `index` (one axis) along `axis`."""
    return take(x, index, axis)


def masked_fill(x: Any, mask: Any, value: Any) -> Tensor:
    """x with `value` where `mask` (booleans) holds."""
    return where(mask, value, x)


def scatter_add(x: Any, axis: int, index: Any, src: Any) -> Tensor:
    """x plus, at place index[..., i, ...] of `axis`, the elements of `src`, in ascending order of
    i: the result never varies. The shape of `index` is that of `src`; work grows with the extent
    of x times that of `index` along the axis."""
    tensor, places, source, place = _scattered("scatter_add", x, axis, index, src)
    total = sum_by_index(places, source, place, tensor.shape[place])
    return add(tensor, _padded_to(total, tensor.shape))


def scatter(x: Any, axis: int, index: Any, src: Any) -> Tensor:
    """x with, at place index[..., i, ...] of `axis`, the elements of `src`; the last one in order
    of i where several go to one place. Shapes and work as of `scatter_add`."""
    tensor, places, source, place = _scattered("scatter", x, axis, index, src)
    extent = tensor.shape[place]
    ramp = emit(ops.Iota(_along(places.ndim + 1, place + 1, places.shape[place]), place + 1, "i64"))
    chosen = _chosen(places, place, extent)
    last = max(where(chosen, ramp, -1), place + 1)
    last = _padded_to(add(last, 1), tensor.shape)
    found = emit(
        ops.TakeAlongAxis(place), _padded_to(source, tensor.shape, place), subtract(last, 1)
    )
    return where(greater(last, 0), found, tensor)


def _scattered(
    name: str, x: Any, axis: int, index: Any, src: Any
) -> tuple[Tensor, Tensor, Tensor, int]:
    tensor, source = promoted(x, src)
    place = axis_of(name, axis, tensor)
    places = checked_indices(name, index, tensor.shape[place])
    _shortened(name, tensor, place, places)
    if not source.ndim:
        source = broadcast_to(source, places.shape)
    if source.shape != places.shape:
        raise error(
            f"{name}: index {places.value.type} and src {source.value.type} differ in shape"
        )
    return tensor, places, source, place


def sum_by_index(indices: Tensor, x: Tensor, axis: int, extent: int) -> Tensor:
    """y[..., j, ...] = the sum of x[..., i, ...] over the i along `axis` with
    indices[..., i, ...] = j, for j below `extent`."""
    parts = where(_chosen(indices, axis, extent), expand_dims(x, axis), 0)
    return sum(parts, axis + 1, dtype=x.dtype)


def _chosen(indices: Tensor, axis: int, extent: int) -> Tensor:
    """Booleans [..., j, i, ...]: whether indices[..., i, ...] = j along `axis`."""
    ramp = emit(ops.Iota(_along(indices.ndim + 1, axis, extent), axis, indices.dtype))
    return equal(expand_dims(indices, axis), ramp)


def _along(rank: int, axis: int, extent: int) -> tuple[int, ...]:
    return tuple(extent if a == axis else 1 for a in range(rank))


def _padded_to(x: Tensor, shape: tuple[int, ...], but: int = -1) -> Tensor:
    """x with zeros behind it up to `shape`, except along axis `but`."""
    high = tuple(0 if a == but else n - x.shape[a] for a, n in enumerate(shape))
    return emit(ops.Pad((0,) * x.ndim, high, (0,) * x.ndim), x) if any(high) else x
