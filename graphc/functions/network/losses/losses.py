"""More losses, with the names and arguments of torch.nn.functional."""

from __future__ import annotations

import math

from graphc.functions.array.elementwise.elementwise import (
    abs,
    add,
    divide,
    exp,
    greater,
    less,
    log,
    maximum,
    multiply,
    negative,
    square,
    stop_gradient,
    subtract,
    where,
)
from graphc.functions.array.elementwise.numeric import xlogy
from graphc.functions.array.elementwise.precision import giving_float32
from graphc.functions.array.reductions import sum
from graphc.functions.array.tensors import floating
from graphc.functions.network.activation import logsigmoid
from graphc.functions.network.losses.reducing import reduced, same_shape
from graphc.ir import TensorLike
from graphc.trace import Tensor


@giving_float32
def smooth_l1_loss(
    input: TensorLike, target: TensorLike, reduction: str = "mean", beta: float = 1.0
) -> Tensor:
    """Quadratic loss near 0, linear beyond: d^2 / (2 beta) where |d| < beta, else |d| - beta / 2.

    Args:
        input: The predictions.
        target: The targets, of the same shape.
        reduction: "mean", "sum" or "none", which returns the loss of each element.
        beta: The difference at which the loss becomes linear.

    Raises:
        GraphError: The shapes differ or the reduction is unknown.

    Example:
        >>> graphc.compile(lambda: graphc.smooth_l1_loss([0.0, 0.0], [1.0, 3.0], "none"))()
        array([0.5, 2.5], dtype=float32)
    """
    difference = subtract(*same_shape("smooth_l1_loss", input, target))
    size = abs(difference)
    if beta == 0:
        return reduced("smooth_l1_loss", size, reduction)
    near = multiply(square(difference), 0.5 / beta)
    loss = where(less(size, beta), near, subtract(size, beta / 2))
    return reduced("smooth_l1_loss", loss, reduction)


@giving_float32
def huber_loss(
    input: TensorLike, target: TensorLike, reduction: str = "mean", delta: float = 1.0
) -> Tensor:
    """Huber loss: d^2 / 2 where |d| < delta, else delta * (|d| - delta / 2).

    Args:
        input: The predictions.
        target: The targets, of the same shape.
        reduction: "mean", "sum" or "none", which returns the loss of each element.
        delta: The difference at which the loss becomes linear.

    Raises:
        GraphError: The shapes differ or the reduction is unknown.

    Example:
        >>> graphc.compile(lambda: graphc.huber_loss([0.0, 0.0], [1.0, 3.0], "none"))()
        array([0.5, 2.5], dtype=float32)
    """
    difference = subtract(*same_shape("huber_loss", input, target))
    size = abs(difference)
    far = multiply(subtract(size, delta / 2), delta)
    loss = where(less(size, delta), multiply(square(difference), 0.5), far)
    return reduced("huber_loss", loss, reduction)


@giving_float32
def binary_cross_entropy(
    input: TensorLike, target: TensorLike, weight: TensorLike | None = None, reduction: str = "mean"
) -> Tensor:
    """Negative log-likelihood: -(target * log(input) + (1 - target) * log(1 - input)).

    Logarithms are limited to -100.

    Args:
        input: Probabilities.
        target: Probabilities, of the same shape.
        weight: Factors of the losses; they broadcast.
        reduction: "mean", "sum" or "none", which returns the loss of each element.

    Raises:
        GraphError: The shapes differ or the reduction is unknown.

    Example:
        >>> loss = graphc.compile(lambda: graphc.binary_cross_entropy([0.5, 0.5], [0.0, 1.0]))
        >>> print(loss().round(4))
        0.6931
    """
    x, t = same_shape("binary_cross_entropy", input, target)
    first = maximum(log(x), -100)
    second = maximum(log(subtract(1, x)), -100)
    loss = negative(add(multiply(t, first), multiply(subtract(1, t), second)))
    if weight is not None:
        loss = multiply(loss, weight)
    return reduced("binary_cross_entropy", loss, reduction)


