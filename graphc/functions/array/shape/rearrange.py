"""Axes moved, split, repeated and extended; what torch.Tensor and the Array API have for it."""

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
    """The axes `source` at the places `destination`; the others keep their order."""
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
    """Two axes exchanged."""
    tensor = as_tensor(x)
    a, b = (axis_of("swapaxes", axis, tensor) for axis in (axis1, axis2))
    order = list(range(tensor.ndim))
    order[a], order[b] = b, a
    return permute_dims(tensor, order)


def expand(x: TensorLike, shape: Shape, *more: int) -> Tensor:
    """x repeated along new leading axes and axes of extent 1, to a shape given as a tuple or one by
    one; -1 keeps an extent."""
    tensor = as_tensor(x)
    wanted = [*(shape if isinstance(shape, Sequence) else (shape,)), *more]
    extra = len(wanted) - tensor.ndim
    kept = [1] * max(extra, 0) + list(tensor.shape)
    extents = [k if n == -1 else n for n, k in zip(wanted, kept, strict=False)]
    return broadcast_to(tensor, extents)


def tile(x: TensorLike, repetitions: Shape) -> Tensor:
    """x repeated as a whole, `repetitions` times along each axis; for fewer numbers along the last
    ones."""
    tensor = as_tensor(x)
    times = shape_of("tile", repetitions)
    rank = max(len(times), tensor.ndim)
    shape = (1,) * (rank - tensor.ndim) + tensor.shape
    times = (1,) * (rank - len(times)) + times
    apart = reshape(tensor, tuple(e for n in shape for e in (1, n)))
    many = broadcast_to(apart, tuple(e for n, t in zip(shape, times, strict=True) for e in (t, n)))
    return reshape(many, tuple(n * t for n, t in zip(shape, times, strict=True)))


def repeat(x: TensorLike, repeats: int, axis: int | None = None) -> Tensor:
    """Each element `repeats` times along `axis`; of x flattened for None."""
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
    """The elements moved by `shift` places along `axis`, round the end; of x flattened for None."""
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
    """Parts along `axis`: of `split_size` elements, the last with what is left, or of the extents
    that it lists."""
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
    """The elements along `axis`, which they lack."""
    tensor = as_tensor(x)
    place = axis_of("unstack", axis, tensor)
    parts = (part(tensor, place, i, i + 1) for i in range(tensor.shape[place]))
    return tuple(squeeze(p, place) for p in parts)


def unflatten(x: TensorLike, axis: int, sizes: Sequence[int]) -> Tensor:
    """Axis `axis` as several axes of the extents `sizes`, one of which may be -1."""
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
    """[n_rows, n_cols] with 1 where column = row + k, else 0; square unless n_cols is given."""
    shape = (n_rows, n_rows if n_cols is None else n_cols)
    rows, columns = (emit(ops.Iota(shape_of("eye", shape), a)) for a in (0, 1))
    return astype(equal(columns, rows + k), dtype)


def linspace(start: float, stop: float, num: int, dtype: DTypeLike = "f32") -> Tensor:
    """[num] numbers from `start` to `stop`, both included, at equal distances."""
    return astype(as_tensor(np.linspace(start, stop, num)), dtype)


def diagonal(x: TensorLike, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Tensor:
    """The elements whose index on `axis2` is that on `axis1` plus `offset`, along a new last axis
    in place of these two."""
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
    """Diagonal number `k` of a matrix; or the matrix with the vector x there and 0 elsewhere."""
    tensor = as_tensor(x)
    if tensor.ndim == 2:
        return diagonal(tensor, k)
    if tensor.ndim != 1:
        raise error(f"diag: expected 1 or 2 axes, got {tensor.value.type}")
    n = tensor.shape[0]
    square = where(eye(n, dtype="bool"), expand_dims(tensor, 0), as_tensor(0, tensor.dtype))
    return pad(square, [(max(-k, 0), max(k, 0)), (max(k, 0), max(-k, 0))])


def meshgrid(*arrays: TensorLike, indexing: str = "xy") -> tuple[Tensor, ...]:
    """Each vector spread over the grid of all of them: axis i for vector i with indexing "ij"; with
    "xy" the first two change places."""
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
