"""Margin losses and losses of distances as modules."""

from __future__ import annotations

from collections.abc import Callable

from graphc import functions
from graphc.functions.network.losses.reducing import reduced
from graphc.ir import TensorLike
from graphc.nn import check
from graphc.nn.layers.loss import _constant, _Loss
from graphc.nn.module import Module
from graphc.trace import Tensor


class SoftMarginLoss(_Loss):
    """Logistic loss of two classes: log(1 + e^(-target * input)); target is 1 or -1.

    Args:
        reduction: "mean", "sum" or "none", which returns the loss of each element.

    Example:
        >>> loss = graphc.compile(lambda: nn.SoftMarginLoss()([0.0], [1.0]))
        >>> print(loss().round(4))
        0.6931
    """

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return functions.soft_margin_loss(input, target, self.reduction)


class MultiLabelMarginLoss(_Loss):
    """Hinge loss of several labels: sums of max(0, 1 - x[label] + x[other]) over c.

    `target` lists the labels of each row of `input` [n, c], in the same shape, up to the first -1.

    Args:
        reduction: "mean", "sum" or "none", which returns the loss of each element.

    Example:
        >>> graphc.compile(lambda: nn.MultiLabelMarginLoss()([[1.0, 3.0]], [[0, -1]]))()
        array(1.5, dtype=float32)
    """

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return functions.multilabel_margin_loss(input, target, self.reduction)


class MultiLabelSoftMarginLoss(_Loss):
    """Mean of binary cross-entropies under sigmoid(input), over the classes.

    Args:
        weight: A weight per class [c], which is not trained.
        reduction: "mean", "sum" or "none", which returns the loss of each element.

    Example:
        >>> loss = graphc.compile(lambda: nn.MultiLabelSoftMarginLoss()([[0.0]], [[1.0]]))
        >>> print(loss().round(4))
        0.6931
    """

    def __init__(self, weight: TensorLike | None = None, reduction: str = "mean") -> None:
        super().__init__(reduction)
        self.weight = _constant(weight)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return functions.multilabel_soft_margin_loss(input, target, self.weight, self.reduction)


