"""Elements taken from, and put into, the places that indices of the same rank name."""

from __future__ import annotations

import numpy as np

from graphc import ops
from graphc.functions.array.elementwise.elementwise import divide, floor_divide, maximum, where
from graphc.functions.array.indexing.indexing import take
from graphc.functions.array.indexing.indices import checked_indices
from graphc.functions.array.shape.shapes import broadcast_to
from graphc.functions.array.tensors import as_tensor, axis_of, error, promoted
from graphc.ir import DTYPES, FLOATS, TensorLike
from graphc.trace import Tensor, emit


def take_along_axis(x: TensorLike, indices: TensorLike, axis: int = -1) -> Tensor:
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


def gather(x: TensorLike, axis: int, index: TensorLike) -> Tensor:
    """y[..., i, ...] = x[..., index[..., i, ...], ...] along `axis`, for the elements of `index`,
    whose other extents are at most those of x. Out of range gives 0."""
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


def index_select(x: TensorLike, axis: int, index: TensorLike) -> Tensor:
    """The elements of x at `index` (one axis) along `axis`."""
    return take(x, index, axis)


def masked_fill(x: TensorLike, mask: TensorLike, value: TensorLike) -> Tensor:
    """x with `value` where `mask` (booleans) holds."""
    return where(mask, value, x)


def scatter_add(x: TensorLike, axis: int, index: TensorLike, src: TensorLike) -> Tensor:
    """x plus, at place index[..., i, ...] of `axis`, the elements of `src`, in ascending order of
    i: the result never varies. The shape of `index` is that of `src`. A place out of range takes
    nothing."""
    return _scatter("scatter_add", x, axis, index, src, "sum")


def scatter(x: TensorLike, axis: int, index: TensorLike, src: TensorLike) -> Tensor:
    """x with, at place index[..., i, ...] of `axis`, the elements of `src`; the last one in order
    of i where several go to one place. Shapes and places out of range as of `scatter_add`."""
    return _scatter("scatter", x, axis, index, src, "replace")


REDUCTIONS = {"sum": "sum", "prod": "prod", "amax": "max", "amin": "min", "mean": "mean"}


def scatter_reduce(
    x: TensorLike,
    axis: int,
    index: TensorLike,
    src: TensorLike,
    reduce: str,
    include_self: bool = True,
) -> Tensor:
    """x combined, at place index[..., i, ...] of `axis`, with the elements of `src`: by sum, prod,
    amax, amin or mean. Without `include_self` the elements of x count where none goes alone.
    Places out of range as of `scatter_add`."""
    if reduce not in REDUCTIONS:
        raise error(f"scatter_reduce: reduce expected {', '.join(REDUCTIONS)}, got {reduce!r}")
    combine = REDUCTIONS[reduce]
    tensor = as_tensor(x)
    if not include_self:
        neutral = _neutral(combine, tensor.dtype)
        tensor = scatter(tensor, axis, index, neutral)
    if combine != "mean":
        return _scatter("scatter_reduce", tensor, axis, index, src, combine)
    total = scatter_add(tensor, axis, index, src)
    ones = broadcast_to(as_tensor(int(include_self), total.dtype), total.shape)
    counts = maximum(scatter_add(ones, axis, index, 1), 1)
    return divide(total, counts) if total.dtype in FLOATS else floor_divide(total, counts)


def _neutral(combine: str, dtype: str) -> float | int:
    """What changes nothing when combined."""
    if dtype == "bool":
        return combine in ("prod", "min")
    if combine in ("sum", "mean", "prod"):
        return int(combine == "prod")
    if dtype in FLOATS:
        return float("-inf") if combine == "max" else float("inf")
    limits = np.iinfo(DTYPES[dtype])
    return int(limits.min if combine == "max" else limits.max)


def _scatter(
    name: str, x: TensorLike, axis: int, index: TensorLike, src: TensorLike, combine: str
) -> Tensor:
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
    # A place that does not exist takes nothing.
    places = _padded_to(places, tensor.shape, place, -1)
    source = _padded_to(source, tensor.shape, place, 0)
    return emit(ops.Scatter(place, combine), tensor, places, source)


def _padded_to(x: Tensor, shape: tuple[int, ...], but: int, value: int) -> Tensor:
    """x with `value` behind it up to `shape`, except along axis `but`."""
    high = tuple(0 if a == but else n - x.shape[a] for a, n in enumerate(shape))
    none = (0,) * x.ndim
    return emit(ops.Pad(none, high, none, value), x) if any(high) else x
