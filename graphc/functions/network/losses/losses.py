"""More losses, with the names and arguments of torch.nn.functional; `reduction` is "mean", "sum" or
"none", which keeps the loss of each element."""

from __future__ import annotations

import math

from graphc.functions.array.elementwise.elementwise import (
    abs,
    add,
    divide,
    equal,
    exp,
    greater,
    less,
    log,
    maximum,
    minimum,
    multiply,
    negative,
    relu,
    sqrt,
    square,
    stop_gradient,
    subtract,
    where,
)
from graphc.functions.array.elementwise.numeric import xlogy
from graphc.functions.array.elementwise.precision import in_float32
from graphc.functions.array.reductions import norm, sum
from graphc.functions.array.shape.arrange import broadcast_arrays
from graphc.functions.array.tensors import floating, promoted
from graphc.functions.network.activation import logsigmoid
from graphc.functions.network.losses.reducing import alike, reduced
from graphc.ir import TensorLike
from graphc.trace import Tensor


@in_float32
def smooth_l1_loss(
    input: TensorLike, target: TensorLike, reduction: str = "mean", beta: float = 1.0
) -> Tensor:
    """d^2 / (2 beta) where the difference d is below `beta`, |d| - beta / 2 elsewhere."""
    difference = subtract(*alike("smooth_l1_loss", input, target))
    size = abs(difference)
    if beta == 0:
        return reduced("smooth_l1_loss", size, reduction)
    near = multiply(square(difference), 0.5 / beta)
    loss = where(less(size, beta), near, subtract(size, beta / 2))
    return reduced("smooth_l1_loss", loss, reduction)


@in_float32
def huber_loss(
    input: TensorLike, target: TensorLike, reduction: str = "mean", delta: float = 1.0
) -> Tensor:
    """d^2 / 2 where the difference d is below `delta`, delta * (|d| - delta / 2) elsewhere."""
    difference = subtract(*alike("huber_loss", input, target))
    size = abs(difference)
    far = multiply(subtract(size, delta / 2), delta)
    loss = where(less(size, delta), multiply(square(difference), 0.5), far)
    return reduced("huber_loss", loss, reduction)


@in_float32
def binary_cross_entropy(
    input: TensorLike, target: TensorLike, weight: TensorLike | None = None, reduction: str = "mean"
) -> Tensor:
    """-(target log(input) + (1 - target) log(1 - input)) of probabilities, times `weight`; no
    logarithm is below -100."""
    x, t = alike("binary_cross_entropy", input, target)
    first = maximum(log(x), -100)
    second = maximum(log(subtract(1, x)), -100)
    loss = negative(add(multiply(t, first), multiply(subtract(1, t), second)))
    if weight is not None:
        loss = multiply(loss, weight)
    return reduced("binary_cross_entropy", loss, reduction)


@in_float32
def kl_div(
    input: TensorLike, target: TensorLike, reduction: str = "mean", log_target: bool = False
) -> Tensor:
    """target * (log(target) - input) of log-probabilities `input`; `target` holds probabilities, or
    their logarithms with `log_target`. Reduction "batchmean" divides the sum by extent 0."""
    x, t = alike("kl_div", input, target)
    if log_target:
        loss = multiply(exp(t), subtract(t, x))
    else:
        loss = subtract(xlogy(t, t), multiply(t, x))
    if reduction == "batchmean":
        return multiply(sum(loss), 1 / x.shape[0])
    return reduced("kl_div", loss, reduction)


@in_float32
def cosine_similarity(x1: TensorLike, x2: TensorLike, axis: int = 1, eps: float = 1e-8) -> Tensor:
    """The product of x1 and x2 along `axis` over that of their norms, each of which is at least
    `eps`."""
    a, b = broadcast_arrays(*(floating(t) for t in promoted(x1, x2)))
    units = (divide(t, _clamped(norm(t, 2, axis, keepdims=True), eps)) for t in (a, b))
    return sum(multiply(*units), axis)


def _clamped(x: Tensor, least: float) -> Tensor:
    """x, at least `least`, with the gradient of x everywhere, as PyTorch has it here."""
    return add(x, stop_gradient(subtract(maximum(x, least), x)))


