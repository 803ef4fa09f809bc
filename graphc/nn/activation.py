"""Activations as layers, and the other layers without parameters."""

from __future__ import annotations

from graphc import functions
from graphc.nn import check
from graphc.nn.module import Module
from graphc.trace import Tensor


class Identity(Module):
    """y = x."""

    def forward(self, x: Tensor) -> Tensor:
        return x


class ReLU(Module):
    """y = max(x, 0)."""

    def forward(self, x: Tensor) -> Tensor:
        return functions.relu(x)


class Sigmoid(Module):
    """y = 1 / (1 + exp(-x))."""

    def forward(self, x: Tensor) -> Tensor:
        return functions.sigmoid(x)


class Tanh(Module):
    """y = tanh(x)."""

    def forward(self, x: Tensor) -> Tensor:
        return functions.tanh(x)


class SiLU(Module):
    """y = x * sigmoid(x)."""

    def forward(self, x: Tensor) -> Tensor:
        return functions.silu(x)


class GELU(Module):
    """y = x * Phi(x); `approximate` is "none" (erf) or "tanh"."""

    def __init__(self, approximate: str = "none") -> None:
        if approximate not in ("none", "tanh"):
            check.fail(f"GELU: approximate expected 'none' or 'tanh', got {approximate!r}")
        self.approximate = approximate

    def forward(self, x: Tensor) -> Tensor:
        return functions.gelu(x, self.approximate)

    def describe(self) -> str:
        return f"approximate={self.approximate!r}"


class LeakyReLU(Module):
    """y = x where x > 0, negative_slope * x elsewhere."""

    def __init__(self, negative_slope: float = 0.01) -> None:
        self.negative_slope = check.real("LeakyReLU", "negative_slope", negative_slope)

    def forward(self, x: Tensor) -> Tensor:
        return functions.leaky_relu(x, self.negative_slope)

    def describe(self) -> str:
        return f"negative_slope={self.negative_slope}"


class ELU(Module):
    """y = x where x > 0, alpha * (exp(x) - 1) elsewhere."""

    def __init__(self, alpha: float = 1.0) -> None:
        self.alpha = check.real("ELU", "alpha", alpha)

    def forward(self, x: Tensor) -> Tensor:
        return functions.elu(x, self.alpha)

    def describe(self) -> str:
        return f"alpha={self.alpha}"


class Softplus(Module):
    """y = log(1 + exp(beta * x)) / beta; x itself where beta * x > threshold."""

    def __init__(self, beta: float = 1.0, threshold: float = 20.0) -> None:
        self.beta = check.real("Softplus", "beta", beta)
        self.threshold = check.real("Softplus", "threshold", threshold)

    def forward(self, x: Tensor) -> Tensor:
        return functions.softplus(x, self.beta, self.threshold)

    def describe(self) -> str:
        return f"beta={self.beta}, threshold={self.threshold}"


class Softmax(Module):
    """y = exp(x) / sum of exp(x) along the axis `dim`."""

    def __init__(self, dim: int) -> None:
        self.dim = check.axis("Softmax", "dim", dim)

    def forward(self, x: Tensor) -> Tensor:
        return functions.softmax(x, axis=self.dim)

    def describe(self) -> str:
        return f"dim={self.dim}"


class LogSoftmax(Module):
    """y = x - log(sum of exp(x) along the axis `dim`)."""

    def __init__(self, dim: int) -> None:
        self.dim = check.axis("LogSoftmax", "dim", dim)

    def forward(self, x: Tensor) -> Tensor:
        return functions.log_softmax(x, axis=self.dim)

    def describe(self) -> str:
        return f"dim={self.dim}"


class Dropout(Module):
    """In training programs y = x / (1 - p), or 0 with probability `p` for each element; else x."""

    def __init__(self, p: float = 0.5) -> None:
        self.p = check.number("Dropout", "p", p, 0.0, 1.0)

    def forward(self, x: Tensor) -> Tensor:
        return functions.dropout(x, self.p)

    def describe(self) -> str:
        return f"p={self.p}"


class Flatten(Module):
    """The axes from `start_dim` to `end_dim` as one; the batch is kept by default."""

    def __init__(self, start_dim: int = 1, end_dim: int = -1) -> None:
        self.start_dim = check.axis("Flatten", "start_dim", start_dim)
        self.end_dim = check.axis("Flatten", "end_dim", end_dim)

    def forward(self, x: Tensor) -> Tensor:
        return functions.flatten(x, self.start_dim, self.end_dim)

    def describe(self) -> str:
        return f"start_dim={self.start_dim}, end_dim={self.end_dim}"
