"""Activation functions, with the names and defaults of torch.nn.functional and `axis` for `dim`."""

from __future__ import annotations

import math

from graphc.functions.array.elementwise.elementwise import (
    abs,
    add,
    divide,
    equal,
    erf,
    exp,
    expm1,
    greater,
    less_equal,
    log1p,
    maximum,
    minimum,
    multiply,
    negative,
    sigmoid,
    sign,
    stop_gradient,
    subtract,
    tanh,
    where,
)
from graphc.functions.array.elementwise.precision import in_float32
from graphc.functions.array.shape.shapes import reshape
from graphc.functions.array.tensors import (
    as_tensor,
    axis_of,
    error,
    floating,
)
from graphc.ir import TensorLike
from graphc.trace import Tensor


@in_float32
def gelu(x: TensorLike, approximate: str = "none") -> Tensor:
    """Gaussian error linear unit: x * Phi(x), with the normal distribution function Phi.

    Args:
        x: The input.
        approximate: "none" computes Phi by erf, "tanh" approximates it by tanh.

    Raises:
        GraphError: `approximate` is neither.

    Example:
        >>> graphc.compile(lambda: graphc.gelu([-1.0, 0.0, 1.0], approximate="tanh"))().round(3)
        array([-0.159,  0.   ,  0.841], dtype=float32)
    """
    tensor = floating(x)
    if approximate == "none":
        inner = erf(multiply(tensor, math.sqrt(0.5)))
    elif approximate == "tanh":
        cubic = multiply(multiply(multiply(tensor, tensor), tensor), 0.044715)
        inner = tanh(multiply(add(tensor, cubic), math.sqrt(2 / math.pi)))
    else:
        raise error(f'gelu: approximate expected "none" or "tanh", got {approximate!r}')
    return multiply(multiply(tensor, 0.5), add(inner, 1))


@in_float32
def silu(x: TensorLike) -> Tensor:
    """Sigmoid linear unit: x * sigmoid(x)."""
    tensor = floating(x)
    return multiply(tensor, sigmoid(tensor))


@in_float32
def leaky_relu(x: TensorLike, negative_slope: float = 0.01) -> Tensor:
    """Leaky rectifier: x for x > 0, else negative_slope * x.

    Args:
        x: The input.
        negative_slope: The slope for negative numbers.

    Example:
        >>> graphc.compile(lambda: graphc.leaky_relu([-1.0, 1.0], 0.5))()
        array([-0.5,  1. ], dtype=float32)
    """
    tensor = floating(x)
    return where(greater(tensor, 0), tensor, multiply(tensor, negative_slope))


@in_float32
def elu(x: TensorLike, alpha: float = 1.0) -> Tensor:
    """Exponential linear unit: x for x > 0, else alpha * (e^x - 1).

    Args:
        x: The input.
        alpha: The negative of the limit at -inf.

    Example:
        >>> graphc.compile(lambda: graphc.elu([-100.0, 1.0], alpha=2.0))()
        array([-2.,  1.], dtype=float32)
    """
    tensor = floating(x)
    above = greater(tensor, 0)
    # The unused side must stay finite: its infinite gradient times 0 would be NaN.
    below = multiply(expm1(where(above, 0, tensor)), alpha)
    return where(above, tensor, below)


@in_float32
def celu(x: TensorLike, alpha: float = 1.0) -> Tensor:
    """Continuously differentiable ELU: x for x > 0, else alpha * (e^(x / alpha) - 1).

    Args:
        x: The input.
        alpha: The negative of the limit at -inf.

    Example:
        >>> graphc.compile(lambda: graphc.celu([-100.0, 1.0], alpha=2.0))()
        array([-2.,  1.], dtype=float32)
    """
    tensor = floating(x)
    above = greater(tensor, 0)
    below = multiply(expm1(multiply(where(above, 0, tensor), 1 / alpha)), alpha)
    return where(above, tensor, below)


_SELU_ALPHA, _SELU_SCALE = 1.6732632423543772848170429916717, 1.0507009873554804934193349852946
"""Klambauer et al., Self-Normalizing Neural Networks, NeurIPS 2017."""


@in_float32
def selu(x: TensorLike) -> Tensor:
    """Scaled ELU, which keeps mean 0 and variance 1: 1.0507 * elu(x, alpha=1.6733)."""
    return multiply(elu(x, _SELU_ALPHA), _SELU_SCALE)


@in_float32
def mish(x: TensorLike) -> Tensor:
    """Mish: x * tanh(log(1 + e^x))."""
    tensor = floating(x)
    return multiply(tensor, tanh(softplus(tensor)))


def relu6(x: TensorLike) -> Tensor:
    """Rectifier limited at 6: min(max(x, 0), 6); the gradient at the limits is 0."""
    return hardtanh(x, 0.0, 6.0)


def hardtanh(x: TensorLike, min_val: float = -1.0, max_val: float = 1.0) -> Tensor:
    """Limit elements: min(max(x, min_val), max_val); the gradient at the limits is 0.

    Args:
        x: The input.
        min_val: The lower limit.
        max_val: The upper limit.

    Raises:
        GraphError: `min_val` is above `max_val`.

    Example:
        >>> graphc.compile(lambda: graphc.hardtanh([-2.0, 0.5, 2.0]))()
        array([-1. ,  0.5,  1. ], dtype=float32)
    """
    if min_val > max_val:
        raise error(f"hardtanh: min_val {min_val} is above max_val {max_val}")
    tensor = as_tensor(x)
    limited = stop_gradient(minimum(maximum(tensor, min_val), max_val))
    return where(equal(limited, min_val), limited, where(equal(limited, max_val), limited, tensor))