@in_float32
def pairwise_distance(
    x1: TensorLike, x2: TensorLike, p: float = 2.0, eps: float = 1e-6, keepdims: bool = False
) -> Tensor:
    """The norm of order `p` of x1 - x2 + eps along the last axis."""
    a, b = (floating(t) for t in promoted(x1, x2))
    return norm(add(subtract(a, b), eps), p, -1, keepdims)


@in_float32
def cosine_embedding_loss(
    input1: TensorLike,
    input2: TensorLike,
    target: TensorLike,
    margin: float = 0.0,
    reduction: str = "mean",
) -> Tensor:
    """1 - cos where `target` is 1, max(0, cos - margin) where it is -1; cos is that of the angle
    between `input1` and `input2` along the last axis."""
    a, b = (floating(t) for t in promoted(input1, input2))
    # As PyTorch does: its cosine here has the offset inside the root.
    product = sum(multiply(a, b), -1)
    sizes = multiply(*(add(sum(square(t), -1), 1e-12) for t in (a, b)))
    cosine = divide(product, sqrt(sizes))
    loss = where(equal(target, 1), subtract(1, cosine), relu(subtract(cosine, margin)))
    return reduced("cosine_embedding_loss", loss, reduction)


def hinge_embedding_loss(
    input: TensorLike, target: TensorLike, margin: float = 1.0, reduction: str = "mean"
) -> Tensor:
    """input where `target` is 1, max(0, margin - input) where it is -1."""
    x, t = alike("hinge_embedding_loss", input, target)
    loss = where(equal(t, 1), x, relu(subtract(margin, x)))
    return reduced("hinge_embedding_loss", loss, reduction)


def margin_ranking_loss(
    input1: TensorLike,
    input2: TensorLike,
    target: TensorLike,
    margin: float = 0.0,
    reduction: str = "mean",
) -> Tensor:
    """max(0, margin - target * (input1 - input2))."""
    difference = subtract(*alike("margin_ranking_loss", input1, input2))
    loss = relu(subtract(margin, multiply(target, difference)))
    return reduced("margin_ranking_loss", loss, reduction)


@in_float32
def soft_margin_loss(input: TensorLike, target: TensorLike, reduction: str = "mean") -> Tensor:
    """log(1 + e^(-target * input))."""
    x, t = alike("soft_margin_loss", input, target)
    return reduced("soft_margin_loss", negative(logsigmoid(multiply(t, x))), reduction)


@in_float32
def triplet_margin_loss(
    anchor: TensorLike,
    positive: TensorLike,
    negative: TensorLike,
    margin: float = 1.0,
    p: float = 2.0,
    eps: float = 1e-6,
    swap: bool = False,
    reduction: str = "mean",
) -> Tensor:
    """max(0, distance(anchor, positive) - distance(anchor, negative) + margin), distances as of
    `pairwise_distance`. With `swap` that of positive and negative counts where it is less than that
    of anchor and negative."""
    near, far = (pairwise_distance(anchor, other, p, eps) for other in (positive, negative))
    far = minimum(far, pairwise_distance(positive, negative, p, eps)) if swap else far
    return reduced("triplet_margin_loss", relu(add(subtract(near, far), margin)), reduction)


@in_float32
def poisson_nll_loss(
    input: TensorLike,
    target: TensorLike,
    log_input: bool = True,
    full: bool = False,
    eps: float = 1e-8,
    reduction: str = "mean",
) -> Tensor:
    """e^input - target * input for the logarithm of a rate; input - target * log(input + eps) for
    the rate itself, with log_input=False. `full` adds Stirling's approximation of log(target!)
    where target is above 1."""
    x, t = alike("poisson_nll_loss", input, target)
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


@in_float32
def gaussian_nll_loss(
    input: TensorLike,
    target: TensorLike,
    var: TensorLike,
    full: bool = False,
    eps: float = 1e-6,
    reduction: str = "mean",
) -> Tensor:
    """(log(var) + (input - target)^2 / var) / 2 with var of at least `eps`, through which limit the
    gradient passes; with `full` plus log(2 pi) / 2."""
    x, t = alike("gaussian_nll_loss", input, target)
    spread = floating(var)
    limited = add(spread, stop_gradient(subtract(maximum(spread, eps), spread)))
    loss = multiply(add(log(limited), divide(square(subtract(x, t)), limited)), 0.5)
    loss = add(loss, math.log(2 * math.pi) / 2) if full else loss
    return reduced("gaussian_nll_loss", loss, reduction)
