"""Losses as layers, with PyTorch's names and arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from graphc import functions
from graphc.functions.network.losses.reducing import reduced
from graphc.ir import TensorLike
from graphc.nn import check
from graphc.nn.module import Module
from graphc.nn.parameter import Parameter
from graphc.trace import Tensor


class _Loss(Module):
    """A loss of `input` and `target`; `reduction` is "mean", "sum" or "none"."""

    def __init__(self, reduction: str = "mean") -> None:
        if reduction not in ("mean", "sum", "none"):
            check.fail(
                f"{type(self).__name__}: reduction expected 'mean', 'sum' or 'none', "
                f"got {reduction!r}"
            )
        self.reduction = reduction

    def describe(self) -> str:
        return f"reduction={self.reduction!r}"


class _ClassLoss(_Loss):
    """A loss of class numbers. `weight` [c] weighs the classes, and is state that is not trained;
    labels equal to `ignore_index` count nowhere."""

    def __init__(
        self, weight: TensorLike | None = None, ignore_index: int = -100, reduction: str = "mean"
    ) -> None:
        super().__init__(reduction)
        self.weight = _constant(weight)
        self.ignore_index = check.axis(type(self).__name__, "ignore_index", ignore_index)


class CrossEntropyLoss(_ClassLoss):
    """The negative log-likelihood of target under softmax(input, axis 1). input [n, c, ...];
    target: class numbers [n, ...] (integers) or a probability per class (floats, input's shape)."""

    def __init__(
        self,
        weight: TensorLike | None = None,
        ignore_index: int = -100,
        reduction: str = "mean",
        label_smoothing: float = 0.0,
    ) -> None:
        super().__init__(weight, ignore_index, reduction)
        self.label_smoothing = check.number(
            "CrossEntropyLoss", "label_smoothing", label_smoothing, 0.0, 1.0
        )

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return functions.cross_entropy(
            input, target, self.weight, self.ignore_index, self.reduction, self.label_smoothing
        )


class NLLLoss(_ClassLoss):
    """The negative of input [n, c, ...], log-probabilities, at the class numbers target [n, ...]
    (integers)."""

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return functions.nll_loss(input, target, self.weight, self.ignore_index, self.reduction)


class MSELoss(_Loss):
    """The squared difference."""

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return functions.mse_loss(input, target, self.reduction)


class L1Loss(_Loss):
    """The absolute difference."""

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return functions.l1_loss(input, target, self.reduction)


class BCEWithLogitsLoss(_Loss):
    """The negative log-likelihood of the probabilities target under sigmoid(input), times `weight`;
    the part of target itself times `pos_weight`. Both broadcast and are state that is not trained.
    """

    def __init__(
        self,
        weight: TensorLike | None = None,
        reduction: str = "mean",
        pos_weight: TensorLike | None = None,
    ) -> None:
        super().__init__(reduction)
        self.weight, self.pos_weight = _constant(weight), _constant(pos_weight)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return functions.binary_cross_entropy_with_logits(
            input, target, self.weight, self.reduction, self.pos_weight
        )


class SmoothL1Loss(_Loss):
    """d * d / (2 * beta) where the difference d is below `beta`, |d| - beta / 2 elsewhere."""

    def __init__(self, reduction: str = "mean", beta: float = 1.0) -> None:
        super().__init__(reduction)
        self.beta = check.number("SmoothL1Loss", "beta", beta, 0.0, float("inf"))

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return functions.smooth_l1_loss(input, target, self.reduction, self.beta)


class HuberLoss(_Loss):
    """d * d / 2 where the difference d is below `delta`, delta * (|d| - delta / 2) elsewhere."""

    def __init__(self, reduction: str = "mean", delta: float = 1.0) -> None:
        super().__init__(reduction)
        self.delta = check.number("HuberLoss", "delta", delta, 0.0, float("inf"))

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return functions.huber_loss(input, target, self.reduction, self.delta)


class BCELoss(_Loss):
    """The negative log-likelihood of the probabilities target under the probabilities input, times
    `weight`, which broadcasts and is state that is not trained; no logarithm is below -100."""

    def __init__(self, weight: TensorLike | None = None, reduction: str = "mean") -> None:
        super().__init__(reduction)
        self.weight = _constant(weight)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return functions.binary_cross_entropy(input, target, self.weight, self.reduction)


class KLDivLoss(_Loss):
    """target * (log(target) - input) of log-probabilities input; target holds probabilities, or
    their logarithms if `log_target`. The reduction "batchmean" divides the sum by the batch."""

    def __init__(self, reduction: str = "mean", log_target: bool = False) -> None:
        super().__init__("sum" if reduction == "batchmean" else reduction)
        self.reduction, self.log_target = reduction, bool(log_target)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return functions.kl_div(input, target, self.reduction, self.log_target)


class PoissonNLLLoss(_Loss):
    """exp(input) - target * input for the logarithm of a rate; input - target * log(input + eps)
    for the rate itself, without `log_input`. `full` adds Stirling's approximation of log(target!)
    where target is above 1."""

    def __init__(
        self,
        log_input: bool = True,
        full: bool = False,
        eps: float = 1e-8,
        reduction: str = "mean",
    ) -> None:
        super().__init__(reduction)
        self.log_input, self.full = bool(log_input), bool(full)
        self.eps = check.number("PoissonNLLLoss", "eps", eps, 0.0, float("inf"))

    def forward(self, log_input: Tensor, target: Tensor) -> Tensor:
        return functions.poisson_nll_loss(
            log_input, target, self.log_input, self.full, self.eps, self.reduction
        )


class GaussianNLLLoss(_Loss):
    """(log(var) + (input - target)^2 / var) / 2 with var of at least `eps`; `full` adds
    log(2 pi) / 2."""

    def __init__(self, *, full: bool = False, eps: float = 1e-6, reduction: str = "mean") -> None:
        super().__init__(reduction)
        self.full = bool(full)
        self.eps = check.number("GaussianNLLLoss", "eps", eps, 0.0, float("inf"))

    def forward(self, input: Tensor, target: Tensor, var: Tensor) -> Tensor:
        return functions.gaussian_nll_loss(input, target, var, self.full, self.eps, self.reduction)


class SoftMarginLoss(_Loss):
    """log(1 + exp(-target * input)); target is 1 or -1."""

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return functions.soft_margin_loss(input, target, self.reduction)


class MultiLabelMarginLoss(_Loss):
    """The mean over the classes i that are no labels of the sum over the labels j of
    max(0, 1 - (input[j] - input[i])); target [n, c] lists the labels, up to the first -1."""

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return functions.multilabel_margin_loss(input, target, self.reduction)


class MultiLabelSoftMarginLoss(_Loss):
    """The mean over the classes of the negative log-likelihood of target, 0 or 1 for each, under
    sigmoid(input), times `weight` [c], which is state that is not trained."""

    def __init__(self, weight: TensorLike | None = None, reduction: str = "mean") -> None:
        super().__init__(reduction)
        self.weight = _constant(weight)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return functions.multilabel_soft_margin_loss(input, target, self.weight, self.reduction)


class MultiMarginLoss(_Loss):
    """The mean over the classes i other than the label j of
    max(0, margin - (input[j] - input[i]))^p, times weight[j]; `weight` [c] is state that is not
    trained."""

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
    """A loss that is 0 beyond `margin`."""

    def __init__(self, margin: float = 0.0, reduction: str = "mean") -> None:
        super().__init__(reduction)
        self.margin = check.real(type(self).__name__, "margin", margin)

    def describe(self) -> str:
        return f"margin={self.margin}, {super().describe()}"


class HingeEmbeddingLoss(_MarginLoss):
    """input where target is 1, max(0, margin - input) where it is -1."""

    def __init__(self, margin: float = 1.0, reduction: str = "mean") -> None:
        super().__init__(margin, reduction)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return functions.hinge_embedding_loss(input, target, self.margin, self.reduction)


class MarginRankingLoss(_MarginLoss):
    """max(0, margin - target * (input1 - input2)); target is 1 or -1."""

    def forward(self, input1: Tensor, input2: Tensor, target: Tensor) -> Tensor:
        return functions.margin_ranking_loss(input1, input2, target, self.margin, self.reduction)


class CosineEmbeddingLoss(_MarginLoss):
    """1 - cos where target is 1, max(0, cos - margin) where it is -1; cos is that of the angle
    between input1 and input2, [n, features] or [features]."""

    def forward(self, input1: Tensor, input2: Tensor, target: Tensor) -> Tensor:
        return functions.cosine_embedding_loss(input1, input2, target, self.margin, self.reduction)


class TripletMarginLoss(_MarginLoss):
    """max(0, distance(anchor, positive) - distance(anchor, negative) + margin), the distance being
    the norm of order `p` of a difference plus `eps` along the last axis. With `swap` the distance
    of positive and negative counts if it is below that of anchor and negative."""

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
    """`TripletMarginLoss` with a distance of one's own: a function of two tensors, by default
    `pairwise_distance`."""

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


class CTCLoss(_Loss):
    """`graphc.ctc_loss` with these settings, of log_probs [t, n, c], targets, input_lengths and
    target_lengths."""

    def __init__(
        self, blank: int = 0, reduction: str = "mean", zero_infinity: bool = False
    ) -> None:
        super().__init__(reduction)
        self.blank = check.integer("CTCLoss", "blank", blank, 0)
        self.zero_infinity = bool(zero_infinity)

    def forward(
        self, log_probs: Tensor, targets: Tensor, input_lengths: Any, target_lengths: Any
    ) -> Tensor:
        lengths = input_lengths, target_lengths
        return functions.ctc_loss(
            log_probs, targets, *lengths, self.blank, self.reduction, self.zero_infinity
        )


class CosineSimilarity(Module):
    """The cosine of the angle between x1 and x2 along the axis `dim`; no norm counts as less than
    `eps`."""

    def __init__(self, dim: int = 1, eps: float = 1e-8) -> None:
        self.dim = check.axis("CosineSimilarity", "dim", dim)
        self.eps = check.number("CosineSimilarity", "eps", eps, 0.0, float("inf"))

    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        return functions.cosine_similarity(x1, x2, self.dim, self.eps)


class PairwiseDistance(Module):
    """The norm of order `p` of x1 - x2 + eps along the last axis, which `keepdim` keeps."""

    def __init__(self, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False) -> None:
        self.norm = check.real("PairwiseDistance", "p", p)
        self.eps = check.real("PairwiseDistance", "eps", eps)
        self.keepdim = bool(keepdim)

    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        return functions.pairwise_distance(x1, x2, self.norm, self.eps, self.keepdim)


def _constant(values: Any) -> Parameter | None:
    return None if values is None else Parameter(values, trainable=False)
