"""Labels, ignored classes and class weights of losses over classes."""

from __future__ import annotations

from graphc import ops
from graphc.functions.array.elementwise.elementwise import (
    add,
    equal,
    exp,
    log,
    multiply,
    negative,
    not_equal,
    subtract,
    where,
)
from graphc.functions.array.indexing.places import shifted
from graphc.functions.array.reductions import mean, sum
from graphc.functions.array.shape.shapes import reshape
from graphc.functions.array.tensors import as_tensor, cast, error, floating
from graphc.functions.network.softmax import log_softmax
from graphc.ir import FLOATS, INTEGERS, TensorLike
from graphc.trace import Tensor, emit
from graphc.trace.index_bounds import expect_below


def losses_of(
    name: str,
    logits: TensorLike,
    target: TensorLike,
    weight: TensorLike | None,
    ignore_index: int | None,
    label_smoothing: float,
) -> tuple[Tensor, Tensor | None]:
    """Return the loss of each label and its weight, which is None if all are 1.

    The arguments are those of `cross_entropy`.
    """
    x, labels = floating(logits), as_tensor(target)
    axis = class_axis(name, x)
    if labels.dtype in FLOATS:
        return _soft(name, x, labels, axis, weight, label_smoothing), None
    chosen = labelled(name, x, labels, axis, ignore_index)
    below = shifted(name, x, axis)
    total = log(sum(exp(below), axis))
    loss = subtract(total, sum(where(chosen, below, 0), axis))
    weights = label_weights(name, x, labels, chosen, axis, weight, ignore_index)
    if weights is not None:
        loss = multiply(loss, weights)
    if label_smoothing:
        each = subtract(reshape(total, _kept(x, axis)), below)
        if weight is not None:
            each = multiply(each, class_weights(name, x, weight, axis))
        smooth = mean(each, axis)
        if ignore_index is not None:
            smooth = where(not_equal(labels, ignore_index), smooth, 0)
        loss = add(multiply(loss, 1 - label_smoothing), multiply(smooth, label_smoothing))
    return loss, weights


def _soft(
    name: str,
    x: Tensor,
    target: Tensor,
    axis: int,
    weight: TensorLike | None,
    smoothing: float,
) -> Tensor:
    """Cross-entropy with a probability per class; the mean divides by the number of rows."""
    if target.shape != x.shape:
        raise error(
            f"{name}: logits {x.value.type} and class probabilities {target.value.type} "
            "differ in shape"
        )
    if smoothing:
        target = add(multiply(target, 1 - smoothing), smoothing / x.shape[axis])
    terms = multiply(log_softmax(x, axis), target)
    if weight is not None:
        terms = multiply(terms, class_weights(name, x, weight, axis))
    return negative(sum(terms, axis))


def class_axis(name: str, x: Tensor) -> int:
    """Return the axis of the classes."""
    if not x.ndim:
        raise error(f"{name}: expected logits of 1 axis or more, got {x.value.type}")
    return 1 if x.ndim > 1 else 0


def _kept(x: Tensor, axis: int) -> tuple[int, ...]:
    return (*x.shape[:axis], 1, *x.shape[axis + 1 :])


def labelled(name: str, x: Tensor, labels: Tensor, axis: int, ignore_index: int | None) -> Tensor:
    """Return booleans of the shape of x that are true at the labelled class."""
    if labels.dtype not in INTEGERS:
        raise error(f"{name}: expected integer labels, got {labels.value.type}")
    if labels.shape != (*x.shape[:axis], *x.shape[axis + 1 :]):
        raise error(f"{name}: logits {x.value.type} and labels {labels.value.type} do not fit")
    expect_below(name, labels, x.shape[axis], ignore_index)
    places = labels if labels.dtype in ("i32", "i64") else cast(labels, "i32")
    extents = tuple(n if a == axis else 1 for a, n in enumerate(x.shape))
    ramp = emit(ops.Iota(extents, axis, places.dtype))
    return equal(reshape(places, _kept(x, axis)), ramp)


def class_weights(name: str, x: Tensor, weight: TensorLike, axis: int) -> Tensor:
    """Return `weight` [c] in a shape that broadcasts with x."""
    tensor = cast(as_tensor(weight), x.dtype)
    if tensor.shape != (x.shape[axis],):
        raise error(
            f"{name}: logits {x.value.type} have {x.shape[axis]} classes, "
            f"weight {tensor.value.type} does not"
        )
    return reshape(tensor, tuple(n if a == axis else 1 for a, n in enumerate(x.shape)))


def label_weights(
    name: str,
    x: Tensor,
    labels: Tensor,
    chosen: Tensor,
    axis: int,
    weight: TensorLike | None,
    ignore_index: int | None,
) -> Tensor | None:
    """Return the weight of each label, that of its class, or 0 if ignored; None if all are 1."""
    weights = None
    if weight is not None:
        weights = sum(where(chosen, class_weights(name, x, weight, axis), 0), axis)
    if ignore_index is None:
        return weights
    counted = not_equal(labels, ignore_index)
    return cast(counted, x.dtype) if weights is None else where(counted, weights, 0)
