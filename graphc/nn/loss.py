"""Losses as layers, with PyTorch's names and arguments."""

from __future__ import annotations

from typing import Any

from graphc import functions
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
        self, weight: Any = None, ignore_index: int = -100, reduction: str = "mean"
    ) -> None:
        super().__init__(reduction)
        self.weight = None if weight is None else Parameter(weight, trainable=False)
        self.ignore_index = check.axis(type(self).__name__, "ignore_index", ignore_index)


class CrossEntropyLoss(_ClassLoss):
    """The negative log-likelihood of target under softmax(input, axis 1). input [n, c, ...];
    target: class numbers [n, ...] (integers) or a probability per class (floats, input's shape)."""

    def __init__(
        self,
        weight: Any = None,
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
    """The negative log-likelihood of the probabilities target under sigmoid(input)."""

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return functions.binary_cross_entropy_with_logits(input, target, reduction=self.reduction)


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
    """The negative log-likelihood of the probabilities target under the probabilities input; no
    logarithm is below -100."""

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return functions.binary_cross_entropy(input, target, reduction=self.reduction)


class KLDivLoss(_Loss):
    """target * (log(target) - input) of log-probabilities input; target holds probabilities, or
    their logarithms if `log_target`. The reduction "batchmean" divides the sum by the batch."""

    def __init__(self, reduction: str = "mean", log_target: bool = False) -> None:
        super().__init__("sum" if reduction == "batchmean" else reduction)
        self.reduction, self.log_target = reduction, bool(log_target)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return functions.kl_div(input, target, self.reduction, self.log_target)
