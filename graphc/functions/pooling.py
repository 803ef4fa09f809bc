"""Pooling over windows of images."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from graphc import ops
from graphc.functions.contraction import pair
from graphc.functions.tensors import as_tensor
from graphc.trace import Tensor, current_builder

__all__ = ["avg_pool2d", "max_pool2d"]

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


def _window(
    name: str, kernel_size: Size, stride: Size | None, padding: Size
) -> tuple[tuple[int, int], tuple[int, int], tuple[int, int]]:
    size = pair(name, "kernel_size", kernel_size)
    steps = size if stride is None else pair(name, "stride", stride)
    return size, steps, pair(name, "padding", padding, at_least=0)
