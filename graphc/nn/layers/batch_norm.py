"""Batch and instance normalization, with running statistics."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from graphc import functions
from graphc.nn import check, initialize
from graphc.nn.buffer import Buffer
from graphc.nn.module import Module
from graphc.trace import Tensor, current_builder


class _ChannelNorm(Module):
    """Base of norms with parameters and running statistics per channel."""

    _axes: ClassVar[tuple[str, ...]] = ()

    def _set_state(
        self,
        num_features: int,
        eps: float,
        momentum: float | None,
        affine: bool,
        track_running_stats: bool,
        bias: bool,
    ) -> None:
        layer = type(self).__name__
        shape = (check.integer(layer, "num_features", num_features),)
        self.num_features = shape[0]
        self.eps = check.number(layer, "eps", eps, 0.0, float("inf"))
        self.momentum = (
            None if momentum is None else check.number(layer, "momentum", momentum, 0, 1)
        )
        self.weight = initialize.full(shape, 1.0) if affine else None
        self.bias = initialize.full(shape, 0.0) if affine and bias else None
        self.running_mean = self.running_var = self.num_batches_tracked = None
        if track_running_stats:
            self.running_mean = Buffer(np.zeros(shape, np.float32))
            self.running_var = Buffer(np.ones(shape, np.float32))
            self.num_batches_tracked = Buffer(np.int64(0))

    def describe(self) -> str:
        return (
            f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, "
            f"affine={self.weight is not None}, "
            f"track_running_stats={self.running_mean is not None}"
        )


class _BatchNorm(_ChannelNorm):
    """Base of batch norms: y = (x - mean) / sqrt(variance + eps) * weight + bias per channel.

    In training, mean and biased variance are those of the batch, and the running ones are updated:
    running += momentum * (batch - running), with the unbiased variance. In evaluation the running
    ones are used.
    """

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        *,
        bias: bool = True,
    ) -> None:
        self._set_state(num_features, eps, momentum, affine, track_running_stats, bias)

    def forward(self, x: Tensor) -> Tensor:
        check.axes(type(self).__name__, x, *self._axes)
        tracked = self.num_batches_tracked is not None
        return functions.batch_norm(
            x,
            self.running_mean,
            self.running_var,
            self.weight,
            self.bias,
            training=self.training if tracked else True,
            momentum=self._count() if tracked and self.training else 0.0,
            eps=self.eps,
        )

    def _count(self) -> float | Tensor:
        """Count the batch and return its weight in the running statistics."""
        assert self.num_batches_tracked is not None
        following = functions.as_tensor(self.num_batches_tracked) + 1
        builder = current_builder()
        builder.update(builder.read_state(self.num_batches_tracked.state), following)
        return 1.0 / following.astype("float32") if self.momentum is None else self.momentum


class BatchNorm1d(_BatchNorm):
    """Batch normalization of x [n, c] or [n, c, l]; see `BatchNorm2d`.

    Example:
        >>> graphc.trace(nn.BatchNorm1d(3), graphc.spec((8, 3))).outputs[0].type.shape
        (8, 3)
    """

    _axes = ("n, c", "n, c, l")


class BatchNorm2d(_BatchNorm):
    """Batch normalization of images [n, c, h, w]: each channel gets mean 0 and variance 1.

    In training, the statistics are those of the batch, which also update the running ones; in
    evaluation the running ones are used.

    Args:
        num_features: The number of channels.
        eps: Added to the variance.
        momentum: The weight of a batch in the running statistics; None averages over all batches.
        affine: Whether to scale and shift each channel.
        track_running_stats: Whether there are running statistics; else those of the batch are used.
        bias: Whether to shift each channel, if `affine`.

    Attributes:
        weight: f32 [num_features] or None; also bias.
        running_mean: f32 [num_features] or None; also running_var.
        num_batches_tracked: i64 [] or None.

    Example:
        >>> graphc.trace(nn.BatchNorm2d(3), graphc.spec((8, 3, 4, 4))).outputs[0].type.shape
        (8, 3, 4, 4)
    """

    _axes = ("n, c, h, w",)


class BatchNorm3d(_BatchNorm):
    """Batch normalization of volumes [n, c, d, h, w]; see `BatchNorm2d`.

    Example:
        >>> graphc.trace(nn.BatchNorm3d(3), graphc.spec((8, 3, 4, 4, 4))).outputs[0].type.shape
        (8, 3, 4, 4, 4)
    """

    _axes = ("n, c, d, h, w",)


class _InstanceNorm(_ChannelNorm):
    """y = (x - mean) / sqrt(variance + eps) * weight + bias over each channel of each sample.

    With `track_running_stats` training programs move the running statistics by `momentum` towards
    the means over the samples, and other programs normalise by the running ones.
    """

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float = 0.1,
        affine: bool = False,
        track_running_stats: bool = False,
        *,
        bias: bool = True,
    ) -> None:
        self._set_state(num_features, eps, momentum, affine, track_running_stats, bias)

    def forward(self, x: Tensor) -> Tensor:
        check.axes(type(self).__name__, x, *self._axes)
        if x.shape[1] != self.num_features:
            check.fail(
                f"{type(self).__name__}: expected {self.num_features} channels, got {x.value.type}"
            )
        return functions.instance_norm(
            x,
            self.running_mean,
            self.running_var,
            self.weight,
            self.bias,
            self.running_mean is None or self.training,
            momentum=0.0 if self.momentum is None else self.momentum,
            eps=self.eps,
        )


class InstanceNorm1d(_InstanceNorm):
    """Normalization of each channel of each sequence [n, c, l]; see `InstanceNorm2d`.

    Example:
        >>> graphc.trace(nn.InstanceNorm1d(3), graphc.spec((8, 3, 4))).outputs[0].type.shape
        (8, 3, 4)
    """

    _axes = ("n, c, l",)


class InstanceNorm2d(_InstanceNorm):
    """Normalization of each channel of each image [n, c, h, w] to mean 0 and variance 1.

    Args:
        num_features: The number of channels.
        eps: Added to the variance.
        momentum: The weight of a batch in the running statistics.
        affine: Whether to scale and shift each channel.
        track_running_stats: Whether there are running statistics, which evaluation uses.
        bias: Whether to shift each channel, if `affine`.

    Example:
        >>> graphc.trace(nn.InstanceNorm2d(3), graphc.spec((8, 3, 4, 4))).outputs[0].type.shape
        (8, 3, 4, 4)
    """

    _axes = ("n, c, h, w",)


class InstanceNorm3d(_InstanceNorm):
    """Normalization of each channel of each volume [n, c, d, h, w]; see `InstanceNorm2d`.

    Example:
        >>> graphc.trace(nn.InstanceNorm3d(3), graphc.spec((2, 3, 4, 4, 4))).outputs[0].type.shape
        (2, 3, 4, 4, 4)
    """

    _axes = ("n, c, d, h, w",)
