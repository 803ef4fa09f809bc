"""Pooling over windows of images."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from graphc import ops
from graphc.functions.contraction import pair, triple
from graphc.functions.elementwise import greater, multiply, pow, relu, where
from graphc.functions.shapes import expand_dims, reshape, squeeze
from graphc.functions.tensors import as_tensor, error, floating
from graphc.trace import Tensor, current_builder

__all__ = [
    "avg_pool1d",
    "avg_pool2d",
    "avg_pool3d",
    "lp_pool2d",
    "max_pool1d",
    "max_pool2d",
    "max_pool3d",
]

Size = int | Sequence[int]


def max_pool2d(x: Any, kernel_size: Size, stride: Size | None = None, padding: Size = 0) -> Tensor:
    """The largest element of each window of x [n, c, h, w]: [n, c, p, q]; NaN if any is.

    `stride` is `kernel_size` unless given. The first of equal elements gets the gradient.
    """
    settings = _window("max_pool2d", kernel_size, stride, padding)
    largest, _ = current_builder().emit(ops.MaxPool2d(*settings), as_tensor(x))
    return largest


def avg_pool2d(
    x: Any,
    kernel_size: Size,
    stride: Size | None = None,
    padding: Size = 0,
    count_include_pad: bool = True,
) -> Tensor:
    """The mean over each window of x [n, c, h, w]: [n, c, p, q].

    `stride` is `kernel_size` unless given. Padding counts as zeros, or not at all.
    """
    settings = _window("avg_pool2d", kernel_size, stride, padding)
    op = ops.AvgPool2d(*settings, bool(count_include_pad))
    (mean,) = current_builder().emit(op, as_tensor(x))
    return mean


def max_pool1d(x: Any, kernel_size: int, stride: int | None = None, padding: int = 0) -> Tensor:
    """The largest element of each window of x [n, c, w]: [n, c, q]; settings as of `max_pool2d`."""
    tensor = _of_rank("max_pool1d", x, 3)
    steps = kernel_size if stride is None else stride
    y = max_pool2d(expand_dims(tensor, 2), (1, kernel_size), (1, steps), (0, padding))
    return squeeze(y, 2)


def avg_pool1d(
    x: Any,
    kernel_size: int,
    stride: int | None = None,
    padding: int = 0,
    count_include_pad: bool = True,
) -> Tensor:
    """The mean over each window of x [n, c, w]: [n, c, q]; arguments as of `avg_pool2d`."""
    tensor = _of_rank("avg_pool1d", x, 3)
    steps, around = kernel_size if stride is None else stride, (0, padding)
    images = expand_dims(tensor, 2)
    return squeeze(avg_pool2d(images, (1, kernel_size), (1, steps), around, count_include_pad), 2)


def max_pool3d(x: Any, kernel_size: Size, stride: Size | None = None, padding: Size = 0) -> Tensor:
    """The largest element of each window of x [n, c, d, h, w]; arguments as of `max_pool2d`."""
    return _by_depth("max_pool3d", max_pool2d, x, kernel_size, stride, padding)


def avg_pool3d(
    x: Any,
    kernel_size: Size,
    stride: Size | None = None,
    padding: Size = 0,
    count_include_pad: bool = True,
) -> Tensor:
    """The mean over each window of x [n, c, d, h, w]; arguments as of `avg_pool2d`."""
    return _by_depth("avg_pool3d", avg_pool2d, x, kernel_size, stride, padding, count_include_pad)


def _by_depth(
    name: str,
    pool: Callable[..., Tensor],
    x: Any,
    kernel_size: Size,
    stride: Size | None,
    padding: Size,
    *more: bool,
) -> Tensor:
    """Windows of images first, then of what they leave along the depth."""
    tensor = _of_rank(name, x, 5)
    size = triple(name, "kernel_size", kernel_size)
    steps = size if stride is None else triple(name, "stride", stride)
    around = triple(name, "padding", padding, at_least=0)
    n, c, d, h, w = tensor.shape
    images = pool(reshape(tensor, (n, c * d, h, w)), size[1:], steps[1:], around[1:], *more)
    p, q = images.shape[2:]
    columns = reshape(images, (n, c, d, p * q))
    y = pool(columns, (size[0], 1), (steps[0], 1), (around[0], 0), *more)
    return reshape(y, (n, c, y.shape[2], p, q))


def lp_pool2d(x: Any, norm_type: float, kernel_size: Size, stride: Size | None = None) -> Tensor:
    """(sum of x^norm_type)^(1 / norm_type) over each window of x [n, c, h, w]; 0 where that sum is
    negative."""
    size = pair("lp_pool2d", "kernel_size", kernel_size)
    powers = avg_pool2d(pow(floating(x), norm_type), size, stride)
    total = multiply(relu(powers), float(size[0] * size[1]))
    above = greater(total, 0)
    return where(above, pow(where(above, total, 1), 1 / norm_type), 0)


def _of_rank(name: str, x: Any, rank: int) -> Tensor:
    tensor = as_tensor(x)
    if tensor.ndim != rank:
        raise error(f"{name}: expected x of {rank} axes, got {tensor.value.type}")
    return tensor


def _window(
    name: str, kernel_size: Size, stride: Size | None, padding: Size
) -> tuple[tuple[int, int], tuple[int, int], tuple[int, int]]:
    size = pair(name, "kernel_size", kernel_size)
    steps = size if stride is None else pair(name, "stride", stride)
    return size, steps, pair(name, "padding", padding, at_least=0)
