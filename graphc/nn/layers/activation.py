"""Activation functions as modules."""

from __future__ import annotations

from graphc import functions
from graphc.nn import check, initialize
from graphc.nn.module import Module
from graphc.trace import Tensor


class _Plain(Module):
    """An activation whose only argument is PyTorch's `inplace`."""

    def __init__(self, inplace: bool = False) -> None:
        pass


class ReLU(_Plain):
    """Rectifier: max(x, 0).

    Args:
        inplace: Accepted for PyTorch's sake; it changes nothing.

    Example:
        >>> graphc.compile(lambda: nn.ReLU()([-1.0, 2.0]))()
        array([0., 2.], dtype=float32)
    """

    def forward(self, x: Tensor) -> Tensor:
        return functions.relu(x)


class Sigmoid(Module):
    """Logistic function: 1 / (1 + e^-x).

    Example:
        >>> graphc.compile(lambda: nn.Sigmoid()([0.0]))()
        array([0.5], dtype=float32)
    """

    def forward(self, x: Tensor) -> Tensor:
        return functions.sigmoid(x)


class Tanh(Module):
    """Hyperbolic tangent.

    Example:
        >>> graphc.compile(lambda: nn.Tanh()([0.0]))()
        array([0.], dtype=float32)
    """

    def forward(self, x: Tensor) -> Tensor:
        return functions.tanh(x)


class SiLU(_Plain):
    """Sigmoid linear unit: x * sigmoid(x).

    Args:
        inplace: Accepted for PyTorch's sake; it changes nothing.

    Example:
        >>> graphc.compile(lambda: nn.SiLU()([0.0]))()
        array([0.], dtype=float32)
    """

    def forward(self, x: Tensor) -> Tensor:
        return functions.silu(x)


class GELU(Module):
    """Gaussian error linear unit: x * Phi(x), with the normal distribution function Phi.

    Args:
        approximate: "none" computes Phi by erf, "tanh" approximates it by tanh.

    Raises:
        GraphError: `approximate` is neither.

    Example:
        >>> graphc.compile(lambda: nn.GELU()([0.0]))()
        array([0.], dtype=float32)
    """

    def __init__(self, approximate: str = "none") -> None:
        if approximate not in ("none", "tanh"):
            check.fail(f"GELU: approximate expected 'none' or 'tanh', got {approximate!r}")
        self.approximate = approximate

    def forward(self, x: Tensor) -> Tensor:
        return functions.gelu(x, self.approximate)

    def describe(self) -> str:
        return f"approximate={self.approximate!r}"


class LeakyReLU(Module):
    """Leaky rectifier: x for x > 0, else negative_slope * x.

    Args:
        negative_slope: The slope for negative numbers.
        inplace: Accepted for PyTorch's sake; it changes nothing.

    Example:
        >>> graphc.compile(lambda: nn.LeakyReLU(0.5)([-1.0, 2.0]))()
        array([-0.5,  2. ], dtype=float32)
    """

    def __init__(self, negative_slope: float = 0.01, inplace: bool = False) -> None:
        self.negative_slope = check.real("LeakyReLU", "negative_slope", negative_slope)

    def forward(self, x: Tensor) -> Tensor:
        return functions.leaky_relu(x, self.negative_slope)

    def describe(self) -> str:
        return f"negative_slope={self.negative_slope}"


class ELU(Module):
    """Exponential linear unit: x for x > 0, else alpha * (e^x - 1).

    Args:
        alpha: The negative of the limit at -inf.
        inplace: Accepted for PyTorch's sake; it changes nothing.

    Example:
        >>> graphc.compile(lambda: nn.ELU(2.0)([-100.0, 1.0]))()
        array([-2.,  1.], dtype=float32)
    """

    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None:
        self.alpha = check.real("ELU", "alpha", alpha)

    def forward(self, x: Tensor) -> Tensor:
        return functions.elu(x, self.alpha)

    def describe(self) -> str:
        return f"alpha={self.alpha}"


class Softplus(Module):
    """Smooth rectifier: log(1 + e^(beta * x)) / beta.

    Args:
        beta: The sharpness.
        threshold: Where beta * x is above it, the result is x itself.

    Example:
        >>> graphc.compile(lambda: nn.Softplus()([30.0]))()
        array([30.], dtype=float32)
    """

    def __init__(self, beta: float = 1.0, threshold: float = 20.0) -> None:
        self.beta = check.real("Softplus", "beta", beta)
        self.threshold = check.real("Softplus", "threshold", threshold)

    def forward(self, x: Tensor) -> Tensor:
        return functions.softplus(x, self.beta, self.threshold)

    def describe(self) -> str:
        return f"beta={self.beta}, threshold={self.threshold}"


