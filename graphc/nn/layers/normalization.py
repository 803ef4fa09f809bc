"""Layer, group, root-mean-square and local response normalization."""

from __future__ import annotations

from graphc import functions
from graphc.nn import check, initialize
from graphc.nn.module import Module
from graphc.trace import Tensor


class LayerNorm(Module):
    """Normalize over the last axes, then scale and shift.

    Args:
        normalized_shape: The sizes of the axes to normalize over, one integer or several.
        eps: Added to the variance.
        elementwise_affine: Whether to scale and shift.
        bias: Whether to shift, if `elementwise_affine`.

    Attributes:
        weight: f32 [*normalized_shape] or None; also bias.

    Example:
        >>> graphc.trace(nn.LayerNorm(8), graphc.spec((4, 8))).outputs[0].type.shape
        (4, 8)
    """

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
    """Normalize over groups of channels of each sample, then scale and shift each channel.

    Args:
        num_groups: The number of groups.
        num_channels: The number of channels of x [n, num_channels, ...].
        eps: Added to the variance.
        affine: Whether to scale and shift.
        bias: Whether to shift, if `affine`.

    Attributes:
        weight: f32 [num_channels] or None; also bias.

    Example:
        >>> graphc.trace(nn.GroupNorm(2, 8), graphc.spec((4, 8, 5))).outputs[0].type.shape
        (4, 8, 5)
    """

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
    """Divide by the root mean square over the last axes, then scale.

    Args:
        normalized_shape: The sizes of the axes to normalize over, one integer or several.
        eps: Added to the mean square; None is the machine epsilon of the dtype.
        elementwise_affine: Whether to scale.

    Attributes:
        weight: f32 [*normalized_shape] or None.

    Example:
        >>> graphc.trace(nn.RMSNorm(8), graphc.spec((4, 8))).outputs[0].type.shape
        (4, 8)
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
    """Divide by the mean square over neighbouring channels: x / (k + alpha * mean(x^2))^beta.

    Args:
        size: The number of neighbouring channels; those that do not exist count as 0.
        alpha: The factor of the mean.
        beta: The exponent.
        k: Added to the mean.

    Example:
        >>> graphc.trace(nn.LocalResponseNorm(3), graphc.spec((4, 8, 5))).outputs[0].type.shape
        (4, 8, 5)
    """

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