class MultiMarginLoss(_Loss):
    """Hinge loss of classes: the mean over the classes of max(0, margin - x[target] + x)^p.

    The target's own class is left out of the sum.

    Args:
        p: The exponent, 1 or 2.
        margin: By how much the target's score should be higher.
        weight: A weight per class [c], which is not trained.
        reduction: "mean", "sum" or "none", which returns the loss of each element.

    Example:
        >>> graphc.compile(lambda: nn.MultiMarginLoss()([[3.0, 1.0]], [1]))()
        array(1.5, dtype=float32)
    """

    def __init__(
        self,
        p: int = 1,
        margin: float = 1.0,
        weight: TensorLike | None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(reduction)
        self.p = check.integer("MultiMarginLoss", "p", p)
        self.margin = check.real("MultiMarginLoss", "margin", margin)
        self.weight = _constant(weight)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return functions.multi_margin_loss(
            input, target, self.p, self.margin, self.weight, self.reduction
        )


class _MarginLoss(_Loss):
    """A loss with a margin."""

    def __init__(self, margin: float = 0.0, reduction: str = "mean") -> None:
        super().__init__(reduction)
        self.margin = check.real(type(self).__name__, "margin", margin)

    def describe(self) -> str:
        return f"margin={self.margin}, {super().describe()}"


class HingeEmbeddingLoss(_MarginLoss):
    """Loss of distances: input where target is 1, max(0, margin - input) where it is -1.

    Args:
        margin: The distance from which on large ones cost nothing.
        reduction: "mean", "sum" or "none", which returns the loss of each element.

    Example:
        >>> graphc.compile(lambda: nn.HingeEmbeddingLoss()([0.5, 2.0], [1.0, -1.0]))()
        array(0.25, dtype=float32)
    """

    def __init__(self, margin: float = 1.0, reduction: str = "mean") -> None:
        super().__init__(margin, reduction)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return functions.hinge_embedding_loss(input, target, self.margin, self.reduction)


class MarginRankingLoss(_MarginLoss):
    """Loss of a wrong order: max(0, margin - target * (input1 - input2)); target is 1 or -1.

    Args:
        margin: By how much one score should be higher.
        reduction: "mean", "sum" or "none", which returns the loss of each element.

    Example:
        >>> graphc.compile(lambda: nn.MarginRankingLoss()([1.0], [3.0], [1.0]))()
        array(2., dtype=float32)
    """

    def forward(self, input1: Tensor, input2: Tensor, target: Tensor) -> Tensor:
        return functions.margin_ranking_loss(input1, input2, target, self.margin, self.reduction)


class CosineEmbeddingLoss(_MarginLoss):
    """Loss of the cosine between two vectors: 1 - cos, or max(0, cos - margin).

    `target` is 1 where vectors [n, features] or [features] should be alike, and -1 where not.

    Args:
        margin: The cosine up to which different vectors cost nothing.
        reduction: "mean", "sum" or "none", which returns the loss of each element.

    Example:
        >>> graphc.compile(lambda: nn.CosineEmbeddingLoss()([[1.0, 0.0]], [[0.0, 1.0]], [1]))()
        array(1., dtype=float32)
    """

    def forward(self, input1: Tensor, input2: Tensor, target: Tensor) -> Tensor:
        return functions.cosine_embedding_loss(input1, input2, target, self.margin, self.reduction)


class TripletMarginLoss(_MarginLoss):
    """Triplet loss: max(0, d(anchor, positive) - d(anchor, negative) + margin).

    The distance d is the norm of a difference along the last axis.

    Args:
        margin: How much farther negative samples should be.
        p: The order of the norm.
        eps: Added to differences.
        swap: Whether d(positive, negative) replaces d(anchor, negative) where it is smaller.
        reduction: "mean", "sum" or "none", which returns the loss of each element.

    Example:
        >>> graphc.compile(lambda: nn.TripletMarginLoss(eps=0.0)([[0.0]], [[2.0]], [[1.0]]))()
        array(2., dtype=float32)
    """

    def __init__(
        self,
        margin: float = 1.0,
        p: float = 2.0,
        eps: float = 1e-6,
        swap: bool = False,
        reduction: str = "mean",
    ) -> None:
        super().__init__(margin, reduction)
        self.p = check.real("TripletMarginLoss", "p", p)
        self.eps = check.real("TripletMarginLoss", "eps", eps)
        self.swap = bool(swap)

    def forward(self, anchor: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
        return functions.triplet_margin_loss(
            anchor, positive, negative, self.margin, self.p, self.eps, self.swap, self.reduction
        )


class TripletMarginWithDistanceLoss(_MarginLoss):
    """Triplet loss of any distance: max(0, d(anchor, positive) - d(anchor, negative) + margin).

    Args:
        distance_function: The distance of two tensors; by default `graphc.pairwise_distance`.
        margin: How much farther negative samples should be.
        swap: Whether d(positive, negative) replaces d(anchor, negative) where it is smaller.
        reduction: "mean", "sum" or "none", which returns the loss of each element.

    Example:
        >>> def distance(a, b):
        ...     return graphc.sum(graphc.abs(a - b), axis=-1)
        ...
        >>> loss = nn.TripletMarginWithDistanceLoss(distance_function=distance)
        >>> graphc.compile(lambda: loss(*np.array([[[0.0]], [[2.0]], [[1.0]]])))()
        array(2.)
    """

    def __init__(
        self,
        *,
        distance_function: Callable[[Tensor, Tensor], Tensor] | None = None,
        margin: float = 1.0,
        swap: bool = False,
        reduction: str = "mean",
    ) -> None:
        super().__init__(margin, reduction)
        self.distance_function = distance_function or functions.pairwise_distance
        self.swap = bool(swap)

    def forward(self, anchor: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
        near = self.distance_function(anchor, positive)
        far = self.distance_function(anchor, negative)
        if self.swap:
            far = functions.minimum(far, self.distance_function(positive, negative))
        return reduced(
            "TripletMarginWithDistanceLoss",
            functions.relu(near - far + self.margin),
            self.reduction,
        )


class CosineSimilarity(Module):
    """Cosine of the angle between vectors: sum(x1 * x2) / (|x1| * |x2|).

    Args:
        dim: The axis of the vectors' elements.
        eps: The smallest value of each norm.

    Example:
        >>> graphc.compile(lambda: nn.CosineSimilarity()([[1.0, 0.0]], [[3.0, 4.0]]))()
        array([0.6], dtype=float32)
    """

    def __init__(self, dim: int = 1, eps: float = 1e-8) -> None:
        self.dim = check.axis("CosineSimilarity", "dim", dim)
        self.eps = check.number("CosineSimilarity", "eps", eps, 0.0, float("inf"))

    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        return functions.cosine_similarity(x1, x2, self.dim, self.eps)


class PairwiseDistance(Module):
    """Norm of x1 - x2 + eps along the last axis.

    Args:
        p: The order of the norm.
        eps: Added to the difference.
        keepdim: Whether to keep the last axis, with size 1.

    Example:
        >>> graphc.compile(lambda: nn.PairwiseDistance(eps=0.0)([[0.0, 0.0]], [[3.0, 4.0]]))()
        array([5.], dtype=float32)
    """

    def __init__(self, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False) -> None:
        self.norm = check.real("PairwiseDistance", "p", p)
        self.eps = check.real("PairwiseDistance", "eps", eps)
        self.keepdim = bool(keepdim)

    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        return functions.pairwise_distance(x1, x2, self.norm, self.eps, self.keepdim)