@in_float32
def hardsigmoid(x: TensorLike) -> Tensor:
    """Piecewise linear sigmoid: min(max(x / 6 + 1 / 2, 0), 1).

    The gradient at the limits is 0.
    """
    return multiply(hardtanh(add(floating(x), 3), 0.0, 6.0), 1 / 6)


@in_float32
def hardswish(x: TensorLike) -> Tensor:
    """Piecewise quadratic SiLU: x * hardsigmoid(x)."""
    tensor = floating(x)
    return multiply(tensor, hardsigmoid(tensor))


def prelu(x: TensorLike, weight: TensorLike) -> Tensor:
    """Leaky rectifier with a learned slope: x for x > 0, else weight * x.

    Args:
        x: The input [n, c, ...].
        weight: The slopes, one per channel [c], or [1] for all.

    Raises:
        GraphError: `weight` has another size.

    Example:
        >>> graphc.compile(lambda: graphc.prelu([[-1.0, -1.0]], [0.1, 0.5]))()
        array([[-0.1, -0.5]], dtype=float32)
    """
    tensor, slope = floating(x), floating(weight)
    channels = tensor.shape[1] if tensor.ndim > 1 else 1
    if slope.shape not in ((1,), (channels,), ()):
        raise error(
            f"prelu: weight {slope.value.type} does not fit the {channels} channels of "
            f"x {tensor.value.type}"
        )
    if slope.ndim and tensor.ndim != 1:
        slope = reshape(slope, (*slope.shape, *(1,) * (tensor.ndim - 2)) if tensor.ndim else ())
    return where(greater(tensor, 0), tensor, multiply(tensor, slope))


@in_float32
def softsign(x: TensorLike) -> Tensor:
    """Softsign: x / (1 + |x|)."""
    tensor = floating(x)
    return divide(tensor, add(abs(tensor), 1))


@in_float32
def logsigmoid(x: TensorLike) -> Tensor:
    """Logarithm of the sigmoid: log(sigmoid(x)), without overflow."""
    tensor = floating(x)
    return subtract(minimum(tensor, 0), log1p(exp(negative(abs(tensor)))))


@in_float32
def tanhshrink(x: TensorLike) -> Tensor:
    """Tanh shrinkage: x - tanh(x)."""
    tensor = floating(x)
    return subtract(tensor, tanh(tensor))


def softshrink(x: TensorLike, lambd: float = 0.5) -> Tensor:
    """Soft shrinkage: move x towards 0 by `lambd`; 0 where |x| <= lambd.

    Args:
        x: The input.
        lambd: The threshold, not negative.

    Raises:
        GraphError: `lambd` is negative.

    Example:
        >>> graphc.compile(lambda: graphc.softshrink([-2.0, 0.2, 1.0]))()
        array([-1.5,  0. ,  0.5], dtype=float32)
    """
    if lambd < 0:
        raise error(f"softshrink: lambd expected a number of 0 or more, got {lambd}")
    tensor = floating(x)
    outside = subtract(tensor, multiply(sign(tensor), lambd))
    return where(less_equal(abs(tensor), lambd), multiply(stop_gradient(tensor), 0), outside)


def hardshrink(x: TensorLike, lambd: float = 0.5) -> Tensor:
    """Hard shrinkage: 0 where |x| <= lambd, else x.

    Args:
        x: The input.
        lambd: The threshold.

    Example:
        >>> graphc.compile(lambda: graphc.hardshrink([-2.0, 0.2, 1.0]))()
        array([-2.,  0.,  1.], dtype=float32)
    """
    tensor = floating(x)
    return where(less_equal(abs(tensor), lambd), 0, tensor)


def threshold(x: TensorLike, threshold: float, value: float) -> Tensor:
    """Replace elements that are not above a threshold.

    Args:
        x: The input.
        threshold: The threshold.
        value: The replacement.

    Example:
        >>> graphc.compile(lambda: graphc.threshold([1.0, 3.0], 2.0, 0.0))()
        array([0., 3.], dtype=float32)
    """
    tensor = as_tensor(x)
    return where(less_equal(tensor, threshold), value, tensor)


def glu(x: TensorLike, axis: int = -1) -> Tensor:
    """Gated linear unit: the first half of x along an axis times the sigmoid of the second half.

    Args:
        x: The input.
        axis: The axis to split, of even size.

    Raises:
        GraphError: The size of the axis is odd.

    Example:
        >>> graphc.compile(lambda: graphc.glu([4.0, 0.0]))()
        array([2.], dtype=float32)
    """
    tensor = floating(x)
    place = axis_of("glu", axis, tensor)
    if tensor.shape[place] % 2:
        raise error(f"glu: axis {place} of x {tensor.value.type} has no halves")
    half, before = tensor.shape[place] // 2, (slice(None),) * place
    first, second = tensor[(*before, slice(half))], tensor[(*before, slice(half, None))]
    return multiply(first, sigmoid(second))


@in_float32
def softplus(x: TensorLike, beta: float = 1.0, threshold: float = 20.0) -> Tensor:
    """Smooth rectifier: log(1 + e^(beta * x)) / beta.

    Args:
        x: The input.
        beta: The sharpness.
        threshold: Where beta * x is above it, the result is x itself.

    Example:
        >>> graphc.compile(lambda: graphc.softplus([0.0, 30.0]))()
        array([ 0.6931472, 30.       ], dtype=float32)
    """
    tensor = floating(x)
    scaled = multiply(tensor, beta)
    linear = greater(scaled, threshold)
    curved = log1p(exp(where(linear, 0, scaled)))
    return where(linear, tensor, multiply(curved, 1 / beta))
