"""Move, repeat, split and extend axes, by the names of the Array API and torch.Tensor."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from graphc import ops
from graphc.functions.array.elementwise.elementwise import equal, where
from graphc.functions.array.indexing.gathering import take_along_axis
from graphc.functions.array.shape.padding import pad
from graphc.functions.array.shape.shapes import (
    broadcast_to,
    concat,
    expand_dims,
    permute_dims,
    reshape,
    squeeze,
)
from graphc.functions.array.tensors import (
    Axes,
    Shape,
    as_tensor,
    astype,
    axis_of,
    error,
    part,
    shape_of,
)
from graphc.ir import DTypeLike, TensorLike
from graphc.trace import Tensor, emit


def moveaxis(
    x: TensorLike, source: int | Sequence[int], destination: int | Sequence[int]
) -> Tensor:
    """Move axes to other positions; the others keep their order.

    Args:
        x: The input.
        source: The axis or axes to move.
        destination: Where each of them goes.

    Raises:
        GraphError: There are not as many destinations as sources.

    Example:
        >>> graphc.compile(lambda: graphc.moveaxis(np.zeros((2, 3, 4)), 0, -1))().shape
        (3, 4, 2)
    """
    tensor = as_tensor(x)
    from_axes, to_axes = (
        [axis_of("moveaxis", a, tensor) for a in (axes if isinstance(axes, Sequence) else (axes,))]
        for axes in (source, destination)
    )
    if len(from_axes) != len(to_axes):
        raise error(f"moveaxis: {len(from_axes)} axes do not go to {len(to_axes)} places")
    order = [a for a in range(tensor.ndim) if a not in from_axes]
    for place, axis in sorted(zip(to_axes, from_axes, strict=True)):
        order.insert(place, axis)
    return permute_dims(tensor, order)


def swapaxes(x: TensorLike, axis1: int, axis2: int) -> Tensor:
    """Exchange two axes.

    Args:
        x: The input.
        axis1: The first axis.
        axis2: The second axis.

    Example:
        >>> graphc.compile(lambda: graphc.swapaxes([[1, 2], [3, 4]], 0, 1))()
        array([[1, 3],
               [2, 4]])
    """
    tensor = as_tensor(x)
    a, b = (axis_of("swapaxes", axis, tensor) for axis in (axis1, axis2))
    order = list(range(tensor.ndim))
    order[a], order[b] = b, a
    return permute_dims(tensor, order)


def expand(x: TensorLike, shape: Shape, *more: int) -> Tensor:
    """Broadcast a tensor to a shape, in which -1 keeps a size.

    Args:
        x: The input.
        shape: The shape as integers in one sequence, or the first of them.
        *more: The other integers.

    Example:
        >>> graphc.compile(lambda: graphc.expand([[1], [2]], -1, 2))()
        array([[1, 1],
               [2, 2]])
    """
    tensor = as_tensor(x)
    wanted = [*(shape if isinstance(shape, Sequence) else (shape,)), *more]
    extra = len(wanted) - tensor.ndim
    kept = [1] * max(extra, 0) + list(tensor.shape)
    extents = [k if n == -1 else n for n, k in zip(wanted, kept, strict=False)]
    return broadcast_to(tensor, extents)


def tile(x: TensorLike, repetitions: Shape) -> Tensor:
    """Repeat a whole tensor along its axes.

    Args:
        x: The input.
        repetitions: How many times to repeat along each axis; fewer numbers are for the last axes.

    Example:
        >>> graphc.compile(lambda: graphc.tile([1, 2], 2))()
        array([1, 2, 1, 2])
    """
    tensor = as_tensor(x)
    times = shape_of("tile", repetitions)
    rank = max(len(times), tensor.ndim)
    shape = (1,) * (rank - tensor.ndim) + tensor.shape
    times = (1,) * (rank - len(times)) + times
    apart = reshape(tensor, tuple(e for n in shape for e in (1, n)))
    many = broadcast_to(apart, tuple(e for n, t in zip(shape, times, strict=True) for e in (t, n)))
    return reshape(many, tuple(n * t for n, t in zip(shape, times, strict=True)))


def repeat(x: TensorLike, repeats: int, axis: int | None = None) -> Tensor:
    """Repeat each element along an axis.

    Args:
        x: The input.
        repeats: How many times to repeat.
        axis: The axis; None flattens `x` first.

    Example:
        >>> graphc.compile(lambda: graphc.repeat([1, 2], 2))()
        array([1, 1, 2, 2])
    """
    tensor = as_tensor(x)
    if axis is None:
        tensor, axis = reshape(tensor, -1), 0
    place = axis_of("repeat", axis, tensor)
    (count,) = shape_of("repeat", repeats)
    shape = tensor.shape
    apart = expand_dims(tensor, place + 1)
    many = broadcast_to(apart, (*shape[: place + 1], count, *shape[place + 1 :]))
    return reshape(many, (*shape[:place], shape[place] * count, *shape[place + 1 :]))


def roll(x: TensorLike, shift: int | Sequence[int], axis: Axes = None) -> Tensor:
    """Shift elements along an axis, from its end back to its start.

    Args:
        x: The input.
        shift: By how many positions to shift: one number, or one per axis.
        axis: The axis or axes; None shifts the flattened tensor.

    Raises:
        GraphError: There are not as many shifts as axes.

    Example:
        >>> graphc.compile(lambda: graphc.roll([1, 2, 3], 1))()
        array([3, 1, 2])
    """
    tensor = as_tensor(x)
    if axis is None:
        return reshape(roll(reshape(tensor, -1), shift, 0), tensor.shape)
    axes = axis if isinstance(axis, Sequence) else (axis,)
    shifts = shift if isinstance(shift, Sequence) else (shift,) * len(axes)
    if len(shifts) != len(axes):
        raise error(f"roll: {len(shifts)} shifts for {len(axes)} axes")
    for by, a in zip(shifts, axes, strict=True):
        place = axis_of("roll", a, tensor)
        extent = tensor.shape[place]
        cut = -by % extent if extent else 0
        if cut:
            parts = [part(tensor, place, cut, extent), part(tensor, place, 0, cut)]
            tensor = concat(parts, place)
    return tensor


def split(x: TensorLike, split_size: int | Sequence[int], axis: int = 0) -> tuple[Tensor, ...]:
    """Split a tensor into parts along an axis.

    Args:
        x: The input.
        split_size: The size of the parts, of which the last may be smaller; or a list of sizes.
        axis: The axis to split.

    Raises:
        GraphError: The sizes do not add up to that of the axis.

    Example:
        >>> graphc.compile(lambda: graphc.split([1, 2, 3, 4, 5], 2))()
        (array([1, 2]), array([3, 4]), array([5]))
    """
    tensor = as_tensor(x)
    place = axis_of("split", axis, tensor)
    extent = tensor.shape[place]
    if isinstance(split_size, Sequence):
        sizes = list(split_size)
        if any(n < 0 for n in sizes) or sum(sizes) != extent:
            raise error(f"split: {sizes} does not add up to axis {place} of {tensor.value.type}")
    elif split_size < 1:
        raise error(f"split: split_size expected a positive integer, got {split_size}")
    else:
        sizes = [min(split_size, extent - n) for n in range(0, extent, split_size)]
    starts = [sum(sizes[:i]) for i in range(len(sizes))]
    return tuple(part(tensor, place, s, s + n) for s, n in zip(starts, sizes, strict=True))


def unstack(x: TensorLike, axis: int = 0) -> tuple[Tensor, ...]:
    """Split a tensor into its slices along an axis, without that axis.

    Args:
        x: The input.
        axis: The axis to split.

    Example:
        >>> graphc.compile(lambda: graphc.unstack([[1, 2], [3, 4]]))()
        (array([1, 2]), array([3, 4]))
    """
    tensor = as_tensor(x)
    place = axis_of("unstack", axis, tensor)
    parts = (part(tensor, place, i, i + 1) for i in range(tensor.shape[place]))
    return tuple(squeeze(p, place) for p in parts)


def unflatten(x: TensorLike, axis: int, sizes: Sequence[int]) -> Tensor:
    """Split an axis into several.

    Args:
        x: The input.
        axis: The axis to split.
        sizes: The sizes of the new axes, one of which may be -1.

    Raises:
        GraphError: The product of the sizes is not that of the axis.

    Example:
        >>> graphc.compile(lambda: graphc.unflatten([1, 2, 3, 4], 0, (2, -1)))()
        array([[1, 2],
               [3, 4]])
    """
    tensor = as_tensor(x)
    place = axis_of("unflatten", axis, tensor)
    inner, extent = list(sizes), tensor.shape[place]
    known = math.prod(n for n in inner if n != -1)
    if inner.count(-1) == 1 and known and extent % known == 0:
        inner[inner.index(-1)] = extent // known
    if math.prod(inner) != extent or -1 in inner:
        raise error(
            f"unflatten: sizes {list(sizes)} do not make axis {place} of {tensor.value.type}"
        )
    return reshape(tensor, (*tensor.shape[:place], *inner, *tensor.shape[place + 1 :]))


def eye(n_rows: int, n_cols: int | None = None, k: int = 0, dtype: DTypeLike = "f32") -> Tensor:
    """Return a matrix with 1 on a diagonal and 0 elsewhere.

    Args:
        n_rows: The number of rows.
        n_cols: The number of columns; by default `n_rows`.
        k: The diagonal: 0 is the main one, 1 the one above it.
        dtype: The dtype of the result.

    Example:
        >>> graphc.compile(lambda: graphc.eye(2))()
        array([[1., 0.],
               [0., 1.]], dtype=float32)
    """
    shape = (n_rows, n_rows if n_cols is None else n_cols)
    rows, columns = (emit(ops.Iota(shape_of("eye", shape), a)) for a in (0, 1))
    return astype(equal(columns, rows + k), dtype)


def linspace(start: float, stop: float, num: int, dtype: DTypeLike = "f32") -> Tensor:
    """Return evenly spaced numbers from `start` to `stop`, both included.

    Args:
        start: The first number.
        stop: The last number.
        num: The number of elements.
        dtype: The dtype of the result.

    Example:
        >>> graphc.compile(lambda: graphc.linspace(0.0, 1.0, 3))()
        array([0. , 0.5, 1. ], dtype=float32)
    """
    return astype(as_tensor(np.linspace(start, stop, num)), dtype)


def diagonal(x: TensorLike, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Tensor:
    """Return a diagonal of matrices, along a new last axis in place of theirs.

    Args:
        x: The input, of two axes or more.
        offset: The diagonal: 0 is the main one, 1 the one above it.
        axis1: The axis of the rows.
        axis2: The axis of the columns.

    Example:
        >>> graphc.compile(lambda: graphc.diagonal([[1, 2], [3, 4]]))()
        array([1, 4])
    """
    tensor = as_tensor(x)
    tensor = moveaxis(tensor, (axis1, axis2), (-2, -1))
    rows, columns = tensor.shape[-2:]
    first = max(-offset, 0)
    count = max(min(rows - first, columns - max(offset, 0)), 0)
    part = tensor[..., first : first + count, :]
    places = emit(ops.Iota((*(1,) * (part.ndim - 2), count, 1), part.ndim - 2, "i32"))
    start = max(offset, 0)
    return squeeze(take_along_axis(part, places + start, -1), -1)


def diag(x: TensorLike, k: int = 0) -> Tensor:
    """Return a diagonal of a matrix, or a matrix with a vector on its diagonal.

    Args:
        x: A matrix or a vector.
        k: The diagonal: 0 is the main one, 1 the one above it.

    Raises:
        GraphError: `x` has another rank.

    Example:
        >>> graphc.compile(lambda: graphc.diag([1, 2]))()
        array([[1, 0],
               [0, 2]])
    """
    tensor = as_tensor(x)
    if tensor.ndim == 2:
        return diagonal(tensor, k)
    if tensor.ndim != 1:
        raise error(f"diag: expected 1 or 2 axes, got {tensor.value.type}")
    n = tensor.shape[0]
    square = where(eye(n, dtype="bool"), expand_dims(tensor, 0), as_tensor(0, tensor.dtype))
    return pad(square, [(max(-k, 0), max(k, 0)), (max(k, 0), max(-k, 0))])


def meshgrid(*arrays: TensorLike, indexing: str = "xy") -> tuple[Tensor, ...]:
    """Return coordinate grids from coordinate vectors.

    Args:
        *arrays: The coordinates along each axis.
        indexing: "xy" gives grids whose first two axes are (second vector, first vector); "ij"
            keeps the order of the vectors.

    Returns:
        One tensor per vector, all of the shape of the grid.

    Raises:
        GraphError: `indexing` is neither.

    Example:
        >>> graphc.compile(lambda: graphc.meshgrid([1, 2], [3, 4]))()
        (array([[1, 2],
               [1, 2]]), array([[3, 3],
               [4, 4]]))
    """
    if indexing not in ("xy", "ij"):
        raise error(f'meshgrid: indexing expected "xy" or "ij", got {indexing!r}')
    vectors = [reshape(a, -1) for a in map(as_tensor, arrays)]
    rank = len(vectors)
    shape = tuple(v.shape[0] for v in vectors)
    grids = [
        broadcast_to(reshape(v, tuple(v.size if a == i else 1 for a in range(rank))), shape)
        for i, v in enumerate(vectors)
    ]
    if indexing == "xy" and rank > 1:
        grids = [swapaxes(g, 0, 1) for g in grids]
    return tuple(grids)
