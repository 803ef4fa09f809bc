"""Normalisation of channels, with running statistics."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from graphc import functions
from graphc.nn import check, initialize
from graphc.nn.buffer import Buffer
from graphc.nn.module import Module
from graphc.trace import Tensor, current_builder


class _ChannelNorm(Module):
    """Parameters and running statistics of each of `num_features` channels.

    weight, bias (of them those that `affine` and `bias` ask for) and, with `track_running_stats`,
    running_mean, running_var: f32[num_features]; num_batches_tracked: i64[].
    """

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
    """y = (x - mean) / sqrt(variance + eps) * weight + bias for each channel, the second axis.

    In training programs mean and (biased) variance are those of the batch, and the running ones
    move towards it: running += momentum * (batch's - running), with the unbiased variance; with
    momentum=None they are the averages over all batches. Other programs normalise by the running
    ones. Without `track_running_stats` every program uses the batch's.
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
        """Add 1 to the number of batches; the weight of this batch in the running statistics."""
        assert self.num_batches_tracked is not None
        following = functions.as_tensor(self.num_batches_tracked) + 1
        builder = current_builder()
        builder.update(builder.read_state(self.num_batches_tracked.state), following)
        return 1.0 / following.astype("float32") if self.momentum is None else self.momentum


class BatchNorm1d(_BatchNorm):
    """Batch normalisation of x[n, c] or x[n, c, l]."""

    _axes = ("n, c", "n, c, l")


class BatchNorm2d(_BatchNorm):
    """Batch normalisation of x[n, c, h, w]."""

    _axes = ("n, c, h, w",)


class BatchNorm3d(_BatchNorm):
    """Batch normalisation of x[n, c, d, h, w]."""

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
    """Normalisation of each channel of each sample of x[n, c, l]."""

    _axes = ("n, c, l",)


class InstanceNorm2d(_InstanceNorm):
    """Normalisation of each channel of each sample of x[n, c, h, w]."""

    _axes = ("n, c, h, w",)


class InstanceNorm3d(_InstanceNorm):
    """Normalisation of each channel of each sample of x[n, c, d, h, w]."""

    _axes = ("n, c, d, h, w",)
