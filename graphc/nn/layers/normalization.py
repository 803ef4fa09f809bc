"""Normalisation over features, without statistics that outlive a call."""

from __future__ import annotations

from graphc import functions
from graphc.nn import check, initialize
from graphc.nn.module import Module
from graphc.trace import Tensor


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
        self,
        num_groups: int,
        num_channels: int,
        eps: float = 1e-5,
        affine: bool = True,
        *,
        bias: bool = True,
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
        self.bias = initialize.full((self.num_channels,), 0.0) if affine and bias else None

    def forward(self, x: Tensor) -> Tensor:
        return functions.group_norm(x, self.num_groups, self.weight, self.bias, self.eps)

    def describe(self) -> str:
        return (
            f"{self.num_groups}, {self.num_channels}, eps={self.eps}, "
            f"affine={self.weight is not None}"
        )


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


class LocalResponseNorm(Module):
    """y = x / (k + alpha * mean of x * x over `size` channels around each)^beta; channels that do
    not exist count as 0."""

    def __init__(self, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> None:
        self.size = check.integer("LocalResponseNorm", "size", size)
        self.alpha = check.real("LocalResponseNorm", "alpha", alpha)
        self.beta = check.real("LocalResponseNorm", "beta", beta)
        self.k = check.real("LocalResponseNorm", "k", k)

    def forward(self, x: Tensor) -> Tensor:
        return functions.local_response_norm(x, self.size, self.alpha, self.beta, self.k)

    def describe(self) -> str:
        return f"{self.size}, alpha={self.alpha}, beta={self.beta}, k={self.k}"


def _extents(layer: str, shape: int | tuple[int, ...] | list[int]) -> tuple[int, ...]:
    extents = shape if isinstance(shape, (tuple, list)) else (shape,)
    return tuple(check.integer(layer, "normalized_shape", n) for n in extents)
