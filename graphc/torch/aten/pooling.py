"""Pooling and its gradients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from graphc import functions as f
from graphc.torch.aten.rules import aten, pull
from graphc.trace import Tensor

Extents = Sequence[int]
MAX: dict[int, Callable[..., Any]] = {2: f.max_pool2d, 3: f.max_pool3d}
MEAN: dict[int, Callable[..., Any]] = {1: f.avg_pool1d, 2: f.avg_pool2d, 3: f.avg_pool3d}
ADAPTIVE_MAX: dict[int, Callable[..., Any]] = {2: f.adaptive_max_pool2d, 3: f.adaptive_max_pool3d}
ADAPTIVE: dict[int, Callable[..., Any]] = {
    1: f.adaptive_avg_pool1d,
    2: f.adaptive_avg_pool2d,
    3: f.adaptive_avg_pool3d,
}


def _each(value: Extents, axes: int) -> tuple[int, ...]:
    return tuple(value) * axes if len(value) == 1 else tuple(value)


def _largest(
    axes: int, kernel: Extents, stride: Extents, padding: Extents, dilation: Extents, ceil: bool
) -> Callable[..., Any]:
    """The pooling with these windows; without a stride they lie side by side."""
    k, p, d = (_each(value, axes) for value in (kernel, padding, dilation))
    s = _each(stride, axes) if stride else k

    def pool(x: Tensor, indices: bool = False) -> Any:
        return MAX[axes](x, k, s, p, d, ceil, indices)

    return pool


@aten("max_pool2d_with_indices", "max_pool3d_with_indices")
def max_pool(
    x: Tensor,
    kernel: Extents,
    stride: Extents = (),
    padding: Extents = (0,),
    dilation: Extents = (1,),
    ceil_mode: bool = False,
) -> Any:
    """Of images [n, c, ...] with as many axes as the window's extents say."""
    return _largest(x.ndim - 2, kernel, stride, padding, dilation, ceil_mode)(x, True)


@aten("max_pool2d_with_indices_backward", "max_pool3d_with_indices_backward")
def max_pool_backward(dy: Tensor, x: Tensor, *given: Any) -> Tensor:
    """`given`: the windows as of `max_pool`, then the places, which graphc finds again."""
    *windows, _ = given
    (dx,) = pull(_largest(x.ndim - 2, *windows), dy, x)
    return dx


@aten("avg_pool1d", "avg_pool2d", "avg_pool3d")
def avg_pool(
    x: Tensor,
    kernel: Extents,
    stride: Extents = (),
    padding: Extents = (0,),
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:
    axes = len(kernel) if len(kernel) > 1 else x.ndim - 2
    k, p = _each(kernel, axes), _each(padding, axes)
    s = _each(stride, axes) if stride else k
    more = () if axes == 1 else (divisor_override,)
    pooled: Tensor = MEAN[axes](x, k, s, p, ceil_mode, count_include_pad, *more)
    return pooled


@aten("avg_pool2d_backward", "avg_pool3d_backward")
def avg_pool_backward(dy: Tensor, x: Tensor, *windows: Any) -> Tensor:
    (dx,) = pull(lambda x: avg_pool(x, *windows), dy, x)
    return dx


@aten("adaptive_avg_pool1d", "_adaptive_avg_pool2d", "_adaptive_avg_pool3d")
def adaptive_avg_pool(x: Tensor, size: Extents) -> Tensor:
    pooled: Tensor = ADAPTIVE[len(size)](x, tuple(size))
    return pooled


@aten("_adaptive_avg_pool2d_backward", "_adaptive_avg_pool3d_backward")
def adaptive_avg_pool_backward(dy: Tensor, x: Tensor) -> Tensor:
    axes = x.ndim - 2 if x.ndim > 3 else x.ndim - 1
    size = dy.shape[-axes:]
    (dx,) = pull(lambda x: adaptive_avg_pool(x, size), dy, x)
    return dx


@aten("adaptive_max_pool2d", "adaptive_max_pool3d")
def adaptive_max_pool(x: Tensor, size: Extents) -> Any:
    return ADAPTIVE_MAX[len(size)](x, tuple(size), True)


@aten("adaptive_max_pool2d_backward")
def adaptive_max_pool2d_backward(dy: Tensor, x: Tensor, indices: Tensor) -> Tensor:
    (dx,) = pull(lambda x: f.adaptive_max_pool2d(x, dy.shape[-2:]), dy, x)
    return dx


@aten("adaptive_max_pool3d_backward")
def adaptive_max_pool3d_backward(dy: Tensor, x: Tensor, indices: Tensor) -> Tensor:
    (dx,) = pull(lambda x: f.adaptive_max_pool3d(x, dy.shape[-3:]), dy, x)
    return dx
