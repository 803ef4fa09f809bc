"""Gather elements from, and scatter them to, the indices in a tensor of the same rank."""

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
    """Take elements along an axis: y[..., i, ...] = x[..., indices[..., i, ...], ...].

    Args:
        x: The input.
        indices: Indices into `axis`, i32 or i64, not negative; the other axes broadcast with those
            of `x`. An index out of range gives 0.
        axis: The axis to take along.

    Returns:
        A tensor of the broadcast shape, with the size of `indices` along `axis`.

    Example:
        >>> graphc.compile(lambda: graphc.take_along_axis([[1, 2], [3, 4]], [[1], [0]], axis=1))()
        array([[2],
               [3]])
    """
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
    """Take elements along an axis: y[..., i, ...] = x[..., index[..., i, ...], ...].

    `take_along_axis` broadcasts; this function, as torch.gather, does not.

    Args:
        x: The input.
        axis: The axis to take along.
        index: Indices into `axis`, i32 or i64, not negative; along the other axes it is at most as
            large as `x`. An index out of range gives 0.

    Returns:
        A tensor of the shape of `index`.

    Example:
        >>> graphc.compile(lambda: graphc.gather([[1, 2], [3, 4]], 1, [[1], [0]]))()
        array([[2],
               [3]])
    """
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
    """Take slices of `x` along an axis.

    Args:
        x: The input.
        axis: The axis to take along.
        index: A vector of indices into `axis`.

    Example:
        >>> graphc.compile(lambda: graphc.index_select([[1, 2], [3, 4]], 1, [1]))()
        array([[2],
               [4]])
    """
    return take(x, index, axis)


def masked_fill(x: TensorLike, mask: TensorLike, value: TensorLike) -> Tensor:
    """Replace the elements where a mask is true.

    Args:
        x: The input.
        mask: Booleans; they broadcast with `x`.
        value: The replacement.

    Example:
        >>> graphc.compile(lambda: graphc.masked_fill([1, 2, 3], [True, False, True], 0))()
        array([0, 2, 0])
    """
    return where(mask, value, x)


def scatter_add(x: TensorLike, axis: int, index: TensorLike, src: TensorLike) -> Tensor:
    """Add elements of `src` to `x`: y[..., index[..., i, ...], ...] += src[..., i, ...].

    Elements are added in ascending order of i, so that the result is deterministic. An index out of
    range adds nothing.

    Args:
        x: The input.
        axis: The axis that is indexed.
        index: Indices into `axis`, of the shape of `src`.
        src: The elements to add.

    Example:
        >>> graphc.compile(lambda: graphc.scatter_add([0, 0], 0, [1, 1], [2, 3]))()
        array([0, 5])
    """
    return _scatter("scatter_add", x, axis, index, src, "sum")


def scatter(x: TensorLike, axis: int, index: TensorLike, src: TensorLike) -> Tensor:
    """Write elements of `src` into `x`: y[..., index[..., i, ...], ...] = src[..., i, ...].

    Of several elements for one index the last one is written. An index out of range writes nothing.

    Args:
        x: The input.
        axis: The axis that is indexed.
        index: Indices into `axis`, of the shape of `src`.
        src: The elements to write.

    Example:
        >>> graphc.compile(lambda: graphc.scatter([0, 0], 0, [1], [3]))()
        array([0, 3])
    """
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
    """Reduce elements of `src` into `x` at the indices along an axis.

    Args:
        x: The input.
        axis: The axis that is indexed.
        index: Indices into `axis`, of the shape of `src`. An index out of range changes nothing.
        src: The elements to reduce.
        reduce: "sum", "prod", "amax", "amin" or "mean".
        include_self: Whether the element of `x` takes part where elements of `src` go.

    Raises:
        GraphError: `reduce` is none of these.

    Example:
        >>> graphc.compile(lambda: graphc.scatter_reduce([5, 5], 0, [0, 0], [2, 7], "amax"))()
        array([7, 5])
    """
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
