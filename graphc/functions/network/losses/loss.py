"""The usual losses, with the names and arguments of torch.nn.functional."""

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
from graphc.functions.array.elementwise.precision import giving_float32
from graphc.functions.array.reductions import sum
from graphc.functions.array.tensors import as_tensor, floating
from graphc.functions.network.activation import softplus
from graphc.functions.network.losses.labels import class_axis, label_weights, labelled, losses_of
from graphc.functions.network.losses.reducing import reduced, same_shape
from graphc.ir import TensorLike
from graphc.trace import Tensor


@giving_float32
def cross_entropy(
    logits: TensorLike,
    target: TensorLike,
    weight: TensorLike | None = None,
    ignore_index: int | None = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """Negative log-likelihood of classes under softmax(logits).

    Labels out of range name no class: their loss is log(sum(exp(logits))).

    Args:
        logits: Unnormalized log-probabilities [n, c, ...] or [c].
        target: Classes [n, ...], integers; or a probability per class, floats of the shape of
            `logits`.
        weight: A weight per class [c]; the mean divides by the sum of the labels' weights.
        ignore_index: The label that is left out; None leaves out none.
        reduction: "mean", "sum" or "none", which returns [n, ...].
        label_smoothing: The share of probability that is spread over all classes.

    Raises:
        GraphError: The shapes do not fit or the reduction is unknown.

    Example:
        >>> loss = graphc.compile(lambda: graphc.cross_entropy([[0.0, 0.0], [9.0, -9.0]], [1, 0]))
        >>> print(loss().round(4))
        0.3466
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
    """Negative log-likelihood of classes, from log-probabilities.

    A label that is out of range gives 0.

    Args:
        log_probabilities: Log-probabilities [n, c, ...] or [c].
        target: Classes [n, ...], integers.
        weight: A weight per class [c]; the mean divides by the sum of the labels' weights.
        ignore_index: The label that is left out; None leaves out none.
        reduction: "mean", "sum" or "none", which returns [n, ...].

    Raises:
        GraphError: The shapes do not fit or the reduction is unknown.

    Example:
        >>> graphc.compile(lambda: graphc.nll_loss([[-1.0, -2.0], [-3.0, -4.0]], [1, 0]))()
        array(2.5, dtype=float32)
    """
    x, labels = floating(log_probabilities), as_tensor(target)
    axis = class_axis("nll_loss", x)
    chosen = labelled("nll_loss", x, labels, axis, ignore_index)
    loss = negative(sum(where(chosen, x, 0), axis))
    weights = label_weights("nll_loss", x, labels, chosen, axis, weight, ignore_index)
    if weights is not None:
        loss = multiply(loss, weights)
    return reduced("nll_loss", loss, reduction, weights)


@giving_float32
def mse_loss(input: TensorLike, target: TensorLike, reduction: str = "mean") -> Tensor:
    """Squared difference: (input - target)^2.

    Args:
        input: The predictions.
        target: The targets, of the same shape.
        reduction: "mean", "sum" or "none", which returns the loss of each element.

    Raises:
        GraphError: The shapes differ or the reduction is unknown.

    Example:
        >>> graphc.compile(lambda: graphc.mse_loss([1.0, 2.0], [1.0, 4.0]))()
        array(2., dtype=float32)
    """
    return reduced("mse_loss", square(_difference("mse_loss", input, target)), reduction)


@giving_float32
def l1_loss(input: TensorLike, target: TensorLike, reduction: str = "mean") -> Tensor:
    """Absolute difference: |input - target|.

    Args:
        input: The predictions.
        target: The targets, of the same shape.
        reduction: "mean", "sum" or "none", which returns the loss of each element.

    Raises:
        GraphError: The shapes differ or the reduction is unknown.

    Example:
        >>> graphc.compile(lambda: graphc.l1_loss([1.0, 2.0], [1.0, 4.0]))()
        array(1., dtype=float32)
    """
    return reduced("l1_loss", abs(_difference("l1_loss", input, target)), reduction)


@giving_float32
def binary_cross_entropy_with_logits(
    input: TensorLike,
    target: TensorLike,
    weight: TensorLike | None = None,
    reduction: str = "mean",
    pos_weight: TensorLike | None = None,
) -> Tensor:
    """Negative log-likelihood of probabilities under sigmoid(input).

    Args:
        input: The logits.
        target: Probabilities, of the same shape.
        weight: Factors of the losses; they broadcast.
        reduction: "mean", "sum" or "none", which returns the loss of each element.
        pos_weight: Factors of the part of the positive class; they broadcast.

    Raises:
        GraphError: The shapes differ or the reduction is unknown.

    Example:
        >>> loss = graphc.compile(lambda: graphc.binary_cross_entropy_with_logits([0.0], [1.0]))
        >>> print(loss().round(4))
        0.6931
    """
    name = "binary_cross_entropy_with_logits"
    x, t = same_shape(name, input, target)
    if pos_weight is None:
        loss = subtract(softplus(x), multiply(x, t))
    else:
        share = add(multiply(subtract(floating(pos_weight), 1), t), 1)
        loss = add(multiply(subtract(1, t), x), multiply(share, softplus(negative(x))))
    if weight is not None:
        loss = multiply(loss, weight)
    return reduced(name, loss, reduction)


def _difference(name: str, input: TensorLike, target: TensorLike) -> Tensor:
    return subtract(*same_shape(name, input, target))
