"""Normalisation layers."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from graphc import functions
from graphc.nn import check, initialize
from graphc.nn.module import Module
from graphc.trace import Tensor, current_builder


class _BatchNorm(Module):
    """y = (x - mean) / sqrt(variance + eps) * weight + bias for each channel, the second axis.

    In training programs mean and (biased) variance are those of the batch, and the running ones
    move towards it: running += momentum * (batch's - running), with the unbiased variance; with
    momentum=None they are the averages over all batches. Other programs normalise by the running
    ones. Without `track_running_stats` every program uses the batch's.

    weight, bias (unless `affine` is False), running_mean, running_var: f32[num_features];
    num_batches_tracked: i64[].
    """

    _axes: ClassVar[tuple[str, ...]] = ()

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
    ) -> None:
        layer = type(self).__name__
        shape = (check.integer(layer, "num_features", num_features),)
        self.num_features = shape[0]
        self.eps = check.number(layer, "eps", eps, 0.0, float("inf"))
        self.momentum = (
            None if momentum is None else check.number(layer, "momentum", momentum, 0, 1)
        )
        self.weight = initialize.full(shape, 1.0) if affine else None
        self.bias = initialize.full(shape, 0.0) if affine else None
        self.running_mean = self.running_var = self.num_batches_tracked = None
        if track_running_stats:
            self.running_mean = initialize.full(shape, 0.0, trainable=False)
            self.running_var = initialize.full(shape, 1.0, trainable=False)
            self.num_batches_tracked = initialize.full((), 0, np.int64, trainable=False)

    def forward(self, x: Tensor) -> Tensor:
        check.axes(type(self).__name__, x, *self._axes)
        tracked = self.num_batches_tracked is not None
        return functions.batch_norm(
            x,
            self.running_mean,
            self.running_var,
            self.weight,
            self.bias,
            training=None if tracked else True,
            momentum=self._count() if tracked and current_builder().training else 0.0,
            eps=self.eps,
        )

    def _count(self) -> float | Tensor:
        """Add 1 to the number of batches; the weight of this batch in the running statistics."""
        count = functions.as_tensor(self.num_batches_tracked)
        following = count + 1
        current_builder().update(count, following)
        return 1.0 / following.astype("float32") if self.momentum is None else self.momentum

    def describe(self) -> str:
        return (
            f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, "
            f"affine={self.weight is not None}, "
            f"track_running_stats={self.running_mean is not None}"
        )


class BatchNorm1d(_BatchNorm):
    """Batch normalisation of x[n, c] or x[n, c, l]."""

    _axes = ("n, c", "n, c, l")


class BatchNorm2d(_BatchNorm):
    """Batch normalisation of x[n, c, h, w]."""

    _axes = ("n, c, h, w",)


class LayerNorm(Module):
    """y = (x - mean) / sqrt(variance + eps) * weight + bias over the last axes, whose extents are
    `normalized_shape` (an integer or several); weight, bias: f32[normalized_shape]."""

    def __init__(
        self,
        normalized_shape: int | tuple[int, ...] | list[int],
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
    ) -> None:
        self.normalized_shape = _extents("LayerNorm", normalized_shape)
        self.eps = check.number("LayerNorm", "eps", eps, 0.0, float("inf"))
        self.weight = initialize.full(self.normalized_shape, 1.0) if elementwise_affine else None
        has_bias = elementwise_affine and bias
        self.bias = initialize.full(self.normalized_shape, 0.0) if has_bias else None

    def forward(self, x: Tensor) -> Tensor:
        return functions.layer_norm(x, self.normalized_shape, self.weight, self.bias, self.eps)

    def describe(self) -> str:
        return (
            f"{self.normalized_shape}, eps={self.eps}, "
            f"elementwise_affine={self.weight is not None}, bias={self.bias is not None}"
        )


class GroupNorm(Module):
    """y = (x - mean) / sqrt(variance + eps) * weight + bias over the channels of each of
    `num_groups` groups of x[n, num_channels, ...]; weight, bias: f32[num_channels]."""

    def __init__(
        self, num_groups: int, num_channels: int, eps: float = 1e-5, affine: bool = True
    ) -> None:
        self.num_groups = check.integer("GroupNorm", "num_groups", num_groups)
        self.num_channels = check.integer("GroupNorm", "num_channels", num_channels)
        self.eps = check.number("GroupNorm", "eps", eps, 0.0, float("inf"))
        if self.num_channels % self.num_groups:
            check.fail(
                f"GroupNorm: num_groups={self.num_groups} expected to divide num_channels, "
                f"got {self.num_channels}"
            )
        self.weight = initialize.full((self.num_channels,), 1.0) if affine else None
        self.bias = initialize.full((self.num_channels,), 0.0) if affine else None

    def forward(self, x: Tensor) -> Tensor:
        return functions.group_norm(x, self.num_groups, self.weight, self.bias, self.eps)

    def describe(self) -> str:
        return (
            f"{self.num_groups}, {self.num_channels}, eps={self.eps}, "
            f"affine={self.weight is not None}"
        )


class _InstanceNorm(Module):
    """y = (x - mean) / sqrt(variance + eps) * weight + bias over each channel of each sample.

    weight, bias: f32[num_features] if `affine`. Running statistics, which PyTorch can track here,
    are not there: every program normalises by the sample's own.
    """

    _axes: ClassVar[str] = ""

    def __init__(self, num_features: int, eps: float = 1e-5, *, affine: bool = False) -> None:
        layer = type(self).__name__
        self.num_features = check.integer(layer, "num_features", num_features)
        self.eps = check.number(layer, "eps", eps, 0.0, float("inf"))
        self.weight = initialize.full((self.num_features,), 1.0) if affine else None
        self.bias = initialize.full((self.num_features,), 0.0) if affine else None

    def forward(self, x: Tensor) -> Tensor:
        check.axes(type(self).__name__, x, self._axes)
        if x.shape[1] != self.num_features:
            check.fail(
                f"{type(self).__name__}: expected {self.num_features} channels, got {x.value.type}"
            )
        return functions.group_norm(x, self.num_features, self.weight, self.bias, self.eps)

    def describe(self) -> str:
        return f"{self.num_features}, eps={self.eps}, affine={self.weight is not None}"


class InstanceNorm1d(_InstanceNorm):
    """Normalisation of each channel of each sample of x[n, c, l]."""

    _axes = "n, c, l"


class InstanceNorm2d(_InstanceNorm):
    """Normalisation of each channel of each sample of x[n, c, h, w]."""

    _axes = "n, c, h, w"


class RMSNorm(Module):
    """y = x / sqrt(mean of x * x + eps) * weight over the last axes, whose extents are
    `normalized_shape` (an integer or several); eps=None is the smallest step of x's dtype from 1.

    weight: f32[normalized_shape] or None.
    """

    def __init__(
        self,
        normalized_shape: int | tuple[int, ...] | list[int],
        eps: float | None = None,
        elementwise_affine: bool = True,
    ) -> None:
        self.normalized_shape = _extents("RMSNorm", normalized_shape)
        self.eps = None if eps is None else check.number("RMSNorm", "eps", eps, 0.0, float("inf"))
        self.weight = initialize.full(self.normalized_shape, 1.0) if elementwise_affine else None

    def forward(self, x: Tensor) -> Tensor:
        return functions.rms_norm(x, self.normalized_shape, self.weight, self.eps)

    def describe(self) -> str:
        return (
            f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.weight is not None}"
        )


def _extents(layer: str, shape: int | tuple[int, ...] | list[int]) -> tuple[int, ...]:
    extents = shape if isinstance(shape, (tuple, list)) else (shape,)
    return tuple(check.integer(layer, "normalized_shape", n) for n in extents)
