"""Activations, with the names and defaults of torch.nn.functional and `axis` for `dim`."""

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
    isfinite,
    less_equal,
    log,
    log1p,
    maximum,
    minimum,
    multiply,
    negative,
    reciprocal,
    sigmoid,
    sign,
    stop_gradient,
    subtract,
    tanh,
    where,
)
from graphc.functions.array.elementwise.precision import in_float32
from graphc.functions.array.indexing.places import shifted
from graphc.functions.array.reductions import max, sum
from graphc.functions.array.shape.shapes import reshape
from graphc.functions.array.tensors import (
    Axes,
    as_tensor,
    astype,
    axes_of,
    axis_of,
    error,
    floating,
)
from graphc.ir import DTypeLike, TensorLike
from graphc.trace import Tensor


@in_float32
def gelu(x: TensorLike, approximate: str = "none") -> Tensor:
    """x times the normal distribution function at x; approximate="tanh" uses tanh for erf."""
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
    """x * sigmoid(x)."""
    tensor = floating(x)
    return multiply(tensor, sigmoid(tensor))


@in_float32
def leaky_relu(x: TensorLike, negative_slope: float = 0.01) -> Tensor:
    """x above 0, negative_slope * x elsewhere."""
    tensor = floating(x)
    return where(greater(tensor, 0), tensor, multiply(tensor, negative_slope))


@in_float32
def elu(x: TensorLike, alpha: float = 1.0) -> Tensor:
    """x above 0, alpha * (e^x - 1) elsewhere."""
    tensor = floating(x)
    above = greater(tensor, 0)
    # The unused side must stay finite: its infinite gradient times 0 would be NaN.
    below = multiply(expm1(where(above, 0, tensor)), alpha)
    return where(above, tensor, below)


@in_float32
def celu(x: TensorLike, alpha: float = 1.0) -> Tensor:
    """x above 0, alpha * (e^(x / alpha) - 1) elsewhere."""
    tensor = floating(x)
    above = greater(tensor, 0)
    below = multiply(expm1(multiply(where(above, 0, tensor), 1 / alpha)), alpha)
    return where(above, tensor, below)


_SELU_ALPHA, _SELU_SCALE = 1.6732632423543772848170429916717, 1.0507009873554804934193349852946
"""Klambauer et al., Self-Normalizing Neural Networks, NeurIPS 2017."""


@in_float32
def selu(x: TensorLike) -> Tensor:
    """1.0507 * elu(x, alpha=1.6733): keeps mean 0 and variance 1."""
    return multiply(elu(x, _SELU_ALPHA), _SELU_SCALE)


@in_float32
def mish(x: TensorLike) -> Tensor:
    """x * tanh(log(1 + e^x))."""
    tensor = floating(x)
    return multiply(tensor, tanh(softplus(tensor)))


def relu6(x: TensorLike) -> Tensor:
    """x between 0 and 6, these outside; the gradient on the limits is 0."""
    return hardtanh(x, 0.0, 6.0)


def hardtanh(x: TensorLike, min_val: float = -1.0, max_val: float = 1.0) -> Tensor:
    """x between the limits, these outside; the gradient on the limits is 0."""
    if min_val > max_val:
        raise error(f"hardtanh: min_val {min_val} is above max_val {max_val}")
    tensor = as_tensor(x)
    limited = stop_gradient(minimum(maximum(tensor, min_val), max_val))
    return where(equal(limited, min_val), limited, where(equal(limited, max_val), limited, tensor))


@in_float32
def hardsigmoid(x: TensorLike) -> Tensor:
    """x / 6 + 1 / 2, at least 0 and at most 1; the gradient on the limits is 0."""
    return multiply(hardtanh(add(floating(x), 3), 0.0, 6.0), 1 / 6)


@in_float32
def hardswish(x: TensorLike) -> Tensor:
    """x * hardsigmoid(x)."""
    tensor = floating(x)
    return multiply(tensor, hardsigmoid(tensor))


def prelu(x: TensorLike, weight: TensorLike) -> Tensor:
    """x above 0, weight * x elsewhere; `weight` [c] is per channel, axis 1 of x, or [1] for all."""
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
    """x / (1 + |x|)."""
    tensor = floating(x)
    return divide(tensor, add(abs(tensor), 1))


