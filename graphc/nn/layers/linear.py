"""Linear and bilinear layers."""

from __future__ import annotations

from graphc import functions
from graphc.nn import check, initialize
from graphc.nn.module import Module
from graphc.trace import Tensor


class Linear(Module):
    """Linear map: y [..., out_features] = x [..., in_features] @ weight.T + bias.

    Args:
        in_features: The number of input features.
        out_features: The number of output features.
        bias: Whether to add a bias.

    Attributes:
        weight: f32 [out_features, in_features].
        bias: f32 [out_features] or None.

    Example:
        >>> graphc.trace(nn.Linear(3, 2), graphc.spec((4, 3))).outputs[0].type.shape
        (4, 2)
    """

    def __init__(self, in_features: int, out_features: int, bias: bool = True) -> None:
        self.in_features = check.integer("Linear", "in_features", in_features)
        self.out_features = check.integer("Linear", "out_features", out_features)
        self.weight = initialize.uniform((self.out_features, self.in_features), self.in_features)
        self.bias = initialize.uniform((self.out_features,), self.in_features) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        return functions.linear(x, self.weight, self.bias)

    def describe(self) -> str:
        return f"{self.in_features}, {self.out_features}, bias={self.bias is not None}"


class Bilinear(Module):
    """Bilinear map: y[..., k] = sum of x1[..., i] * weight[k, i, j] * x2[..., j], plus bias[k].

    Args:
        in1_features: The number of features of x1.
        in2_features: The number of features of x2.
        out_features: The number of output features.
        bias: Whether to add a bias.

    Attributes:
        weight: f32 [out_features, in1_features, in2_features].
        bias: f32 [out_features] or None.

    Example:
        >>> specs = graphc.spec((4, 3)), graphc.spec((4, 5))
        >>> graphc.trace(nn.Bilinear(3, 5, 2), *specs).outputs[0].type.shape
        (4, 2)
    """

    def __init__(
        self, in1_features: int, in2_features: int, out_features: int, bias: bool = True
    ) -> None:
        self.in1_features = check.integer("Bilinear", "in1_features", in1_features)
        self.in2_features = check.integer("Bilinear", "in2_features", in2_features)
        self.out_features = check.integer("Bilinear", "out_features", out_features)
        shape = (self.out_features, self.in1_features, self.in2_features)
        self.weight = initialize.uniform(shape, self.in1_features)
        self.bias = initialize.uniform(shape[:1], self.in1_features) if bias else None

    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        return functions.bilinear(x1, x2, self.weight, self.bias)

    def describe(self) -> str:
        return (
            f"{self.in1_features}, {self.in2_features}, {self.out_features}, "
            f"bias={self.bias is not None}"
        )
