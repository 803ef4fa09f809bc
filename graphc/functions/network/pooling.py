"""Average and power-average pooling."""

from __future__ import annotations

import math

import numpy as np

from graphc import ops
from graphc.functions.array.elementwise.elementwise import greater, multiply, pow, relu, where
from graphc.functions.array.shape.shapes import expand_dims, squeeze
from graphc.functions.array.tensors import as_tensor, error, floating
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
from graphc.ir import Array, TensorLike
from graphc.trace import Tensor, current_builder


@of_images(2)
def avg_pool2d(
    x: TensorLike,
    kernel_size: Size,
    stride: Size | None = None,
    padding: Size = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:
    """Average each window of images.

    Args:
        x: Images [n, c, h, w], or one image [c, h, w].
        kernel_size: The size of the windows: one number or (rows, columns).
        stride: The step of the windows; by default `kernel_size`.
        padding: Zeros around the images.
        ceil_mode: Whether windows may end beyond the padding, where elements never count.
        count_include_pad: Whether padding counts as elements.
        divisor_override: The number to divide by, instead of the number of elements.

    Returns:
        Images [n, c, p, q].

    Raises:
        GraphError: The shapes or sizes do not fit.

    Example:
        >>> x = np.arange(4.0).reshape(1, 1, 2, 2)
        >>> graphc.compile(lambda: graphc.avg_pool2d(x, 2))()
        array([[[[1.5]]]])
    """
    name = "avg_pool2d"
    size, steps, around = window(name, kernel_size, stride, padding)
    tensor, whole = as_tensor(x), bool(count_include_pad)
    longer = tensor
    if tensor.ndim == 4 and ceil_mode:
        longer = extended(tensor, size, steps, around, 0.0)
    if longer is tensor and divisor_override is None:
        (mean,) = current_builder().emit(ops.AvgPool2d(size, steps, around, whole), tensor)
        return mean
    (mean,) = current_builder().emit(ops.AvgPool2d(size, steps, around, True), longer)
    taps = size[0] * size[1]
    if divisor_override is not None:
        if not isinstance(divisor_override, int) or divisor_override < 1:
            raise error(
                f"{name}: divisor_override expected a positive integer, got {divisor_override!r}"
            )
        return multiply(mean, taps / divisor_override)
    rows, columns = (
        _counts(tensor.shape[2 + i], mean.shape[2 + i], size[i], steps[i], around[i], whole)
        for i in (0, 1)
    )
    share = taps / (rows[:, None] * columns)
    return multiply(mean, as_tensor(share, mean.dtype))


@of_images(1)
def avg_pool1d(
    x: TensorLike,
    kernel_size: Size,
    stride: Size | None = None,
    padding: Size = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> Tensor:
    """Average each window of sequences.

    Args:
        x: Sequences [n, c, w], or one sequence [c, w].
        kernel_size: The size of the windows.
        stride: The step of the windows; by default `kernel_size`.
        padding: Zeros at both ends.
        ceil_mode: Whether windows may end beyond the padding, where elements never count.
        count_include_pad: Whether padding counts as elements.

    Example:
        >>> graphc.compile(lambda: graphc.avg_pool1d([[[1.0, 3.0, 2.0, 0.0]]], 2))()
        array([[[2., 1.]]], dtype=float32)
    """
    images = expand_dims(of_rank("avg_pool1d", x, 3), 2)
    windows = row("avg_pool1d", kernel_size, stride, padding)
    return squeeze(avg_pool2d(images, *windows, ceil_mode, count_include_pad), 2)


@of_images(3)
def avg_pool3d(
    x: TensorLike,
    kernel_size: Size,
    stride: Size | None = None,
    padding: Size = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:
    """Average each window of volumes.

    Args:
        x: Volumes [n, c, d, h, w], or one volume [c, d, h, w].
        kernel_size: The size of the windows: one number or (depth, rows, columns).
        stride: The step of the windows; by default `kernel_size`.
        padding: Zeros around the volumes.
        ceil_mode: Whether windows may end beyond the padding, where elements never count.
        count_include_pad: Whether padding counts as elements.
        divisor_override: The number to divide by, instead of the number of elements.

    Example:
        >>> graphc.compile(lambda: graphc.avg_pool3d(np.ones((1, 1, 4, 4, 4)), 2))().shape
        (1, 1, 2, 2, 2)
    """

    def pool(x: Tensor, size: Size, stride: Size, padding: Size, axes: slice) -> Tensor:
        divisor = None
        if divisor_override is not None:
            divisor = divisor_override if axes.start else 1
        return avg_pool2d(x, size, stride, padding, ceil_mode, count_include_pad, divisor)

    return by_depth("avg_pool3d", pool, x, kernel_size, stride, padding)


def _counts(extent: int, windows: int, size: int, stride: int, padding: int, whole: bool) -> Array:
    """The elements of each window along an axis, of the padding too if `whole`."""
    start = np.arange(windows) * stride - padding
    stop = np.minimum(start + size, extent + padding)
    return stop - start if whole else np.minimum(stop, extent) - np.maximum(start, 0)


@of_images(2)
def lp_pool2d(
    x: TensorLike,
    norm_type: float,
    kernel_size: Size,
    stride: Size | None = None,
    ceil_mode: bool = False,
) -> Tensor:
    """Return the power average of each window: (sum of x^norm_type)^(1 / norm_type).

    Where the sum is negative, the result is 0.

    Args:
        x: Images [n, c, h, w], or one image [c, h, w].
        norm_type: The exponent.
        kernel_size: The size of the windows: one number or (rows, columns).
        stride: The step of the windows; by default `kernel_size`.
        ceil_mode: Whether windows may end beyond the images.

    Example:
        >>> graphc.compile(lambda: graphc.lp_pool2d([[[[3.0, 4.0]]]], 2, (1, 2)))()
        array([[[[5.]]]], dtype=float32)
    """
    size = pair("lp_pool2d", "kernel_size", kernel_size)
    powers = avg_pool2d(pow(floating(x), norm_type), size, stride, ceil_mode=ceil_mode)
    return _root(powers, math.prod(size), norm_type)


@of_images(1)
def lp_pool1d(
    x: TensorLike,
    norm_type: float,
    kernel_size: Size,
    stride: Size | None = None,
    ceil_mode: bool = False,
) -> Tensor:
    """Return the power average of each window of sequences, as `lp_pool2d`.

    Args:
        x: Sequences [n, c, w], or one sequence [c, w].
        norm_type: The exponent.
        kernel_size: The size of the windows.
        stride: The step of the windows; by default `kernel_size`.
        ceil_mode: Whether windows may end beyond the sequence.

    Example:
        >>> graphc.compile(lambda: graphc.lp_pool1d([[[3.0, 4.0]]], 2, 2))()
        array([[[5.]]], dtype=float32)
    """
    powers = avg_pool1d(pow(floating(x), norm_type), kernel_size, stride, ceil_mode=ceil_mode)
    return _root(powers, single("lp_pool1d", "kernel_size", kernel_size), norm_type)


@of_images(3)
def lp_pool3d(
    x: TensorLike,
    norm_type: float,
    kernel_size: Size,
    stride: Size | None = None,
    ceil_mode: bool = False,
) -> Tensor:
    """Return the power average of each window of volumes, as `lp_pool2d`.

    Args:
        x: Volumes [n, c, d, h, w], or one volume [c, d, h, w].
        norm_type: The exponent.
        kernel_size: The size of the windows: one number or (depth, rows, columns).
        stride: The step of the windows; by default `kernel_size`.
        ceil_mode: Whether windows may end beyond the volumes.

    Example:
        >>> graphc.compile(lambda: graphc.lp_pool3d(np.ones((1, 1, 2, 2, 2)), 1, 2))()
        array([[[[[8.]]]]])
    """
    size = triple("lp_pool3d", "kernel_size", kernel_size)
    powers = avg_pool3d(pow(floating(x), norm_type), size, stride, ceil_mode=ceil_mode)
    return _root(powers, math.prod(size), norm_type)


def _root(mean: Tensor, count: int, norm_type: float) -> Tensor:
    """The root of order `norm_type` of `count` times the mean; 0 where it is negative."""
    total = multiply(relu(mean), float(count))
    above = greater(total, 0)
    return where(above, pow(where(above, total, 1), 1 / norm_type), 0)