class Softsign(Module):
    """Softsign: x / (1 + |x|).

    Example:
        >>> graphc.compile(lambda: nn.Softsign()([-1.0, 1.0]))()
        array([-0.5,  0.5], dtype=float32)
    """

    def forward(self, x: Tensor) -> Tensor:
        return functions.softsign(x)


class LogSigmoid(Module):
    """Logarithm of the sigmoid: log(sigmoid(x)), without overflow.

    Example:
        >>> graphc.compile(lambda: nn.LogSigmoid()([1000.0]))()
        array([0.], dtype=float32)
    """

    def forward(self, x: Tensor) -> Tensor:
        return functions.logsigmoid(x)


class Mish(_Plain):
    """Mish: x * tanh(log(1 + e^x)).

    Args:
        inplace: Accepted for PyTorch's sake; it changes nothing.

    Example:
        >>> graphc.compile(lambda: nn.Mish()([0.0]))()
        array([0.], dtype=float32)
    """

    def forward(self, x: Tensor) -> Tensor:
        return functions.mish(x)


class SELU(_Plain):
    """Scaled ELU, which keeps mean 0 and variance 1: 1.0507 * elu(x, alpha=1.6733).

    Args:
        inplace: Accepted for PyTorch's sake; it changes nothing.

    Example:
        >>> graphc.compile(lambda: nn.SELU()([0.0, 1.0]))()
        array([0.      , 1.050701], dtype=float32)
    """

    def forward(self, x: Tensor) -> Tensor:
        return functions.selu(x)


class CELU(Module):
    """Continuously differentiable ELU: x for x > 0, else alpha * (e^(x / alpha) - 1).

    Args:
        alpha: The negative of the limit at -inf.
        inplace: Accepted for PyTorch's sake; it changes nothing.

    Example:
        >>> graphc.compile(lambda: nn.CELU(2.0)([-100.0, 1.0]))()
        array([-2.,  1.], dtype=float32)
    """

    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None:
        self.alpha = check.real("CELU", "alpha", alpha)

    def forward(self, x: Tensor) -> Tensor:
        return functions.celu(x, self.alpha)

    def describe(self) -> str:
        return f"alpha={self.alpha}"


class PReLU(Module):
    """Leaky rectifier with learned slopes: x for x > 0, else weight * x.

    Args:
        num_parameters: The number of slopes: 1, or one per channel (axis 1).
        init: The initial slope.

    Attributes:
        weight: f32 [num_parameters].

    Example:
        >>> graphc.compile(nn.PReLU(), graphc.spec(2))(np.array([-1, 2], np.float32))
        array([-0.25,  2.  ], dtype=float32)
    """

    def __init__(self, num_parameters: int = 1, init: float = 0.25) -> None:
        self.num_parameters = check.integer("PReLU", "num_parameters", num_parameters)
        self.weight = initialize.full((self.num_parameters,), check.real("PReLU", "init", init))

    def forward(self, x: Tensor) -> Tensor:
        return functions.prelu(x, self.weight)

    def describe(self) -> str:
        return f"num_parameters={self.num_parameters}"


class RReLU(Module):
    """Leaky rectifier with random slopes: x for x > 0, else a * x.

    In training, each slope is drawn between `lower` and `upper`; else it is their mean.

    Args:
        lower: The smallest slope.
        upper: The largest slope.
        inplace: Accepted for PyTorch's sake; it changes nothing.

    Example:
        >>> graphc.compile(nn.RReLU(0.25, 0.75), graphc.spec(2))(np.array([-1, 2], np.float32))
        array([-0.5,  2. ], dtype=float32)
    """

    def __init__(self, lower: float = 1 / 8, upper: float = 1 / 3, inplace: bool = False) -> None:
        self.lower = check.real("RReLU", "lower", lower)
        self.upper = check.real("RReLU", "upper", upper)

    def forward(self, x: Tensor) -> Tensor:
        return functions.rrelu(x, self.lower, self.upper, self.training)

    def describe(self) -> str:
        return f"lower={self.lower}, upper={self.upper}"
