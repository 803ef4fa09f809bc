"""Losses, with the names and arguments of torch.nn.functional."""

from __future__ import annotations

from graphc import ops
from graphc.bounds import expect_below
from graphc.functions.array.elementwise import (
    abs,
    add,
    equal,
    exp,
    log,
    multiply,
    negative,
    not_equal,
    square,
    subtract,
    where,
)
from graphc.functions.array.places import shifted
from graphc.functions.array.precision import in_float32
from graphc.functions.array.reductions import mean, sum
from graphc.functions.array.shapes import reshape
from graphc.functions.array.tensors import as_tensor, cast, error, floating
from graphc.functions.network.activation import log_softmax, softplus
from graphc.functions.network.reducing import alike, reduced
from graphc.ir import FLOATS, INTEGERS, TensorLike
from graphc.trace import Tensor, emit


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
    x, labels = floating(logits), as_tensor(target)
    axis = _class_axis("cross_entropy", x)
    if labels.dtype in FLOATS:
        return _soft(x, labels, axis, weight, reduction, label_smoothing)
    chosen = _one_hot("cross_entropy", x, labels, axis, ignore_index)
    below = shifted("cross_entropy", x, axis)
    total = log(sum(exp(below), axis))
    loss = subtract(total, sum(where(chosen, below, 0), axis))
    weights = _label_weights("cross_entropy", x, labels, chosen, axis, weight, ignore_index)
    if weights is not None:
        loss = multiply(loss, weights)
    if label_smoothing:
        each = subtract(reshape(total, _kept(x, axis)), below)
        if weight is not None:
            each = multiply(each, _class_weights("cross_entropy", x, weight, axis))
        smooth = mean(each, axis)
        if ignore_index is not None:
            smooth = where(not_equal(labels, ignore_index), smooth, 0)
        loss = add(multiply(loss, 1 - label_smoothing), multiply(smooth, label_smoothing))
    return reduced("cross_entropy", loss, reduction, weights)


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
    axis = _class_axis("nll_loss", x)
    chosen = _one_hot("nll_loss", x, labels, axis, ignore_index)
    loss = negative(sum(where(chosen, x, 0), axis))
    weights = _label_weights("nll_loss", x, labels, chosen, axis, weight, ignore_index)
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


def _soft(
    x: Tensor,
    target: Tensor,
    axis: int,
    weight: TensorLike | None,
    reduction: str,
    smoothing: float,
) -> Tensor:
    """Cross-entropy with a probability per class; the mean divides by the number of rows."""
    if target.shape != x.shape:
        raise error(
            f"cross_entropy: logits {x.value.type} and class probabilities {target.value.type} "
            "differ in shape"
        )
    if smoothing:
        target = add(multiply(target, 1 - smoothing), smoothing / x.shape[axis])
    terms = multiply(log_softmax(x, axis), target)
    if weight is not None:
        terms = multiply(terms, _class_weights("cross_entropy", x, weight, axis))
    return reduced("cross_entropy", negative(sum(terms, axis)), reduction)


def _class_axis(name: str, x: Tensor) -> int:
    if not x.ndim:
        raise error(f"{name}: expected logits of 1 axis or more, got {x.value.type}")
    return 1 if x.ndim > 1 else 0


def _kept(x: Tensor, axis: int) -> tuple[int, ...]:
    return (*x.shape[:axis], 1, *x.shape[axis + 1 :])


def _one_hot(name: str, x: Tensor, labels: Tensor, axis: int, ignore_index: int | None) -> Tensor:
    """Booleans in the shape of x: whether each class is the labelled one."""
    if labels.dtype not in INTEGERS:
        raise error(f"{name}: expected integer labels, got {labels.value.type}")
    if labels.shape != (*x.shape[:axis], *x.shape[axis + 1 :]):
        raise error(f"{name}: logits {x.value.type} and labels {labels.value.type} do not fit")
    expect_below(name, labels, x.shape[axis], ignore_index)
    places = labels if labels.dtype in ("i32", "i64") else cast(labels, "i32")
    extents = tuple(n if a == axis else 1 for a, n in enumerate(x.shape))
    ramp = emit(ops.Iota(extents, axis, places.dtype))
    return equal(reshape(places, _kept(x, axis)), ramp)


def _class_weights(name: str, x: Tensor, weight: TensorLike, axis: int) -> Tensor:
    """`weight` [c] in a shape that broadcasts with x."""
    tensor = cast(as_tensor(weight), x.dtype)
    if tensor.shape != (x.shape[axis],):
        raise error(
            f"{name}: logits {x.value.type} have {x.shape[axis]} classes, "
            f"weight {tensor.value.type} does not"
        )
    return reshape(tensor, tuple(n if a == axis else 1 for a, n in enumerate(x.shape)))


def _label_weights(
    name: str,
    x: Tensor,
    labels: Tensor,
    chosen: Tensor,
    axis: int,
    weight: TensorLike | None,
    ignore_index: int | None,
) -> Tensor | None:
    """What each label counts: its class's weight, 0 if ignored; None if all count 1."""
    weights = None
    if weight is not None:
        weights = sum(where(chosen, _class_weights(name, x, weight, axis), 0), axis)
    if ignore_index is None:
        return weights
    counted = not_equal(labels, ignore_index)
    return cast(counted, x.dtype) if weights is None else where(counted, weights, 0)


def _difference(name: str, input: TensorLike, target: TensorLike) -> Tensor:
    return subtract(*alike(name, input, target))
