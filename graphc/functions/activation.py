"""Activations, with the names and defaults of torch.nn.functional and `axis` for `dim`."""

from __future__ import annotations

import math
from typing import Any

from graphc.functions.elementwise import (
    add,
    divide,
    erf,
    exp,
    expm1,
    greater,
    isfinite,
    log,
    log1p,
    multiply,
    sigmoid,
    stop_gradient,
    subtract,
    tanh,
    where,
)
from graphc.functions.reductions import max, sum
from graphc.functions.tensors import axis_of, error, floating
from graphc.trace import Tensor

__all__ = [
    "elu",
    "gelu",
    "leaky_relu",
    "log_softmax",
    "logsumexp",
    "silu",
    "softmax",
    "softplus",
]


def gelu(x: Any, approximate: str = "none") -> Tensor:
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


def silu(x: Any) -> Tensor:
    """x * sigmoid(x)."""
    tensor = floating(x)
    return multiply(tensor, sigmoid(tensor))


def leaky_relu(x: Any, negative_slope: float = 0.01) -> Tensor:
    """x above 0, negative_slope * x elsewhere."""
    tensor = floating(x)
    return where(greater(tensor, 0), tensor, multiply(tensor, negative_slope))


def elu(x: Any, alpha: float = 1.0) -> Tensor:
    """x above 0, alpha * (e^x - 1) elsewhere."""
    tensor = floating(x)
    above = greater(tensor, 0)
    # The unused side must stay finite: its infinite gradient times 0 would be NaN.
    below = multiply(expm1(where(above, 0, tensor)), alpha)
    return where(above, tensor, below)


def softplus(x: Any, beta: float = 1.0, threshold: float = 20.0) -> Tensor:
    """log(1 + e^(beta x)) / beta; x itself where beta x is above `threshold`."""
    tensor = floating(x)
    scaled = multiply(tensor, beta)
    linear = greater(scaled, threshold)
    curved = log1p(exp(where(linear, 0, scaled)))
    return where(linear, tensor, multiply(curved, 1 / beta))


def softmax(x: Any, axis: int = -1) -> Tensor:
    """e^x divided by its sum along `axis`."""
    powers = exp(shifted("softmax", x, axis))
    return divide(powers, sum(powers, axis, keepdims=True))


def log_softmax(x: Any, axis: int = -1) -> Tensor:
    """The logarithm of softmax(x, axis), without its overflow."""
    below = shifted("log_softmax", x, axis)
    return subtract(below, log(sum(exp(below), axis, keepdims=True)))


def logsumexp(x: Any, axis: int = -1, keepdims: bool = False) -> Tensor:
    """The logarithm of the sum of e^x along `axis`; -inf if all elements are, inf if
    one is."""
    tensor = floating(x)
    axis_of("logsumexp", axis, tensor)
    largest = stop_gradient(max(tensor, axis, keepdims=True))
    finite = where(isfinite(largest), largest, 0)
    total = log(sum(exp(subtract(tensor, finite)), axis, keepdims=True))
    result = add(total, finite)
    return result if keepdims else sum(result, axis)


def shifted(name: str, x: Any, axis: int) -> Tensor:
    """x less its largest element along `axis`, so that no exponential overflows. The shift cancels
    in what follows, so no gradient flows through it."""
    tensor = floating(x)
    axis_of(name, axis, tensor)
    return subtract(tensor, stop_gradient(max(tensor, axis, keepdims=True)))
