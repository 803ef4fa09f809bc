"""Losses as modules, with the names and arguments of torch.nn."""

from __future__ import annotations

from typing import Any

from graphc import functions
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
    """A loss of classes, with a constant weight per class [c] and a label to ignore."""

    def __init__(
        self, weight: TensorLike | None = None, ignore_index: int = -100, reduction: str = "mean"
    ) -> None:
        super().__init__(reduction)
        self.weight = _constant(weight)
        self.ignore_index = check.axis(type(self).__name__, "ignore_index", ignore_index)


class CrossEntropyLoss(_ClassLoss):
    """Negative log-likelihood of classes under softmax(input): `graphc.cross_entropy`.

    `input` is [n, c, ...]; `target` holds classes [n, ...], or probabilities in the shape of
    `input`.

    Args:
        weight: A weight per class [c], which is not trained.
        ignore_index: The label that is left out.
        reduction: "mean", "sum" or "none", which returns [n, ...].
        label_smoothing: The share of probability that is spread over all classes.

    Example:
        >>> loss = graphc.compile(lambda: nn.CrossEntropyLoss()([[0.0, 0.0]], [1]))
        >>> print(loss().round(4))
        0.6931
    """

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
    """Negative log-likelihood of classes, from log-probabilities: `graphc.nll_loss`.

    `input` is [n, c, ...], `target` holds classes [n, ...].

    Args:
        weight: A weight per class [c], which is not trained.
        ignore_index: The label that is left out.
        reduction: "mean", "sum" or "none", which returns [n, ...].

    Example:
        >>> graphc.compile(lambda: nn.NLLLoss()([[-1.0, -2.0]], [1]))()
        array(2., dtype=float32)
    """

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return functions.nll_loss(input, target, self.weight, self.ignore_index, self.reduction)


class MSELoss(_Loss):
    """Squared difference: (input - target)^2.

    Args:
        reduction: "mean", "sum" or "none", which returns the loss of each element.

    Example:
        >>> graphc.compile(lambda: nn.MSELoss()([1.0, 2.0], [1.0, 4.0]))()
        array(2., dtype=float32)
    """

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return functions.mse_loss(input, target, self.reduction)


class L1Loss(_Loss):
    """Absolute difference: |input - target|.

    Args:
        reduction: "mean", "sum" or "none", which returns the loss of each element.

    Example:
        >>> graphc.compile(lambda: nn.L1Loss()([1.0, 2.0], [1.0, 4.0]))()
        array(1., dtype=float32)
    """

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return functions.l1_loss(input, target, self.reduction)


