"""Resize images, and adaptive pooling.

Both are means over parts of an axis, or products with a constant matrix.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from graphc import ops
from graphc.functions.array.elementwise.elementwise import divide, where
from graphc.functions.array.elementwise.precision import in_float32
from graphc.functions.array.indexing.places import first_largest
from graphc.functions.array.linear.matrix_product import matmul
from graphc.functions.array.reductions import sum
from graphc.functions.array.shape.rearrange import moveaxis
from graphc.functions.array.shape.shapes import broadcast_to, concat
from graphc.functions.array.tensors import as_tensor, error, floating
from graphc.functions.network.max_pooling import max_pool1d, max_pool2d, max_pool3d
from graphc.functions.network.pooling import avg_pool1d, avg_pool2d, avg_pool3d
from graphc.functions.network.windows import Size, of_images
from graphc.ir import Array, TensorLike
from graphc.trace import Tensor, emit

Extents = int | Sequence[int | None] | None

PLAIN = ("nearest", "nearest-exact", "area")
"""Modes of `interpolate` for x of any rank."""
RANKS = {"linear": 3, "bilinear": 4, "trilinear": 5, "bicubic": 4}
"""The rank that each other mode expects."""


@in_float32
def interpolate(
    x: TensorLike,
    size: int | Sequence[int] | None = None,
    scale_factor: float | Sequence[float] | None = None,
    mode: str = "nearest",
    align_corners: bool = False,
    antialias: bool = False,
) -> Tensor:
    """Resize images to a size or by a factor.

    Modes: "nearest" takes the element at floor(i * ratio), "nearest-exact" that at floor((i + 1/2)
    * ratio), "area" averages as adaptive pooling does; "linear" (3 axes), "bilinear" (4) and
    "trilinear" (5) interpolate between two elements along each axis, "bicubic" (4) between four.

    Args:
        x: The images [n, c, ...].
        size: The size of the result: one number or one per axis.
        scale_factor: The factor of the size, which is rounded down: one number or one per axis.
        mode: How to interpolate, as above.
        align_corners: Whether the centres of corner elements stay in place, not the edges of the
            image.
        antialias: Whether a smaller image averages all elements that a pixel covers, as Pillow
            does; for "bilinear" and "bicubic".

    Raises:
        GraphError: The mode is unknown or does not fit the rank, or not exactly one of `size` and
            `scale_factor` is given.

    Example:
        >>> graphc.compile(lambda: graphc.interpolate([[[1.0, 2.0]]], scale_factor=2.0))()
        array([[[1., 1., 2., 2.]]], dtype=float32)
    """
    tensor = floating(x)
    spatial = tensor.shape[2:]
    if mode not in PLAIN and RANKS.get(mode) != tensor.ndim:
        known = [f'"{m}"' for m in PLAIN] + [f'"{m}" for {r} axes' for m, r in RANKS.items()]
        raise error(
            f"interpolate: mode expected {', '.join(known)}, got {mode!r} for x {tensor.value.type}"
        )
    if antialias and mode not in ("bilinear", "bicubic"):
        raise error(f'interpolate: antialias expected mode "bilinear" or "bicubic", got {mode!r}')
    if (size is None) == (scale_factor is None):
        raise error("interpolate: expected either size or scale_factor")
    given: Any = scale_factor if size is None else size
    numbers = list(given) if isinstance(given, Sequence) else [given] * len(spatial)
    if len(numbers) != len(spatial) or min(numbers, default=1) <= 0:
        raise error(
            f"interpolate: expected {len(spatial)} positive numbers for x {tensor.value.type}, "
            f"got {given!r}"
        )
    for axis, (extent, number) in enumerate(zip(spatial, numbers, strict=True), 2):
        count = int(number) if size is not None else math.floor(extent * number)
        ratio = extent / count if size is not None else 1 / number
        if mode.startswith("nearest"):
            tensor = _nearest(tensor, axis, count, ratio, 0.5 if mode == "nearest-exact" else 0.0)
        elif mode == "area":
            tensor = _means(tensor, axis, count)
        elif antialias:
            matrix = _antialiased(extent, count, ratio, align_corners, mode == "bicubic")
            tensor = _weighed(tensor, axis, matrix)
        else:
            weights = _cubic if mode == "bicubic" else _linear
            tensor = _weighed(tensor, axis, weights(extent, count, ratio, align_corners))
    return tensor


def _nearest(x: Tensor, axis: int, count: int, ratio: float, shift: float) -> Tensor:
    numbers = np.arange(count, dtype=np.float32) + np.float32(shift)
    places = np.floor(numbers * np.float32(ratio)).astype(np.int32)
    places = np.minimum(places, x.shape[axis] - 1)
    if count == x.shape[axis]:
        return x
    return emit(ops.Take(axis), x, as_tensor(places))


def _between_ends(extent: int, count: int) -> float:
    """Elements from one place of the result to the next, where the ends stay where they are."""
    return (extent - 1) / (count - 1) if count > 1 else 0.0


def _linear(extent: int, count: int, ratio: float, align_corners: bool) -> Array:
    """[count, extent]: how much of each element each place of the result takes."""
    places = np.arange(count, dtype=np.float64)
    if align_corners:
        source = places * _between_ends(extent, count)
    else:
        source = np.maximum((places + 0.5) * ratio - 0.5, 0.0)
    low = np.minimum(source.astype(np.int64), extent - 1)
    high = np.minimum(low + 1, extent - 1)
    share = np.minimum(source - low, 1.0)
    matrix = np.zeros((count, extent))
    np.add.at(matrix, (np.arange(count), low), 1 - share)
    np.add.at(matrix, (np.arange(count), high), share)
    return matrix


def _means(x: Tensor, axis: int, count: int) -> Tensor:
    """The mean over each part of the axis; what is no number stays in its parts."""
    cuts = np.array(_cuts(x.shape[axis], count))
    sizes = cuts[:, 1] - cuts[:, 0]
    steps = np.arange(sizes.max())
    places = np.minimum(cuts[:, :1] + steps, x.shape[axis] - 1).astype(np.int32)
    after = (1,) * (x.ndim - axis - 1)
    inside = (steps < sizes[:, None]).reshape(*places.shape, *after)
    parts = where(as_tensor(inside), emit(ops.Take(axis), x, as_tensor(places)), 0)
    return divide(sum(parts, axis + 1), as_tensor(sizes.reshape(-1, *after), x.dtype))


_SHARPNESS = -0.75
"""The second derivative of the cubic at 1, as in PyTorch and OpenCV; Keys, IEEE Trans. Acoustics,
Speech, and Signal Processing 29 (1981), takes -1 / 2."""


def _cubic(extent: int, count: int, ratio: float, align_corners: bool) -> Array:
    """As `_linear`, of the four nearest elements, those of the edge standing for ones beyond it."""
    places = np.arange(count, dtype=np.float64)
    if align_corners:
        source = places * _between_ends(extent, count)
    else:
        source = (places + 0.5) * ratio - 0.5
    matrix = np.zeros((count, extent))
    for tap in range(-1, 3):
        place = np.floor(source) + tap
        d, a = np.abs(source - place), _SHARPNESS
        inner = ((a + 2) * d - (a + 3)) * d * d + 1
        outer = ((d - 5) * d + 8) * d * a - 4 * a
        index = np.clip(place, 0, extent - 1).astype(np.int64)
        np.add.at(matrix, (np.arange(count), index), np.where(d <= 1, inner, outer))
    return matrix


def _antialiased(extent: int, count: int, ratio: float, align_corners: bool, cubic: bool) -> Array:
    """Return the matrix of `_linear` for all elements under a filter as wide as the image shrinks.

    The cubic filter is Keys', whose second derivative at 1 is -1 / 2.
    """
    scale = _between_ends(extent, count) if align_corners else ratio
    width = max(scale, 1.0)
    reach = (2.0 if cubic else 1.0) * width
    centers = scale * (np.arange(count)[:, None] + 0.5)
    places = np.arange(extent)[None, :]
    first = np.maximum(np.trunc(centers - reach + 0.5), 0)
    last = np.minimum(np.trunc(centers + reach + 0.5), extent)
    d = np.abs((places - centers + 0.5) / width)
    if cubic:
        inner, outer = (1.5 * d - 2.5) * d * d + 1, ((-0.5 * d + 2.5) * d - 4) * d + 2
        weights = np.where(d < 1, inner, np.where(d < 2, outer, 0.0))
    else:
        weights = np.maximum(1 - d, 0.0)
    weights = np.where((places >= first) & (places < last), weights, 0.0)
    matrix: Array = weights / weights.sum(1, keepdims=True)
    return matrix


def _weighed(x: Tensor, axis: int, matrix: Array) -> Tensor:
    """The product of `matrix` [count, extent] with x along `axis`."""
    weights = as_tensor(matrix.T, x.dtype)
    if axis == x.ndim - 1:
        return matmul(x, weights)
    return moveaxis(matmul(moveaxis(x, axis, -1), weights), -1, axis)


def _cuts(extent: int, count: int) -> list[tuple[int, int]]:
    """The first place of each part of an axis, and the one behind its last."""
    return [(i * extent // count, -(-(i + 1) * extent // count)) for i in range(count)]


@of_images(2)
def adaptive_avg_pool2d(x: TensorLike, output_size: Extents) -> Tensor:
    """Average images to a given size.

    Row i of the result is the mean of rows floor(i * h / p) to ceil((i + 1) * h / p); columns
    likewise.

    Args:
        x: Images [n, c, h, w], or one image [c, h, w].
        output_size: The size (p, q), or one number for both; None keeps a size.

    Returns:
        Images [n, c, p, q].

    Raises:
        GraphError: The size does not fit.

    Example:
        >>> x = np.arange(4.0).reshape(1, 1, 2, 2)
        >>> graphc.compile(lambda: graphc.adaptive_avg_pool2d(x, 1))()
        array([[[[1.5]]]])
    """
    return _adaptive_mean("adaptive_avg_pool2d", x, output_size, 2)


@of_images(1)
def adaptive_avg_pool1d(x: TensorLike, output_size: Extents) -> Tensor:
    """Average sequences to a given length, as `adaptive_avg_pool2d`.

    Args:
        x: Sequences [n, c, w], or one sequence [c, w].
        output_size: The length of the result.

    Example:
        >>> graphc.compile(lambda: graphc.adaptive_avg_pool1d([[[1.0, 3.0, 2.0, 4.0]]], 2))()
        array([[[2., 3.]]], dtype=float32)
    """
    return _adaptive_mean("adaptive_avg_pool1d", x, output_size, 1)


@of_images(3)
def adaptive_avg_pool3d(x: TensorLike, output_size: Extents) -> Tensor:
    """Average volumes to a given size, as `adaptive_avg_pool2d`.

    Args:
        x: Volumes [n, c, d, h, w], or one volume [c, d, h, w].
        output_size: The size of the result: one number or three; None keeps a size.

    Example:
        >>> graphc.compile(lambda: graphc.adaptive_avg_pool3d(np.ones((1, 2, 4, 4, 4)), 1))().shape
        (1, 2, 1, 1, 1)
    """
    return _adaptive_mean("adaptive_avg_pool3d", x, output_size, 3)


@of_images(2)
def adaptive_max_pool2d(x: TensorLike, output_size: Extents, return_indices: bool = False) -> Any:
    """Return the largest elements of the windows of `adaptive_avg_pool2d`.

    Args:
        x: Images [n, c, h, w], or one image [c, h, w].
        output_size: The size (p, q), or one number for both; None keeps a size.
        return_indices: Whether to return the i64 pixel numbers h * width + w too.

    Example:
        >>> x = np.arange(4.0).reshape(1, 1, 2, 2)
        >>> graphc.compile(lambda: graphc.adaptive_max_pool2d(x, 1))()
        array([[[[3.]]]])
    """
    return _adaptive_max("adaptive_max_pool2d", x, output_size, 2, return_indices)


@of_images(1)
def adaptive_max_pool1d(x: TensorLike, output_size: Extents, return_indices: bool = False) -> Any:
    """Return the largest elements of the windows of `adaptive_avg_pool1d`.

    Args:
        x: Sequences [n, c, w], or one sequence [c, w].
        output_size: The length of the result.
        return_indices: Whether to return i64 indices too.

    Example:
        >>> graphc.compile(lambda: graphc.adaptive_max_pool1d([[[1.0, 3.0, 2.0, 4.0]]], 2))()
        array([[[3., 4.]]], dtype=float32)
    """
    return _adaptive_max("adaptive_max_pool1d", x, output_size, 1, return_indices)


@of_images(3)
def adaptive_max_pool3d(x: TensorLike, output_size: Extents, return_indices: bool = False) -> Any:
    """Return the largest elements of the windows of `adaptive_avg_pool3d`.

    Args:
        x: Volumes [n, c, d, h, w], or one volume [c, d, h, w].
        output_size: The size of the result: one number or three; None keeps a size.
        return_indices: Whether to return i64 indices too.

    Example:
        >>> graphc.compile(lambda: graphc.adaptive_max_pool3d(np.ones((1, 2, 4, 4, 4)), 1))().shape
        (1, 2, 1, 1, 1)
    """
    return _adaptive_max("adaptive_max_pool3d", x, output_size, 3, return_indices)


def _adaptive_mean(name: str, x: TensorLike, output_size: Extents, axes: int) -> Tensor:
    tensor, counts = _images(name, x, output_size, axes)
    windows = _equal_windows(tensor, counts)
    if windows is not None:
        return (avg_pool1d, avg_pool2d, avg_pool3d)[axes - 1](tensor, windows)
    for axis, count in enumerate(counts, 2):
        extent = tensor.shape[axis]
        tensor = _means(tensor, axis, count) if count != extent else tensor
    return tensor


def _adaptive_max(
    name: str, x: TensorLike, output_size: Extents, axes: int, return_indices: bool
) -> Any:
    tensor, counts = _images(name, x, output_size, axes)
    windows = _equal_windows(tensor, counts)
    if windows is not None:
        pool = (max_pool1d, max_pool2d, max_pool3d)[axes - 1]
        return pool(tensor, windows, return_indices=return_indices)
    shape = tensor.shape
    numbers = [as_tensor(np.arange(math.prod(shape[2:])).reshape(shape[2:]))]
    numbers = [broadcast_to(n, shape) for n in numbers] if return_indices else []
    # From the last axis on: the first of equal elements is that of the first row.
    for axis in reversed(range(2, tensor.ndim)):
        before = (slice(None),) * axis
        parts = []
        for cut in _cuts(shape[axis], counts[axis - 2]):
            part = (*before, slice(*cut))
            value, _, *places = first_largest(tensor[part], axis, None, *(n[part] for n in numbers))
            parts.append((value, *places))
        tensor, *numbers = (concat(found, axis) for found in zip(*parts, strict=True))
    return (tensor, *numbers) if return_indices else tensor


def _images(
    name: str, x: TensorLike, output_size: Extents, axes: int
) -> tuple[Tensor, tuple[int, ...]]:
    """x as a float tensor of so many axes behind the channels, and their new extents."""
    tensor = floating(x)
    if tensor.ndim != axes + 2:
        raise error(f"{name}: expected x of {axes + 2} axes, got {tensor.value.type}")
    given = output_size if isinstance(output_size, Sequence) else (output_size,) * axes
    kept = [e if n is None else n for n, e in zip(given, tensor.shape[2:], strict=False)]
    if len(given) != axes or not all(isinstance(n, int | np.integer) and n > 0 for n in kept):
        raise error(
            f"{name}: output_size expected a positive integer or {axes} of them, "
            f"got {output_size!r}"
        )
    return tensor, tuple(int(n) for n in kept)


def _equal_windows(x: Tensor, counts: tuple[int, ...]) -> Size | None:
    """The size of windows that part the images equally, if there is one."""
    pairs = list(zip(x.shape[2:], counts, strict=True))
    if any(extent % count for extent, count in pairs):
        return None
    sizes = tuple(extent // count for extent, count in pairs)
    return sizes if len(sizes) > 1 else sizes[0]
