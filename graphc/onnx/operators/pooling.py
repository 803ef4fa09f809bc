"""Pooling: windows with any padding, spacing and order of places."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from graphc import functions as f
from graphc.ir import Array
from graphc.onnx.operators.products import axes_of_images, windowed_sum, windows
from graphc.onnx.operators.rules import each, integers, is_float, lowest, operator, wide
from graphc.trace import Tensor

_MAX: dict[int, Callable[..., Any]] = {1: f.max_pool1d, 2: f.max_pool2d, 3: f.max_pool3d}
_MEAN: dict[int, Callable[..., Tensor]] = {1: f.avg_pool1d, 2: f.avg_pool2d, 3: f.avg_pool3d}


@dataclass(frozen=True)
class _Windows:
    """Where windows lie, each attribute with a number per axis."""

    kernel: list[int]
    step: list[int]
    apart: list[int]
    widths: list[tuple[int, int]]
    """The padding before and after."""
    beyond: list[int]
    """What windows reach behind the padding, where the last one may."""

    @property
    def symmetric(self) -> bool:
        return not any(self.beyond) and all(a == b for a, b in self.widths)

    @property
    def around(self) -> list[tuple[int, int]]:
        """All that is put before and after."""
        return [(b, a + m) for (b, a), m in zip(self.widths, self.beyond, strict=True)]


def _windows(
    x: Tensor, kernel: Any, strides: Any, dilations: Any, pads: Any, auto_pad: str, ceil_mode: int
) -> _Windows:
    extents = x.shape[2:]
    axes = len(extents)
    step, apart = each(strides, axes, 1), each(dilations, axes, 1)
    widths = windows(extents, kernel, step, apart, pads, auto_pad)
    beyond = []
    for n, k, s, d, (before, after) in zip(extents, kernel, step, apart, widths, strict=True):
        room = n + before + after - d * (k - 1) - 1
        count = -(-room // s) + 1
        count -= (count - 1) * s >= n + before
        beyond.append(max(0, (count - 1) * s - room) if ceil_mode else 0)
    return _Windows(list(kernel), step, apart, widths, beyond)


@operator("MaxPool")
def max_pool(
    x: Tensor,
    kernel_shape: Any = None,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    dilations: Any = None,
    pads: Any = None,
    storage_order: int = 0,
    strides: Any = None,
    outputs: int = 1,
) -> Any:
    axes = axes_of_images(x, _MAX)
    where = _windows(x, kernel_shape, strides, dilations, pads, auto_pad, ceil_mode)
    kind = x.dtype
    images = x if is_float(x) else f.astype(x, "f32")
    if (
        where.symmetric
        and outputs == 1
        and all(2 * b <= k for (b, _), k in zip(where.widths, where.kernel, strict=True))
    ):
        padding = [b for b, _ in where.widths]
        y = _MAX[axes](images, where.kernel, where.step, padding, where.apart)
        return f.astype(y, kind)
    images = f.pad(images, [(0, 0), (0, 0), *where.around], float(lowest(kind)))
    y = _MAX[axes](images, where.kernel, where.step, 0, where.apart, False, outputs > 1)
    if outputs == 1:
        return f.astype(y, kind)
    largest, place = y
    return f.astype(largest, kind), _numbered(x, place, images.shape[2:], where, storage_order)


def _numbered(
    x: Tensor, place: Tensor, extents: Sequence[int], where: _Windows, column_major: int
) -> Tensor:
    """The number in all of x of an element that is known by its number in its padded image."""
    parts: list[Tensor] = []
    for extent, (before, _) in reversed(list(zip(extents, where.widths, strict=True))):
        parts.insert(0, f.subtract(f.remainder(place, extent), before))
        place = f.floor_divide(place, extent)
    order = range(len(parts))
    total: Any = 0
    for axis in reversed(order) if column_major else order:
        total = f.add(f.multiply(total, x.shape[2 + axis]), parts[axis])
    images = np.arange(x.shape[0] * x.shape[1]).reshape(*x.shape[:2], *[1] * len(parts))
    return f.add(f.astype(total, "i64"), f.as_tensor(images * math.prod(x.shape[2:])))


def _counts(x: Tensor, where: _Windows, include_pad: int) -> Array:
    """How many elements each window has: those of x, or with the padding."""
    total = np.ones(())
    for n, k, s, d, (before, after), beyond in zip(
        x.shape[2:], where.kernel, where.step, where.apart, where.widths, where.beyond, strict=True
    ):
        whole = n + before + after + beyond
        inside = np.zeros(whole)
        inside[before : before + n] = 1
        if include_pad:
            inside[: n + before + after] = 1
        starts = np.arange(0, whole - d * (k - 1), s)
        total = np.multiply.outer(total, inside[starts[:, None] + d * np.arange(k)].sum(1))
    return total


@operator("AveragePool")
def average_pool(
    x: Tensor,
    kernel_shape: Any = None,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    count_include_pad: int = 0,
    dilations: Any = None,
    pads: Any = None,
    strides: Any = None,
) -> Tensor:
    axes = axes_of_images(x, _MEAN)
    where = _windows(x, kernel_shape, strides, dilations, pads, auto_pad, ceil_mode)
    padding = [b for b, _ in where.widths]
    fits = all(2 * p <= k for p, k in zip(padding, where.kernel, strict=True))
    if where.symmetric and fits and set(where.apart) == {1}:
        return _MEAN[axes](x, where.kernel, where.step, padding, False, bool(count_include_pad))
    total = windowed_sum(
        f.pad(wide(x), [(0, 0), (0, 0), *where.around]), where.kernel, where.step, where.apart
    )
    counts = np.maximum(_counts(x, where, count_include_pad), 1)
    return f.astype(f.divide(total, f.as_tensor(counts, total.dtype)), x.dtype)


@operator("LpPool")
def lp_pool(
    x: Tensor,
    kernel_shape: Any = None,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    dilations: Any = None,
    p: int = 2,
    pads: Any = None,
    strides: Any = None,
) -> Tensor:
    where = _windows(x, kernel_shape, strides, dilations, pads, auto_pad, ceil_mode)
    powers = f.square(x) if p == 2 else f.pow(f.abs(x), p)
    padded = f.pad(powers, [(0, 0), (0, 0), *where.around])
    total = windowed_sum(padded, where.kernel, where.step, where.apart)
    return f.sqrt(total) if p == 2 else f.pow(total, 1 / p)


@operator("MaxUnpool", static="output_shape")
def max_unpool(
    x: Tensor,
    places: Tensor,
    output_shape: Any = None,
    kernel_shape: Any = None,
    pads: Any = None,
    strides: Any = None,
) -> Tensor:
    """Put the elements of x at their indices in an image of zeros.

    The indices count in the image that the attributes describe, as MaxPool returns them.
    """
    axes = x.ndim - 2
    step, around = each(strides, axes, 1), each(pads, 2 * axes, 0)
    extents = [
        (n - 1) * s + k - around[i] - around[i + axes]
        for i, (n, s, k) in enumerate(zip(x.shape[2:], step, kernel_shape, strict=True))
    ]
    shape = (*x.shape[:2], *extents)
    empty = f.zeros((math.prod(shape),), x.dtype)
    y = f.scatter(empty, 0, f.reshape(places, (-1,)), f.reshape(x, (-1,)))
    image = f.reshape(y, shape)
    if output_shape is None:
        return image
    widths = [(0, m - n) for m, n in zip(integers(output_shape), shape, strict=True)]
    return f.pad(image, widths)
