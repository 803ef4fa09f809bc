"""Activation functions with thresholds, limits and shrinkage as modules."""

from __future__ import annotations

from graphc import functions
from graphc.nn import check
from graphc.nn.layers.activation import _Plain
from graphc.nn.module import Module
from graphc.trace import Tensor


class ReLU6(_Plain):
    """Rectifier limited at 6: min(max(x, 0), 6).

    Args:
        inplace: Accepted for PyTorch's sake; it changes nothing.

    Example:
        >>> graphc.compile(lambda: nn.ReLU6()([-1.0, 8.0]))()
        array([0., 6.], dtype=float32)
    """

    def forward(self, x: Tensor) -> Tensor:
        return functions.relu6(x)


class Hardtanh(Module):
    """Limit elements: min(max(x, min_val), max_val).

    Args:
        min_val: The lower limit.
        max_val: The upper limit.
        inplace: Accepted for PyTorch's sake; it changes nothing.

    Example:
        >>> graphc.compile(lambda: nn.Hardtanh()([-2.0, 0.5]))()
        array([-1. ,  0.5], dtype=float32)
    """

    def __init__(self, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> None:
        self.min_val = check.real("Hardtanh", "min_val", min_val)
        self.max_val = check.real("Hardtanh", "max_val", max_val)

    def forward(self, x: Tensor) -> Tensor:
        return functions.hardtanh(x, self.min_val, self.max_val)

    def describe(self) -> str:
        return f"min_val={self.min_val}, max_val={self.max_val}"


class Hardsigmoid(_Plain):
    """Piecewise linear sigmoid: min(max(x / 6 + 1 / 2, 0), 1).

    Args:
        inplace: Accepted for PyTorch's sake; it changes nothing.

    Example:
        >>> graphc.compile(lambda: nn.Hardsigmoid()([-9.0, 0.0]))()
        array([0. , 0.5], dtype=float32)
    """

    def forward(self, x: Tensor) -> Tensor:
        return functions.hardsigmoid(x)


class Hardswish(_Plain):
    """Piecewise quadratic SiLU: x * hardsigmoid(x).

    Args:
        inplace: Accepted for PyTorch's sake; it changes nothing.

    Example:
        >>> graphc.compile(lambda: nn.Hardswish()([-9.0, 9.0]))()
        array([-0.,  9.], dtype=float32)
    """

    def forward(self, x: Tensor) -> Tensor:
        return functions.hardswish(x)


class Hardshrink(Module):
    """Hard shrinkage: 0 where |x| <= lambd, else x.

    Args:
        lambd: The threshold.

    Example:
        >>> graphc.compile(lambda: nn.Hardshrink()([-2.0, 0.2]))()
        array([-2.,  0.], dtype=float32)
    """

    def __init__(self, lambd: float = 0.5) -> None:
        self.lambd = check.real("Hardshrink", "lambd", lambd)

    def forward(self, x: Tensor) -> Tensor:
        return functions.hardshrink(x, self.lambd)

    def describe(self) -> str:
        return f"lambd={self.lambd}"


class Softshrink(Module):
    """Soft shrinkage: move x towards 0 by `lambd`; 0 where |x| <= lambd.

    Args:
        lambd: The threshold, not negative.

    Example:
        >>> graphc.compile(lambda: nn.Softshrink()([-2.0, 0.2]))()
        array([-1.5,  0. ], dtype=float32)
    """

    def __init__(self, lambd: float = 0.5) -> None:
        self.lambd = check.real("Softshrink", "lambd", lambd)

    def forward(self, x: Tensor) -> Tensor:
        return functions.softshrink(x, self.lambd)

    def describe(self) -> str:
        return f"lambd={self.lambd}"


class Tanhshrink(Module):
    """Tanh shrinkage: x - tanh(x).

    Example:
        >>> graphc.compile(lambda: nn.Tanhshrink()([0.0]))()
        array([0.], dtype=float32)
    """

    def forward(self, x: Tensor) -> Tensor:
        return functions.tanhshrink(x)


class Threshold(Module):
    """Replace elements that are not above a threshold.

    Args:
        threshold: The threshold.
        value: The replacement.
        inplace: Accepted for PyTorch's sake; it changes nothing.

    Example:
        >>> graphc.compile(lambda: nn.Threshold(2.0, 0.0)([1.0, 3.0]))()
        array([0., 3.], dtype=float32)
    """

    def __init__(self, threshold: float, value: float, inplace: bool = False) -> None:
        self.threshold = check.real("Threshold", "threshold", threshold)
        self.value = check.real("Threshold", "value", value)

    def forward(self, x: Tensor) -> Tensor:
        return functions.threshold(x, self.threshold, self.value)

    def describe(self) -> str:
        return f"threshold={self.threshold}, value={self.value}"