@giving_float32
def kl_div(
    input: TensorLike, target: TensorLike, reduction: str = "mean", log_target: bool = False
) -> Tensor:
    """Kullback-Leibler divergence: target * (log(target) - input).

    Args:
        input: Log-probabilities.
        target: Probabilities, of the same shape; their logarithms with `log_target`.
        reduction: "mean", "sum", "none", or "batchmean", which divides the sum by the size of axis
            0.
        log_target: Whether `target` holds logarithms.

    Raises:
        GraphError: The shapes differ or the reduction is unknown.

    Example:
        >>> graphc.compile(lambda: graphc.kl_div(np.log([0.5, 0.5]), [0.5, 0.5], "batchmean"))()
        array(0.)
    """
    x, t = same_shape("kl_div", input, target)
    if log_target:
        loss = multiply(exp(t), subtract(t, x))
    else:
        loss = subtract(xlogy(t, t), multiply(t, x))
    if reduction == "batchmean":
        return multiply(sum(loss), 1 / x.shape[0])
    return reduced("kl_div", loss, reduction)


@giving_float32
def soft_margin_loss(input: TensorLike, target: TensorLike, reduction: str = "mean") -> Tensor:
    """Logistic loss of two classes: log(1 + e^(-target * input)).

    Args:
        input: The scores.
        target: 1 or -1, of the same shape.
        reduction: "mean", "sum" or "none", which returns the loss of each element.

    Raises:
        GraphError: The shapes differ or the reduction is unknown.

    Example:
        >>> loss = graphc.compile(lambda: graphc.soft_margin_loss([0.0], [1.0]))
        >>> print(loss().round(4))
        0.6931
    """
    x, t = same_shape("soft_margin_loss", input, target)
    return reduced("soft_margin_loss", negative(logsigmoid(multiply(t, x))), reduction)


@giving_float32
def poisson_nll_loss(
    input: TensorLike,
    target: TensorLike,
    log_input: bool = True,
    full: bool = False,
    eps: float = 1e-8,
    reduction: str = "mean",
) -> Tensor:
    """Negative log-likelihood of counts: e^input - target * input.

    Args:
        input: Logarithms of rates; the rates themselves without `log_input`, for which the loss is
            input - target * log(input + eps).
        target: Counts, of the same shape.
        log_input: Whether `input` holds logarithms.
        full: Whether to add Stirling's approximation of log(target!) where target > 1.
        eps: Added to rates before the logarithm.
        reduction: "mean", "sum" or "none", which returns the loss of each element.

    Raises:
        GraphError: The shapes differ or the reduction is unknown.

    Example:
        >>> graphc.compile(lambda: graphc.poisson_nll_loss([0.0], [3.0]))()
        array(1., dtype=float32)
    """
    x, t = same_shape("poisson_nll_loss", input, target)
    if log_input:
        loss = subtract(exp(x), multiply(t, x))
    else:
        loss = subtract(x, multiply(t, log(add(x, eps))))
    if full:
        above = where(greater(t, 1), t, 1)
        rest = multiply(log(multiply(above, 2 * math.pi)), 0.5)
        stirling = add(subtract(multiply(above, log(above)), above), rest)
        loss = add(loss, where(greater(t, 1), stirling, 0))
    return reduced("poisson_nll_loss", loss, reduction)


@giving_float32
def gaussian_nll_loss(
    input: TensorLike,
    target: TensorLike,
    var: TensorLike,
    full: bool = False,
    eps: float = 1e-6,
    reduction: str = "mean",
) -> Tensor:
    """Negative log-likelihood of normal numbers: (log(var) + (input - target)^2 / var) / 2.

    Args:
        input: Means.
        target: Samples, of the same shape.
        var: Variances; they broadcast.
        full: Whether to add log(2 pi) / 2.
        eps: The smallest variance; the gradient passes through this limit.
        reduction: "mean", "sum" or "none", which returns the loss of each element.

    Raises:
        GraphError: The shapes differ or the reduction is unknown.

    Example:
        >>> graphc.compile(lambda: graphc.gaussian_nll_loss([1.0], [3.0], [1.0]))()
        array(2., dtype=float32)
    """
    x, t = same_shape("gaussian_nll_loss", input, target)
    spread = floating(var)
    limited = add(spread, stop_gradient(subtract(maximum(spread, eps), spread)))
    loss = multiply(add(log(limited), divide(square(subtract(x, t)), limited)), 0.5)
    loss = add(loss, math.log(2 * math.pi) / 2) if full else loss
    return reduced("gaussian_nll_loss", loss, reduction)
