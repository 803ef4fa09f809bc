"""Activations as layers.

`inplace` is PyTorch's and changes nothing: where memory is used again is the planner's to say.
"""

from __future__ import annotations

from graphc import functions
from graphc.nn import check, initialize
from graphc.nn.module import Module
from graphc.trace import Tensor


class _Plain(Module):
    """An activation without arguments but `inplace`, which changes nothing."""

    def __init__(self, inplace: bool = False) -> None:
        pass


class ReLU(_Plain):
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


class SiLU(_Plain):
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

    def __init__(self, negative_slope: float = 0.01, inplace: bool = False) -> None:
        self.negative_slope = check.real("LeakyReLU", "negative_slope", negative_slope)

    def forward(self, x: Tensor) -> Tensor:
        return functions.leaky_relu(x, self.negative_slope)

    def describe(self) -> str:
        return f"negative_slope={self.negative_slope}"


class ELU(Module):
    """y = x where x > 0, alpha * (exp(x) - 1) elsewhere."""

    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None:
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


class ReLU6(_Plain):
    """y = min(max(x, 0), 6)."""

    def forward(self, x: Tensor) -> Tensor:
        return functions.relu6(x)


class Hardtanh(Module):
    """y = min(max(x, min_val), max_val)."""

    def __init__(self, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> None:
        self.min_val = check.real("Hardtanh", "min_val", min_val)
        self.max_val = check.real("Hardtanh", "max_val", max_val)

    def forward(self, x: Tensor) -> Tensor:
        return functions.hardtanh(x, self.min_val, self.max_val)

    def describe(self) -> str:
        return f"min_val={self.min_val}, max_val={self.max_val}"


class Hardsigmoid(_Plain):
    """y = x / 6 + 1 / 2, at least 0 and at most 1."""

    def forward(self, x: Tensor) -> Tensor:
        return functions.hardsigmoid(x)


class Hardswish(_Plain):
    """y = x * hardsigmoid(x)."""

    def forward(self, x: Tensor) -> Tensor:
        return functions.hardswish(x)


class Hardshrink(Module):
    """y = 0 where |x| <= lambd, x elsewhere."""

    def __init__(self, lambd: float = 0.5) -> None:
        self.lambd = check.real("Hardshrink", "lambd", lambd)

    def forward(self, x: Tensor) -> Tensor:
        return functions.hardshrink(x, self.lambd)

    def describe(self) -> str:
        return f"lambd={self.lambd}"


class Softshrink(Module):
    """y = x moved towards 0 by lambd; 0 where |x| <= lambd."""

    def __init__(self, lambd: float = 0.5) -> None:
        self.lambd = check.real("Softshrink", "lambd", lambd)

    def forward(self, x: Tensor) -> Tensor:
        return functions.softshrink(x, self.lambd)

    def describe(self) -> str:
        return f"lambd={self.lambd}"


class Tanhshrink(Module):
    """y = x - tanh(x)."""

    def forward(self, x: Tensor) -> Tensor:
        return functions.tanhshrink(x)


class Threshold(Module):
    """y = x where x > threshold, value elsewhere."""

    def __init__(self, threshold: float, value: float, inplace: bool = False) -> None:
        self.threshold = check.real("Threshold", "threshold", threshold)
        self.value = check.real("Threshold", "value", value)

    def forward(self, x: Tensor) -> Tensor:
        return functions.threshold(x, self.threshold, self.value)

    def describe(self) -> str:
        return f"threshold={self.threshold}, value={self.value}"


class Softsign(Module):
    """y = x / (1 + |x|)."""

    def forward(self, x: Tensor) -> Tensor:
        return functions.softsign(x)


class LogSigmoid(Module):
    """y = log(sigmoid(x))."""

    def forward(self, x: Tensor) -> Tensor:
        return functions.logsigmoid(x)


class Mish(_Plain):
    """y = x * tanh(log(1 + exp(x)))."""

    def forward(self, x: Tensor) -> Tensor:
        return functions.mish(x)


class SELU(_Plain):
    """y = 1.0507 * (x where x > 0, 1.6733 * (exp(x) - 1) elsewhere)."""

    def forward(self, x: Tensor) -> Tensor:
        return functions.selu(x)


class CELU(Module):
    """y = x where x > 0, alpha * (exp(x / alpha) - 1) elsewhere."""

    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None:
        self.alpha = check.real("CELU", "alpha", alpha)

    def forward(self, x: Tensor) -> Tensor:
        return functions.celu(x, self.alpha)

    def describe(self) -> str:
        return f"alpha={self.alpha}"


class PReLU(Module):
    """y = x where x > 0, weight * x elsewhere.

    weight: f32[num_parameters], one for all or one for each channel, the second axis.
    """

    def __init__(self, num_parameters: int = 1, init: float = 0.25) -> None:
        self.num_parameters = check.integer("PReLU", "num_parameters", num_parameters)
        self.weight = initialize.full((self.num_parameters,), check.real("PReLU", "init", init))

    def forward(self, x: Tensor) -> Tensor:
        return functions.prelu(x, self.weight)

    def describe(self) -> str:
        return f"num_parameters={self.num_parameters}"


class GLU(Module):
    """y = the first half of x along the axis `dim` times the sigmoid of the second."""

    def __init__(self, dim: int = -1) -> None:
        self.dim = check.axis("GLU", "dim", dim)

    def forward(self, x: Tensor) -> Tensor:
        return functions.glu(x, axis=self.dim)

    def describe(self) -> str:
        return f"dim={self.dim}"


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


class Softmin(Module):
    """y = exp(-x) / sum of exp(-x) along the axis `dim`."""

    def __init__(self, dim: int) -> None:
        self.dim = check.axis("Softmin", "dim", dim)

    def forward(self, x: Tensor) -> Tensor:
        return functions.softmin(x, axis=self.dim)

    def describe(self) -> str:
        return f"dim={self.dim}"


class Softmax2d(Module):
    """y = exp(x) / sum of exp(x) over the channels of x[n, c, h, w]."""

    def forward(self, x: Tensor) -> Tensor:
        check.axes("Softmax2d", x, "n, c, h, w")
        return functions.softmax(x, axis=1)


class RReLU(Module):
    """y = x where x > 0, a * x elsewhere: in training programs a is drawn between `lower` and
    `upper` for each element, in others it is their mean."""

    def __init__(self, lower: float = 1 / 8, upper: float = 1 / 3, inplace: bool = False) -> None:
        self.lower = check.real("RReLU", "lower", lower)
        self.upper = check.real("RReLU", "upper", upper)

    def forward(self, x: Tensor) -> Tensor:
        return functions.rrelu(x, self.lower, self.upper, self.training)

    def describe(self) -> str:
        return f"lower={self.lower}, upper={self.upper}"
