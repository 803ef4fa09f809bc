"""Margin losses of several classes or labels, with the names of torch.nn.functional."""

from __future__ import annotations

from collections.abc import Callable

from graphc import ops
from graphc.functions.array.cumulative import cumsum
from graphc.functions.array.elementwise.elementwise import (
    add,
    equal,
    less,
    logical_and,
    logical_not,
    minimum,
    multiply,
    negative,
    relu,
    square,
    subtract,
    where,
)
from graphc.functions.array.reductions import any, mean, sum
from graphc.functions.array.shape.shapes import expand_dims, reshape
from graphc.functions.array.tensors import as_tensor, cast, error, floating
from graphc.functions.network.activation import logsigmoid
from graphc.functions.network.losses.distances import pairwise_distance
from graphc.functions.network.losses.reducing import reduced, same_shape
from graphc.ir import INTEGERS, TensorLike
from graphc.trace import Tensor, emit
from graphc.trace.index_bounds import expect_below


def multi_margin_loss(
    input: TensorLike,
    target: TensorLike,
    p: int = 1,
    margin: float = 1.0,
    weight: TensorLike | None = None,
    reduction: str = "mean",
) -> Tensor:
    """Hinge loss of classes: the mean over the classes of max(0, margin - x[target] + x)^p.

    The target's own class is left out of the sum.

    Args:
        input: Scores [n, c] or [c].
        target: Classes [n] or [], integers.
        p: The exponent, 1 or 2.
        margin: By how much the target's score should be higher.
        weight: A weight per class [c].
        reduction: "mean", "sum" or "none", which returns the loss of each element.

    Raises:
        GraphError: `p` is neither, or the shapes do not fit.

    Example:
        >>> graphc.compile(lambda: graphc.multi_margin_loss([[1.0, 3.0]], [1]))()
        array(0., dtype=float32)
    """
    if p not in (1, 2):
        raise error(f"multi_margin_loss: p expected 1 or 2, got {p!r}")
    x, labels = _labelled("multi_margin_loss", input, target, 0)
    rows = x if x.ndim == 2 else expand_dims(x, 0)
    chosen = equal(reshape(labels, (rows.shape[0], 1)), _classes(rows, labels.dtype))
    own = sum(where(chosen, rows, 0), 1, keepdims=True)
    short = relu(add(subtract(rows, own), margin))
    terms = where(chosen, 0, short if p == 1 else square(short))
    if weight is not None:
        terms = multiply(terms, sum(where(chosen, floating(weight), 0), 1, keepdims=True))
    loss = mean(terms, 1)
    return reduced("multi_margin_loss", loss if x.ndim == 2 else sum(loss), reduction)


def multilabel_margin_loss(
    input: TensorLike, target: TensorLike, reduction: str = "mean"
) -> Tensor:
    """Hinge loss of several labels: sums of max(0, 1 - x[label] + x[other]) over c.

    Args:
        input: Scores [n, c] or [c].
        target: Labels in the same shape, those before the first negative one.
        reduction: "mean", "sum" or "none", which returns the loss of each element.

    Raises:
        GraphError: The shapes differ or the reduction is unknown.

    Example:
        >>> graphc.compile(lambda: graphc.multilabel_margin_loss([[1.0, 3.0]], [[0, -1]]))()
        array(1.5, dtype=float32)
    """
    x, labels = _labelled("multilabel_margin_loss", input, target, 1)
    rows = x if x.ndim == 2 else expand_dims(x, 0)
    named = labels if x.ndim == 2 else expand_dims(labels, 0)
    live = equal(cumsum(cast(less(named, 0), "i32"), 1), 0)
    classes = expand_dims(_classes(rows, labels.dtype), 0)
    chosen = logical_and(expand_dims(live, 2), equal(expand_dims(named, 2), classes))
    is_target = any(chosen, 1)
    own = expand_dims(sum(where(chosen, expand_dims(rows, 1), 0), 2), 2)
    short = relu(add(subtract(expand_dims(rows, 1), own), 1))
    pairs = logical_and(expand_dims(live, 2), expand_dims(logical_not(is_target), 1))
    loss = multiply(sum(where(pairs, short, 0), (1, 2)), 1 / rows.shape[1])
    return reduced("multilabel_margin_loss", loss if x.ndim == 2 else sum(loss), reduction)


def _labelled(name: str, input: TensorLike, target: TensorLike, axes: int) -> tuple[Tensor, Tensor]:
    x, labels = floating(input), as_tensor(target)
    expected = x.shape if axes else x.shape[:-1]
    if x.ndim not in (1, 2) or labels.dtype not in INTEGERS or labels.shape != expected:
        raise error(f"{name}: input {x.value.type} and target {labels.value.type} do not fit")
    places = labels if labels.dtype in ("i32", "i64") else cast(labels, "i32")
    expect_below(name, places, x.shape[-1], -1 if axes else None)
    return x, places


def _classes(rows: Tensor, dtype: str) -> Tensor:
    return emit(ops.Iota((1, rows.shape[1]), 1, dtype))


def multilabel_soft_margin_loss(
    input: TensorLike, target: TensorLike, weight: TensorLike | None = None, reduction: str = "mean"
) -> Tensor:
    """Mean of binary cross-entropies under sigmoid(input), over the last axis.

    Args:
        input: Logits [..., c].
        target: 0 or 1 for each, of the same shape.
        weight: A weight per class [c].
        reduction: "mean", "sum" or "none", which returns the loss of each element.

    Raises:
        GraphError: The shapes differ or the reduction is unknown.

    Example:
        >>> loss = graphc.compile(lambda: graphc.multilabel_soft_margin_loss([[0.0]], [[1.0]]))
        >>> print(loss().round(4))
        0.6931
    """
    x, t = same_shape("multilabel_soft_margin_loss", input, target)
    terms = add(multiply(t, logsigmoid(x)), multiply(subtract(1, t), logsigmoid(negative(x))))
    if weight is not None:
        terms = multiply(terms, weight)
    return reduced("multilabel_soft_margin_loss", negative(mean(terms, -1)), reduction)


def triplet_margin_with_distance_loss(
    anchor: TensorLike,
    positive: TensorLike,
    negative: TensorLike,
    distance_function: Callable[[Tensor, Tensor], Tensor] | None = None,
    margin: float = 1.0,
    swap: bool = False,
    reduction: str = "mean",
) -> Tensor:
    """Triplet loss of any distance: max(0, d(anchor, positive) - d(anchor, negative) + margin).

    Args:
        anchor: The anchors.
        positive: Samples that should be near the anchors.
        negative: Samples that should be far from the anchors.
        distance_function: The distance of two tensors; by default `pairwise_distance`.
        margin: How much farther they should be.
        swap: Whether d(positive, negative) replaces d(anchor, negative) where it is smaller.
        reduction: "mean", "sum" or "none", which returns the loss of each element.

    Example:
        >>> def distance(a, b):
        ...     return graphc.sum(graphc.abs(a - b), axis=-1)
        ...
        >>> loss = graphc.triplet_margin_with_distance_loss
        >>> graphc.compile(lambda: loss([[0.0]], [[2.0]], [[1.0]], distance))()
        array(2., dtype=float32)
    """
    distance = pairwise_distance if distance_function is None else distance_function
    a, b, c = (as_tensor(t) for t in (anchor, positive, negative))
    far = distance(a, c)
    if swap:
        far = minimum(far, distance(b, c))
    loss = relu(add(subtract(distance(a, b), far), margin))
    return reduced("triplet_margin_with_distance_loss", loss, reduction)
