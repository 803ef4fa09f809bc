"""Softmax and its variants as modules."""

from __future__ import annotations

from graphc import functions
from graphc.nn import check
from graphc.nn.module import Module
from graphc.trace import Tensor


class GLU(Module):
    """Gated linear unit: the first half of x along an axis times the sigmoid of the second half.

    Args:
        dim: The axis to split.

    Example:
        >>> graphc.compile(lambda: nn.GLU()([4.0, 0.0]))()
        array([2.], dtype=float32)
    """

    def __init__(self, dim: int = -1) -> None:
        self.dim = check.axis("GLU", "dim", dim)

    def forward(self, x: Tensor) -> Tensor:
        return functions.glu(x, axis=self.dim)

    def describe(self) -> str:
        return f"dim={self.dim}"


class Softmax(Module):
    """Normalize exponentials along an axis: e^x / sum(e^x).

    Args:
        dim: The axis along which the results add up to 1.

    Example:
        >>> graphc.compile(lambda: nn.Softmax(dim=0)([0.0, 0.0]))()
        array([0.5, 0.5], dtype=float32)
    """

    def __init__(self, dim: int) -> None:
        self.dim = check.axis("Softmax", "dim", dim)

    def forward(self, x: Tensor) -> Tensor:
        return functions.softmax(x, axis=self.dim)

    def describe(self) -> str:
        return f"dim={self.dim}"


class LogSoftmax(Module):
    """Logarithm of softmax: x - log(sum(e^x)).

    Args:
        dim: The axis along which probabilities add up to 1.

    Example:
        >>> graphc.compile(lambda: nn.LogSoftmax(dim=0)([1000.0, 0.0]))()
        array([    0., -1000.], dtype=float32)
    """

    def __init__(self, dim: int) -> None:
        self.dim = check.axis("LogSoftmax", "dim", dim)

    def forward(self, x: Tensor) -> Tensor:
        return functions.log_softmax(x, axis=self.dim)

    def describe(self) -> str:
        return f"dim={self.dim}"


class Softmin(Module):
    """Normalize exponentials of the negated input along an axis: softmax(-x).

    Args:
        dim: The axis along which the results add up to 1.

    Example:
        >>> graphc.compile(lambda: nn.Softmin(dim=0)([0.0, 0.0]))()
        array([0.5, 0.5], dtype=float32)
    """

    def __init__(self, dim: int) -> None:
        self.dim = check.axis("Softmin", "dim", dim)

    def forward(self, x: Tensor) -> Tensor:
        return functions.softmin(x, axis=self.dim)

    def describe(self) -> str:
        return f"dim={self.dim}"


class Softmax2d(Module):
    """Normalize exponentials over the channels of images [n, c, h, w].

    Example:
        >>> graphc.trace(nn.Softmax2d(), graphc.spec((8, 3, 4, 4))).outputs[0].type.shape
        (8, 3, 4, 4)
    """

    def forward(self, x: Tensor) -> Tensor:
        check.axes("Softmax2d", x, "n, c, h, w")
        return functions.softmax(x, axis=1)