class BCEWithLogitsLoss(_Loss):
    """Negative log-likelihood of probabilities under sigmoid(input).

    Args:
        weight: Factors of the losses, which broadcast and are not trained.
        reduction: "mean", "sum" or "none", which returns the loss of each element.
        pos_weight: Factors of the part of the positive class, which broadcast and are not trained.

    Example:
        >>> loss = graphc.compile(lambda: nn.BCEWithLogitsLoss()([0.0], [1.0]))
        >>> print(loss().round(4))
        0.6931
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
    """Quadratic loss near 0, linear beyond: d^2 / (2 beta) where |d| < beta, else |d| - beta / 2.

    Args:
        reduction: "mean", "sum" or "none", which returns the loss of each element.
        beta: The difference at which the loss becomes linear.

    Example:
        >>> graphc.compile(lambda: nn.SmoothL1Loss()([0.0], [3.0]))()
        array(2.5, dtype=float32)
    """

    def __init__(self, reduction: str = "mean", beta: float = 1.0) -> None:
        super().__init__(reduction)
        self.beta = check.number("SmoothL1Loss", "beta", beta, 0.0, float("inf"))

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return functions.smooth_l1_loss(input, target, self.reduction, self.beta)


class HuberLoss(_Loss):
    """Huber loss: d^2 / 2 where |d| < delta, else delta * (|d| - delta / 2).

    Args:
        reduction: "mean", "sum" or "none", which returns the loss of each element.
        delta: The difference at which the loss becomes linear.

    Example:
        >>> graphc.compile(lambda: nn.HuberLoss()([0.0], [3.0]))()
        array(2.5, dtype=float32)
    """

    def __init__(self, reduction: str = "mean", delta: float = 1.0) -> None:
        super().__init__(reduction)
        self.delta = check.number("HuberLoss", "delta", delta, 0.0, float("inf"))

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return functions.huber_loss(input, target, self.reduction, self.delta)


class BCELoss(_Loss):
    """Negative log-likelihood: -(target * log(input) + (1 - target) * log(1 - input)).

    Logarithms are limited to -100.

    Args:
        weight: Factors of the losses, which broadcast and are not trained.
        reduction: "mean", "sum" or "none", which returns the loss of each element.

    Example:
        >>> loss = graphc.compile(lambda: nn.BCELoss()([0.5], [1.0]))
        >>> print(loss().round(4))
        0.6931
    """

    def __init__(self, weight: TensorLike | None = None, reduction: str = "mean") -> None:
        super().__init__(reduction)
        self.weight = _constant(weight)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return functions.binary_cross_entropy(input, target, self.weight, self.reduction)


class KLDivLoss(_Loss):
    """Kullback-Leibler divergence: target * (log(target) - input), of log-probabilities `input`.

    Args:
        reduction: "mean", "sum", "none", or "batchmean", which divides the sum by the size of axis
            0.
        log_target: Whether `target` holds logarithms of probabilities.

    Example:
        >>> graphc.compile(lambda: nn.KLDivLoss("batchmean")(np.log([0.5, 0.5]), [0.5, 0.5]))()
        array(0.)
    """

    def __init__(self, reduction: str = "mean", log_target: bool = False) -> None:
        super().__init__("sum" if reduction == "batchmean" else reduction)
        self.reduction, self.log_target = reduction, bool(log_target)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return functions.kl_div(input, target, self.reduction, self.log_target)


class PoissonNLLLoss(_Loss):
    """Negative log-likelihood of counts: e^input - target * input.

    Args:
        log_input: Whether `input` holds logarithms of rates; for rates the loss is input - target *
            log(input + eps).
        full: Whether to add Stirling's approximation of log(target!) where target > 1.
        eps: Added to rates before the logarithm.
        reduction: "mean", "sum" or "none", which returns the loss of each element.

    Example:
        >>> graphc.compile(lambda: nn.PoissonNLLLoss()([0.0], [3.0]))()
        array(1., dtype=float32)
    """

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
    """Negative log-likelihood of normal numbers: (log(var) + (input - target)^2 / var) / 2.

    Args:
        full: Whether to add log(2 pi) / 2.
        eps: The smallest variance.
        reduction: "mean", "sum" or "none", which returns the loss of each element.

    Example:
        >>> graphc.compile(lambda: nn.GaussianNLLLoss()([1.0], [3.0], [1.0]))()
        array(2., dtype=float32)
    """

    def __init__(self, *, full: bool = False, eps: float = 1e-6, reduction: str = "mean") -> None:
        super().__init__(reduction)
        self.full = bool(full)
        self.eps = check.number("GaussianNLLLoss", "eps", eps, 0.0, float("inf"))

    def forward(self, input: Tensor, target: Tensor, var: Tensor) -> Tensor:
        return functions.gaussian_nll_loss(input, target, var, self.full, self.eps, self.reduction)


class CTCLoss(_Loss):
    """Connectionist temporal classification loss: `graphc.ctc_loss`.

    It is called with log_probs [t, n, c], targets, input_lengths and target_lengths.

    Args:
        blank: The class that stands for no class.
        reduction: "mean" of loss / max(length of target, 1), "sum", or "none", which returns [n].
        zero_infinity: Whether a target that no path spells gives 0 instead of infinity.

    Example:
        >>> steps = np.log(np.full((2, 1, 2), 0.5, np.float32))
        >>> loss = graphc.compile(lambda: nn.CTCLoss()(steps, [[1]], [2], [1]))
        >>> print(loss().round(4))
        0.2877
    """

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


def _constant(values: Any) -> Parameter | None:
    return None if values is None else Parameter(values, trainable=False)
