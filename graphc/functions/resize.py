"""Images of other sizes. Along each axis a resized image is a product with a constant matrix."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from graphc import ops
from graphc.functions.contraction import matmul, pair
from graphc.functions.pooling import avg_pool2d, max_pool2d
from graphc.functions.rearrange import moveaxis
from graphc.functions.reductions import max as largest
from graphc.functions.shapes import concat, expand_dims, squeeze
from graphc.functions.tensors import as_tensor, error, floating
from graphc.ir import DTYPES
from graphc.trace import Tensor, emit

__all__ = [
    "adaptive_avg_pool1d",
    "adaptive_avg_pool2d",
    "adaptive_max_pool2d",
    "interpolate",
]

LINEAR = {"linear": 3, "bilinear": 4, "trilinear": 5}
"""The rank that each mode of `interpolate` expects."""


def interpolate(
    x: Any,
    size: int | Sequence[int] | None = None,
    scale_factor: float | Sequence[float] | None = None,
    mode: str = "nearest",
    align_corners: bool = False,
) -> Tensor:
    """x [n, c, ...] with images of `size`, or of floor(extent * scale_factor), one number or one
    per axis behind the channels.

    Mode "nearest" takes the element at floor(place * ratio); "linear" (3 axes), "bilinear" (4) and
    "trilinear" (5) weigh the two nearest along each axis. With `align_corners` the first and last
    elements stay where they are, else the edges of the image do.
    """
    tensor = floating(x)
    spatial = tensor.shape[2:]
    if mode != "nearest" and LINEAR.get(mode) != tensor.ndim:
        expected = ", ".join(f'"{m}" for {r} axes' for m, r in LINEAR.items())
        raise error(
            f'interpolate: mode expected "nearest" or {expected}, got {mode!r} for x '
            f"{tensor.value.type}"
        )
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
        if mode == "nearest":
            tensor = _nearest(tensor, axis, count, ratio)
        else:
            tensor = _weighed(tensor, axis, _linear(extent, count, ratio, align_corners))
    return tensor


def _nearest(x: Tensor, axis: int, count: int, ratio: float) -> Tensor:
    places = np.floor(np.arange(count, dtype=np.float32) * np.float32(ratio)).astype(np.int32)
    places = np.minimum(places, x.shape[axis] - 1)
    if count == x.shape[axis]:
        return x
    return emit(ops.Take(axis), x, as_tensor(places))


def _linear(extent: int, count: int, ratio: float, align_corners: bool) -> np.ndarray[Any, Any]:
    """[count, extent]: how much of each element each place of the result takes."""
    places = np.arange(count, dtype=np.float64)
    if align_corners:
        source = places * ((extent - 1) / (count - 1) if count > 1 else 0.0)
    else:
        source = np.maximum((places + 0.5) * ratio - 0.5, 0.0)
    low = np.minimum(source.astype(np.int64), extent - 1)
    high = np.minimum(low + 1, extent - 1)
    share = np.minimum(source - low, 1.0)
    matrix = np.zeros((count, extent))
    np.add.at(matrix, (np.arange(count), low), 1 - share)
    np.add.at(matrix, (np.arange(count), high), share)
    return matrix


def _weighed(x: Tensor, axis: int, matrix: np.ndarray[Any, Any]) -> Tensor:
    """The product of `matrix` [count, extent] with x along `axis`."""
    weights = as_tensor(matrix.T.astype(DTYPES[x.dtype]))
    if axis == x.ndim - 1:
        return matmul(x, weights)
    return moveaxis(matmul(moveaxis(x, axis, -1), weights), -1, axis)


def _cuts(extent: int, count: int) -> list[tuple[int, int]]:
    """The first place of each part of an axis, and the one behind its last."""
    return [(i * extent // count, -(-(i + 1) * extent // count)) for i in range(count)]


def adaptive_avg_pool2d(x: Any, output_size: int | Sequence[int]) -> Tensor:
    """x [n, c, h, w] as [n, c, p, q] with `output_size` = (p, q) or one number for both: the mean
    over rows floor(i h / p) to ceil((i + 1) h / p) and columns likewise."""
    tensor, (p, q) = _images("adaptive_avg_pool2d", x, output_size)
    h, w = tensor.shape[2:]
    if h % p == 0 and w % q == 0:
        return avg_pool2d(tensor, (h // p, w // q))
    for axis, count in ((2, p), (3, q)):
        extent = tensor.shape[axis]
        matrix = np.zeros((count, extent))
        for i, (start, stop) in enumerate(_cuts(extent, count)):
            matrix[i, start:stop] = 1 / (stop - start)
        tensor = _weighed(tensor, axis, matrix)
    return tensor


def adaptive_avg_pool1d(x: Any, output_size: int) -> Tensor:
    """x [n, c, w] as [n, c, output_size]: means as of `adaptive_avg_pool2d`."""
    tensor = as_tensor(x)
    if tensor.ndim != 3:
        raise error(f"adaptive_avg_pool1d: expected x of 3 axes, got {tensor.value.type}")
    return squeeze(adaptive_avg_pool2d(expand_dims(tensor, 2), (1, output_size)), 2)


def adaptive_max_pool2d(x: Any, output_size: int | Sequence[int]) -> Tensor:
    """The largest elements of the windows of `adaptive_avg_pool2d`."""
    tensor, (p, q) = _images("adaptive_max_pool2d", x, output_size)
    h, w = tensor.shape[2:]
    if h % p == 0 and w % q == 0:
        return max_pool2d(tensor, (h // p, w // q))
    for axis, count in ((2, p), (3, q)):
        before = (slice(None),) * axis
        parts = [
            largest(tensor[(*before, slice(*cut))], axis, keepdims=True)
            for cut in _cuts(tensor.shape[axis], count)
        ]
        tensor = concat(parts, axis)
    return tensor


def _images(name: str, x: Any, output_size: Any) -> tuple[Tensor, tuple[int, int]]:
    tensor = floating(x)
    if tensor.ndim != 4:
        raise error(f"{name}: expected x of 4 axes, got {tensor.value.type}")
    return tensor, pair(name, "output_size", output_size)
