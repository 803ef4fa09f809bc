"""Max pooling."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from graphc import ops
from graphc.functions.array.elementwise.elementwise import add, floor_divide, multiply
from graphc.functions.array.indexing.gathering import take_along_axis
from graphc.functions.array.indexing.places import first_largest, pixel_of
from graphc.functions.array.shape.padding import pad
from graphc.functions.array.shape.shapes import expand_dims, reshape, squeeze
from graphc.functions.array.tensors import as_tensor
from graphc.functions.network.convolution import unfold
from graphc.functions.network.windows import (
    Size,
    by_depth,
    extended,
    of_images,
    of_rank,
    pair,
    row,
    single,
    triple,
    window,
)
from graphc.ir import TensorLike
from graphc.trace import Tensor, current_builder


@of_images(2)
def max_pool2d(
    x: TensorLike,
    kernel_size: Size,
    stride: Size | None = None,
    padding: Size = 0,
    dilation: Size = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """Return the largest element of each window of images; NaN if any element is NaN.

    The first of equal elements gets the gradient.

    Args:
        x: Images [n, c, h, w], or one image [c, h, w].
        kernel_size: The size of the windows: one number or (rows, columns).
        stride: The step of the windows; by default `kernel_size`.
        padding: Padding of -inf around the images.
        dilation: The distance between elements of a window.
        ceil_mode: Whether windows may end beyond the padding; none begins there.
        return_indices: Whether to return indices too.

    Returns:
        Images [n, c, p, q], and with `return_indices` the i64 pixel numbers h * width + w.

    Raises:
        GraphError: The shapes or sizes do not fit.

    Example:
        >>> x = np.arange(16.0).reshape(1, 1, 4, 4)
        >>> graphc.compile(lambda: graphc.max_pool2d(x, 2))()
        array([[[[ 5.,  7.],
                 [13., 15.]]]])
    """
    name = "max_pool2d"
    size, steps, around = window(name, kernel_size, stride, padding)
    spacing = pair(name, "dilation", dilation)
    reach = tuple(d * (k - 1) + 1 for d, k in zip(spacing, size, strict=True))
    tensor = images = as_tensor(x)
    if tensor.ndim == 4 and ceil_mode:
        images = extended(tensor, reach, steps, around, -math.inf)
    if tensor.ndim == 4 and spacing != (1, 1):
        largest, place = _dilated(images, tensor.shape, size, steps, around, spacing)
    else:
        largest, place = current_builder().emit(ops.MaxPool2d(size, steps, around), images)
    if not return_indices:
        return largest
    return largest, pixel_of(place, size, steps, around, spacing, tensor.shape[3])


def _dilated(
    x: Tensor,
    shape: Sequence[int],
    size: tuple[int, int],
    stride: tuple[int, int],
    padding: tuple[int, int],
    dilation: tuple[int, int],
) -> tuple[Tensor, Tensor]:
    """Return the largest element of each dilated window and its index in the window.

    Elements of x beyond `shape` are padding too, which no index names.
    """
    widths = [(0, 0), (0, 0), *((p, p) for p in padding)]
    windows = unfold(pad(x, widths, -math.inf), size, dilation, 0, stride)
    taps = size[0] * size[1]
    spans = [n + 2 * p for n, p in zip(x.shape[2:], padding, strict=True)]
    pixels = [
        (n - d * (k - 1) - 1) // s + 1
        for n, d, k, s in zip(spans, dilation, size, stride, strict=True)
    ]
    within = [
        (0 <= place) & (place < extent)
        for extent, place in (
            (
                shape[2 + i],
                np.arange(pixels[i]) * stride[i]
                - padding[i]
                + np.arange(size[i])[:, None] * dilation[i],
            )
            for i in (0, 1)
        )
    ]  # [r, p] and [s, q]
    inside = within[0][:, None, :, None] & within[1][None, :, None, :]
    columns = reshape(windows, (*x.shape[:2], taps, *pixels))
    found = first_largest(columns, 2, inside.reshape(taps, *pixels))
    largest, place = (squeeze(t, 2) for t in found)
    return largest, place


@of_images(1)
def max_pool1d(
    x: TensorLike,
    kernel_size: Size,
    stride: Size | None = None,
    padding: Size = 0,
    dilation: Size = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """Return the largest element of each window of sequences; NaN if any element is NaN.

    Args:
        x: Sequences [n, c, w], or one sequence [c, w].
        kernel_size: The size of the windows.
        stride: The step of the windows; by default `kernel_size`.
        padding: Padding of -inf at both ends.
        dilation: The distance between elements of a window.
        ceil_mode: Whether windows may end beyond the padding; none begins there.
        return_indices: Whether to return i64 indices too.

    Example:
        >>> graphc.compile(lambda: graphc.max_pool1d([[[1.0, 3.0, 2.0, 0.0]]], 2))()
        array([[[3., 2.]]], dtype=float32)
    """
    images = expand_dims(of_rank("max_pool1d", x, 3), 2)
    windows = row("max_pool1d", kernel_size, stride, padding)
    spacing = (1, single("max_pool1d", "dilation", dilation))
    found = max_pool2d(images, *windows, spacing, ceil_mode, return_indices)
    return tuple(squeeze(t, 2) for t in found) if return_indices else squeeze(found, 2)


@of_images(3)
def max_pool3d(
    x: TensorLike,
    kernel_size: Size,
    stride: Size | None = None,
    padding: Size = 0,
    dilation: Size = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """Return the largest element of each window of volumes; NaN if any element is NaN.

    Args:
        x: Volumes [n, c, d, h, w], or one volume [c, d, h, w].
        kernel_size: The size of the windows: one number or (depth, rows, columns).
        stride: The step of the windows; by default `kernel_size`.
        padding: Padding of -inf around the volumes.
        dilation: The distance between elements of a window.
        ceil_mode: Whether windows may end beyond the padding; none begins there.
        return_indices: Whether to return i64 indices too.

    Example:
        >>> graphc.compile(lambda: graphc.max_pool3d(np.ones((1, 1, 4, 4, 4)), 2))().shape
        (1, 1, 2, 2, 2)
    """
    spacing = triple("max_pool3d", "dilation", dilation)
    places: list[Tensor] = []

    def pool(x: Tensor, size: Size, stride: Size, padding: Size, axes: slice) -> Any:
        apart = spacing[1:] if axes.start else (spacing[0], 1)
        found = max_pool2d(x, size, stride, padding, apart, ceil_mode, return_indices)
        if not return_indices:
            return found
        places.append(found[1])
        return found[0]

    y = by_depth("max_pool3d", pool, x, kernel_size, stride, padding)
    if not return_indices:
        return y
    n, c, d, h, w = as_tensor(x).shape
    in_image, in_columns = places
    count = y.shape[3] * y.shape[4]
    depth = floor_divide(in_columns, count)
    pixel = take_along_axis(reshape(in_image, (n, c, d, count)), depth, 2)
    return y, reshape(add(multiply(depth, h * w), pixel), y.shape)
