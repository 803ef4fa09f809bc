"""Losses, with the names and arguments of torch.nn.functional."""

from __future__ import annotations

from graphc.functions.array.elementwise.elementwise import (
    abs,
    add,
    multiply,
    negative,
    square,
    subtract,
    where,
)
from graphc.functions.array.elementwise.precision import in_float32
from graphc.functions.array.reductions import sum
from graphc.functions.array.tensors import as_tensor, floating
from graphc.functions.network.activation import softplus
from graphc.functions.network.losses.labels import class_axis, label_weights, labelled, losses_of
from graphc.functions.network.losses.reducing import alike, reduced
from graphc.ir import TensorLike
from graphc.trace import Tensor


@in_float32
def cross_entropy(
    logits: TensorLike,
    target: TensorLike,
    weight: TensorLike | None = None,
    ignore_index: int | None = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """The negative log-likelihood of `target` under softmax(logits, axis=1).

    `logits` [n, c, ...] or [c]; `target` holds class numbers (integers, [n, ...] or []), all below
    c, or a probability per class (floats, the shape of logits). `weight` [c] weighs the classes;
    the mean divides by the sum of the labels' weights. Labels equal to `ignore_index` count
    nowhere; None counts all. A label out of range names no class: its term is the logarithm of the
    sum alone. `reduction` is "mean", "sum" or "none", which gives [n, ...].
    """
    found = losses_of("cross_entropy", logits, target, weight, ignore_index, label_smoothing)
    return reduced("cross_entropy", found[0], reduction, found[1])


def nll_loss(
    log_probabilities: TensorLike,
    target: TensorLike,
    weight: TensorLike | None = None,
    ignore_index: int | None = -100,
    reduction: str = "mean",
) -> Tensor:
    """The negative of log_probabilities [n, c, ...] or [c] at the class numbers `target` [n, ...];
    arguments as of `cross_entropy`. A label out of range gives 0."""
    x, labels = floating(log_probabilities), as_tensor(target)
    axis = class_axis("nll_loss", x)
    chosen = labelled("nll_loss", x, labels, axis, ignore_index)
    loss = negative(sum(where(chosen, x, 0), axis))
    weights = label_weights("nll_loss", x, labels, chosen, axis, weight, ignore_index)
    if weights is not None:
        loss = multiply(loss, weights)
    return reduced("nll_loss", loss, reduction, weights)


@in_float32
def mse_loss(input: TensorLike, target: TensorLike, reduction: str = "mean") -> Tensor:
    """The squared difference of two tensors of one shape."""
    return reduced("mse_loss", square(_difference("mse_loss", input, target)), reduction)


@in_float32
def l1_loss(input: TensorLike, target: TensorLike, reduction: str = "mean") -> Tensor:
    """The absolute difference of two tensors of one shape."""
    return reduced("l1_loss", abs(_difference("l1_loss", input, target)), reduction)


@in_float32
def binary_cross_entropy_with_logits(
    input: TensorLike,
    target: TensorLike,
    weight: TensorLike | None = None,
    reduction: str = "mean",
    pos_weight: TensorLike | None = None,
) -> Tensor:
    """The negative log-likelihood of the probabilities `target` under sigmoid(input), both of one
    shape, times `weight`; the part of `target` itself times `pos_weight`. Both broadcast."""
    name = "binary_cross_entropy_with_logits"
    x, t = alike(name, input, target)
    if pos_weight is None:
        loss = subtract(softplus(x), multiply(x, t))
    else:
        share = add(multiply(subtract(floating(pos_weight), 1), t), 1)
        loss = add(multiply(subtract(1, t), x), multiply(share, softplus(negative(x))))
    if weight is not None:
        loss = multiply(loss, weight)
    return reduced(name, loss, reduction)


def _difference(name: str, input: TensorLike, target: TensorLike) -> Tensor:
    return subtract(*alike(name, input, target))
