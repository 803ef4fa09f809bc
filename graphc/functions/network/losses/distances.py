"""Distances of vectors and their losses, with the names of torch.nn.functional."""

from __future__ import annotations

from graphc.functions.array.elementwise.elementwise import (
    add,
    divide,
    equal,
    maximum,
    minimum,
    multiply,
    relu,
    sqrt,
    square,
    stop_gradient,
    subtract,
    where,
)
from graphc.functions.array.elementwise.precision import giving_float32
from graphc.functions.array.reductions import norm, sum
from graphc.functions.array.shape.arrange import broadcast_arrays
from graphc.functions.array.tensors import floating, promoted
from graphc.functions.network.losses.reducing import reduced, same_shape
from graphc.ir import TensorLike
from graphc.trace import Tensor


@giving_float32
def cosine_similarity(x1: TensorLike, x2: TensorLike, axis: int = 1, eps: float = 1e-8) -> Tensor:
    """Cosine of the angle between vectors: sum(x1 * x2) / (|x1| * |x2|).

    Args:
        x1: The first vectors.
        x2: The second vectors; they broadcast with the first.
        axis: The axis of the vectors' elements.
        eps: The smallest value of each norm.

    Example:
        >>> graphc.compile(lambda: graphc.cosine_similarity([[1.0, 0.0]], [[3.0, 4.0]]))()
        array([0.6], dtype=float32)
    """
    a, b = broadcast_arrays(*(floating(t) for t in promoted(x1, x2)))
    units = (divide(t, _clamped(norm(t, 2, axis, keepdims=True), eps)) for t in (a, b))
    return sum(multiply(*units), axis)


def _clamped(x: Tensor, least: float) -> Tensor:
    """x, at least `least`, with the gradient of x everywhere, as PyTorch has it here."""
    return add(x, stop_gradient(subtract(maximum(x, least), x)))


@giving_float32
def pairwise_distance(
    x1: TensorLike, x2: TensorLike, p: float = 2.0, eps: float = 1e-6, keepdims: bool = False
) -> Tensor:
    """Norm of x1 - x2 + eps along the last axis.

    Args:
        x1: The first vectors.
        x2: The second vectors; they broadcast with the first.
        p: The order of the norm.
        eps: Added to the difference.
        keepdims: Whether to keep the last axis, with size 1.

    Example:
        >>> graphc.compile(lambda: graphc.pairwise_distance([[0.0, 0.0]], [[3.0, 4.0]], eps=0.0))()
        array([5.], dtype=float32)
    """
    a, b = (floating(t) for t in promoted(x1, x2))
    return norm(add(subtract(a, b), eps), p, -1, keepdims)


@giving_float32
def cosine_embedding_loss(
    input1: TensorLike,
    input2: TensorLike,
    target: TensorLike,
    margin: float = 0.0,
    reduction: str = "mean",
) -> Tensor:
    """Loss of the cosine between two vectors: 1 - cos, or max(0, cos - margin).

    Args:
        input1: The first vectors [..., features].
        input2: The second vectors [..., features].
        target: 1 where vectors should be alike, -1 where they should not.
        margin: The cosine up to which different vectors cost nothing.
        reduction: "mean", "sum" or "none", which returns the loss of each element.

    Example:
        >>> graphc.compile(lambda: graphc.cosine_embedding_loss([[1.0, 0.0]], [[0.0, 1.0]], [1]))()
        array(1., dtype=float32)
    """
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
    """Loss of distances: input where target is 1, max(0, margin - input) where it is -1.

    Args:
        input: Distances.
        target: 1 where distances should be small, -1 where they should be large.
        margin: The distance from which on large ones cost nothing.
        reduction: "mean", "sum" or "none", which returns the loss of each element.

    Raises:
        GraphError: The shapes differ or the reduction is unknown.

    Example:
        >>> graphc.compile(lambda: graphc.hinge_embedding_loss([0.5, 2.0], [1.0, -1.0]))()
        array(0.25, dtype=float32)
    """
    x, t = same_shape("hinge_embedding_loss", input, target)
    loss = where(equal(t, 1), x, relu(subtract(margin, x)))
    return reduced("hinge_embedding_loss", loss, reduction)


def margin_ranking_loss(
    input1: TensorLike,
    input2: TensorLike,
    target: TensorLike,
    margin: float = 0.0,
    reduction: str = "mean",
) -> Tensor:
    """Loss of a wrong order: max(0, margin - target * (input1 - input2)).

    Args:
        input1: The first scores.
        input2: The second scores, of the same shape.
        target: 1 where the first score should be higher, -1 where the second should.
        margin: How much higher it should be.
        reduction: "mean", "sum" or "none", which returns the loss of each element.

    Raises:
        GraphError: The shapes differ or the reduction is unknown.

    Example:
        >>> graphc.compile(lambda: graphc.margin_ranking_loss([1.0], [3.0], [1.0]))()
        array(2., dtype=float32)
    """
    difference = subtract(*same_shape("margin_ranking_loss", input1, input2))
    loss = relu(subtract(margin, multiply(target, difference)))
    return reduced("margin_ranking_loss", loss, reduction)


@giving_float32
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
    """Triplet loss: max(0, d(anchor, positive) - d(anchor, negative) + margin).

    The distance d is `pairwise_distance`.

    Args:
        anchor: The anchors [..., features].
        positive: Samples that should be near the anchors.
        negative: Samples that should be far from the anchors.
        margin: How much farther they should be.
        p: The order of the norm.
        eps: Added to differences.
        swap: Whether d(positive, negative) replaces d(anchor, negative) where it is smaller.
        reduction: "mean", "sum" or "none", which returns the loss of each element.

    Example:
        >>> graphc.compile(lambda: graphc.triplet_margin_loss([[0.0]], [[2.0]], [[1.0]], eps=0.0))()
        array(2., dtype=float32)
    """
    near, far = (pairwise_distance(anchor, other, p, eps) for other in (positive, negative))
    far = minimum(far, pairwise_distance(positive, negative, p, eps)) if swap else far
    return reduced("triplet_margin_loss", relu(add(subtract(near, far), margin)), reduction)