@in_float32
def logsigmoid(x: TensorLike) -> Tensor:
    """log(sigmoid(x)), without overflow."""
    tensor = floating(x)
    return subtract(minimum(tensor, 0), log1p(exp(negative(abs(tensor)))))


@in_float32
def tanhshrink(x: TensorLike) -> Tensor:
    """x - tanh(x)."""
    tensor = floating(x)
    return subtract(tensor, tanh(tensor))


def softshrink(x: TensorLike, lambd: float = 0.5) -> Tensor:
    """x moved towards 0 by `lambd`, which must not be negative; 0 within it."""
    if lambd < 0:
        raise error(f"softshrink: lambd expected a number of 0 or more, got {lambd}")
    tensor = floating(x)
    outside = subtract(tensor, multiply(sign(tensor), lambd))
    return where(less_equal(abs(tensor), lambd), multiply(stop_gradient(tensor), 0), outside)


def hardshrink(x: TensorLike, lambd: float = 0.5) -> Tensor:
    """x; 0 from -lambd to lambd."""
    tensor = floating(x)
    return where(less_equal(abs(tensor), lambd), 0, tensor)


def threshold(x: TensorLike, threshold: float, value: float) -> Tensor:
    """x above `threshold`, `value` elsewhere."""
    tensor = as_tensor(x)
    return where(less_equal(tensor, threshold), value, tensor)


def glu(x: TensorLike, axis: int = -1) -> Tensor:
    """The first half of x along `axis` times the sigmoid of the second."""
    tensor = floating(x)
    place = axis_of("glu", axis, tensor)
    if tensor.shape[place] % 2:
        raise error(f"glu: axis {place} of x {tensor.value.type} has no halves")
    half, before = tensor.shape[place] // 2, (slice(None),) * place
    first, second = tensor[(*before, slice(half))], tensor[(*before, slice(half, None))]
    return multiply(first, sigmoid(second))


@in_float32
def softplus(x: TensorLike, beta: float = 1.0, threshold: float = 20.0) -> Tensor:
    """log(1 + e^(beta x)) / beta; x itself where beta x is above `threshold`."""
    tensor = floating(x)
    scaled = multiply(tensor, beta)
    linear = greater(scaled, threshold)
    curved = log1p(exp(where(linear, 0, scaled)))
    return where(linear, tensor, multiply(curved, 1 / beta))


@in_float32
def _softmax(name: str, x: Tensor, axis: int) -> Tensor:
    powers = exp(shifted(name, x, axis))
    return multiply(powers, reciprocal(sum(powers, axis, keepdims=True)))


def softmax(x: TensorLike, axis: int = -1, dtype: DTypeLike | None = None) -> Tensor:
    """e^x divided by its sum along `axis`; of x as `dtype`, if that is given."""
    return _softmax("softmax", _converted(x, dtype), axis)


def softmin(x: TensorLike, axis: int = -1, dtype: DTypeLike | None = None) -> Tensor:
    """softmax(-x, axis, dtype)."""
    return _softmax("softmin", negative(_converted(x, dtype)), axis)


def log_softmax(x: TensorLike, axis: int = -1, dtype: DTypeLike | None = None) -> Tensor:
    """The logarithm of softmax(x, axis, dtype), without its overflow."""
    return _log_softmax(_converted(x, dtype), axis)


@in_float32
def _log_softmax(x: Tensor, axis: int) -> Tensor:
    below = shifted("log_softmax", x, axis)
    return subtract(below, log(sum(exp(below), axis, keepdims=True)))


def _converted(x: TensorLike, dtype: DTypeLike | None) -> Tensor:
    """x as a float, of `dtype` if that is given."""
    return floating(x if dtype is None else astype(x, dtype))


@in_float32
def logsumexp(x: TensorLike, axis: Axes = -1, keepdims: bool = False) -> Tensor:
    """The logarithm of the sum of e^x along `axis`; -inf if all elements are, or there are none,
    inf if one is."""
    tensor = floating(x)
    axes = axes_of("logsumexp", axis, tensor)
    if not all(tensor.shape[a] for a in axes):
        return log(sum(tensor, axes, keepdims=keepdims))
    largest = stop_gradient(max(tensor, axes, keepdims=True))
    finite = where(isfinite(largest), largest, 0)
    total = log(sum(exp(subtract(tensor, finite)), axes, keepdims=True))
    result = add(total, finite)
    return result if keepdims else sum(result, axes)
