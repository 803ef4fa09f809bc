"""Variants of Adam: NAdam, RAdam, Adamax and SparseAdam."""

from __future__ import annotations

import math

import numpy as np

from graphc import functions
from graphc.optim.adam import WithMeans, correction
from graphc.optim.groups import Rate
from graphc.optim.rule import Groups
from graphc.trace import Tensor

TERMS = 26
"""Of a series in powers of 1/2, whose sum is then right to the last bit of float32."""
RECTIFIED = 5.0
"""RAdam divides by the root of the second moment where it is worth so many samples."""


class NAdam(WithMeans):
    """Adam with Nesterov momentum (Dozat, 2016).

    With mu_t = betas[0] * (1 - 0.5 * 0.96^(t * momentum_decay)) and P_t = mu_1 * ... * mu_t, w -=
    lr * ((1 - mu_t) / (1 - P_t) * g + mu_(t+1) / (1 - P_(t+1)) * m) / (sqrt(v') + eps).

    Args:
        lr: The learning rate, or a function from the number of finished steps to one.
        betas: The decay rates of the two running means.
        eps: Added to the denominator.
        weight_decay: The factor of w that is added to g.
        momentum_decay: The decay of the momentum.
        decoupled_weight_decay: Whether `weight_decay` shrinks the weights as in `AdamW`.
        clip_grad_norm: The largest norm of all gradients together; larger ones are scaled down.
        groups: Parameter groups with arguments of their own, see `Rule`.
        ema: The decay rate of running averages of the parameters, see `Rule`.
        maximize: Whether to increase the loss.

    Example:
        >>> model = nn.Linear(2, 1)
        >>> step = graphc.compile(lambda m: graphc.sum(m.weight**2), model, update=optim.NAdam())
        >>> bool(step() > step())
        True
    """

    def __init__(
        self,
        lr: Rate = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        momentum_decay: float = 4e-3,
        decoupled_weight_decay: bool = False,
        clip_grad_norm: float | None = None,
        groups: Groups = (),
        ema: float | None = None,
        maximize: bool = False,
    ) -> None:
        super().__init__(lr, betas, eps, weight_decay, clip_grad_norm, groups, ema, maximize)
        self.momentum_decay = self.number("momentum_decay", momentum_decay)
        self.decoupled_weight_decay = bool(decoupled_weight_decay)

    def scalars(self, rate: Tensor, step: Tensor) -> tuple[Tensor, ...]:
        now, ahead = self._momentum(step), self._momentum(step + 1)
        product = self._log_product(step)
        left = -functions.expm1(product)
        left_ahead = -functions.expm1(product + functions.log(ahead))
        root = functions.sqrt(correction(step, self.betas[1]))
        return rate, rate * (1 - now) / left, rate * ahead / left_ahead, root

    def apply(
        self,
        weight: Tensor,
        gradient: Tensor,
        moments: tuple[Tensor, ...],
        scalars: tuple[Tensor, ...],
    ) -> tuple[Tensor, ...]:
        rate, of_gradient, of_mean, root = scalars
        weight, gradient = self.decay(weight, gradient, rate)
        mean, square = self.means(gradient, moments)
        scale = functions.sqrt(square) / root + self.eps
        direction = of_gradient * gradient + of_mean * mean
        return weight - direction / scale, mean, square

    def _momentum(self, step: Tensor) -> Tensor:
        lost = 0.5 * functions.exp(step * (self.momentum_decay * math.log(0.96)))
        return max(self.betas[0], 1e-30) * (1 - lost)

    def _log_product(self, step: Tensor) -> Tensor:
        """Return the logarithm of the product of all momenta up to `step`.

        With r = 0.96^momentum_decay it is t log(betas[0]) + sum of log(1 - r^i / 2) for i from 1 to
        t. Each logarithm is a series in powers of r^i / 2, and the sums over i are geometric.
        """
        ratio = self.momentum_decay * math.log(0.96)
        base = math.log(max(self.betas[0], 1e-30))
        if ratio == 0:
            return step * (base + math.log(0.5))
        powers = np.arange(1, TERMS + 1)
        weights = 0.5**powers / powers * np.exp(ratio * powers) / -np.expm1(ratio * powers)
        exponents = functions.as_tensor((ratio * powers).astype(np.float32))
        series = functions.as_tensor(weights.astype(np.float32)) * functions.expm1(step * exponents)
        return step * base + functions.sum(series)


class RAdam(WithMeans):
    """Adam that corrects the variance of its first steps (Liu et al., 2020).

    The second moment is left out while it is worth five samples or fewer.

    Args:
        lr: The learning rate, or a function from the number of finished steps to one.
        betas: The decay rates of the two running means.
        eps: Added to the denominator.
        weight_decay: The factor of w that is added to g.
        decoupled_weight_decay: Whether `weight_decay` shrinks the weights as in `AdamW`.
        clip_grad_norm: The largest norm of all gradients together; larger ones are scaled down.
        groups: Parameter groups with arguments of their own, see `Rule`.
        ema: The decay rate of running averages of the parameters, see `Rule`.
        maximize: Whether to increase the loss.

    Example:
        >>> model = nn.Linear(2, 1)
        >>> step = graphc.compile(lambda m: graphc.sum(m.weight**2), model, update=optim.RAdam())
        >>> bool(step() > step())
        True
    """

    def __init__(
        self,
        lr: Rate = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        decoupled_weight_decay: bool = False,
        clip_grad_norm: float | None = None,
        groups: Groups = (),
        ema: float | None = None,
        maximize: bool = False,
    ) -> None:
        super().__init__(lr, betas, eps, weight_decay, clip_grad_norm, groups, ema, maximize)
        self.decoupled_weight_decay = bool(decoupled_weight_decay)

    def scalars(self, rate: Tensor, step: Tensor) -> tuple[Tensor, ...]:
        # The number of samples is a small difference of large numbers.
        step = functions.astype(step, "float64")
        first, second = (correction(step, beta) for beta in self.betas)
        most = 2 / (1 - self.betas[1]) - 1
        samples = most - 2 * step * (1 - second) / second
        enough = functions.greater(samples, RECTIFIED)
        counted = functions.where(enough, samples, RECTIFIED)
        variance = (counted - 4) * (counted - 2) * most / ((most - 4) * (most - 2) * counted)
        rectified = functions.sqrt(variance * second)
        return (
            rate,
            rate / functions.astype(first, rate.dtype),
            functions.astype(rectified, rate.dtype),
            functions.astype(enough, rate.dtype),
        )

    def apply(
        self,
        weight: Tensor,
        gradient: Tensor,
        moments: tuple[Tensor, ...],
        scalars: tuple[Tensor, ...],
    ) -> tuple[Tensor, ...]:
        rate, corrected_rate, rectified, enough = scalars
        weight, gradient = self.decay(weight, gradient, rate)
        mean, square = self.means(gradient, moments)
        adaptive = rectified / (functions.sqrt(square) + self.eps)
        scale = functions.where(functions.greater(enough, 0.5), adaptive, 1.0)
        return weight - corrected_rate * mean * scale, mean, square


class Adamax(WithMeans):
    """Adam with the maximum norm (Kingma and Ba, 2015): w -= lr / (1 - betas[0]^t) * m / u.

    m is the running mean of g, and u = max(betas[1] * u, |g| + eps).

    Args:
        lr: The learning rate, or a function from the number of finished steps to one.
        betas: The decay rates of m and u.
        eps: Added to the magnitude of gradients.
        weight_decay: The factor of w that is added to g.
        clip_grad_norm: The largest norm of all gradients together; larger ones are scaled down.
        groups: Parameter groups with arguments of their own, see `Rule`.
        ema: The decay rate of running averages of the parameters, see `Rule`.
        maximize: Whether to increase the loss.

    Example:
        >>> model = nn.Linear(2, 1)
        >>> step = graphc.compile(lambda m: graphc.sum(m.weight**2), model, update=optim.Adamax())
        >>> bool(step() > step())
        True
    """

    def __init__(
        self,
        lr: Rate = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        clip_grad_norm: float | None = None,
        groups: Groups = (),
        ema: float | None = None,
        maximize: bool = False,
    ) -> None:
        super().__init__(lr, betas, eps, weight_decay, clip_grad_norm, groups, ema, maximize)

    @property
    def moments(self) -> tuple[str, ...]:
        return ("exp_avg", "exp_inf")

    def scalars(self, rate: Tensor, step: Tensor) -> tuple[Tensor, ...]:
        return (rate / correction(step, self.betas[0]),)

    def apply(
        self,
        weight: Tensor,
        gradient: Tensor,
        moments: tuple[Tensor, ...],
        scalars: tuple[Tensor, ...],
    ) -> tuple[Tensor, ...]:
        (rate,) = scalars
        gradient = self.decayed(weight, gradient)
        mean = moments[0] + (gradient - moments[0]) * (1 - self.betas[0])
        size = functions.abs(gradient) + self.eps
        largest = functions.maximum(self.betas[1] * moments[1], size)
        return weight - rate * (mean / largest), mean, largest


class SparseAdam(WithMeans):
    """Adam for embeddings: only the rows that a step reads, and their moments, are updated.

    w -= lr * sqrt(1 - betas[1]^t) / (1 - betas[0]^t) * m / (sqrt(v) + eps) at step t. All
    parameters that it updates must be read by lookups alone (`nn.Embedding`, `embedding`, `take`);
    compile raises GraphError otherwise.

    Args:
        lr: The learning rate, or a function from the number of finished steps to one.
        betas: The decay rates of the two running means.
        eps: Added to the denominator.
        clip_grad_norm: The largest norm of all gradients together; larger ones are scaled down.
        groups: Parameter groups with arguments of their own, see `Rule`.
        maximize: Whether to increase the loss.

    Example:
        >>> table, rows = nn.Embedding(4, 2), np.array([0, 1])
        >>> rule = optim.SparseAdam()
        >>> step = graphc.compile(lambda t: graphc.sum(t(rows) ** 2), table, update=rule)
        >>> bool(step() > step())
        True
    """

    only_rows = True

    def __init__(
        self,
        lr: Rate = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        clip_grad_norm: float | None = None,
        groups: Groups = (),
        maximize: bool = False,
    ) -> None:
        super().__init__(lr, betas, eps, 0.0, clip_grad_norm, groups, None, maximize)

    def keeps_unread(self) -> bool:
        return True

    def scalars(self, rate: Tensor, step: Tensor) -> tuple[Tensor, ...]:
        first, second = (correction(step, beta) for beta in self.betas)
        return (rate * functions.sqrt(second) / first,)

    def apply(
        self,
        weight: Tensor,
        gradient: Tensor,
        moments: tuple[Tensor, ...],
        scalars: tuple[Tensor, ...],
    ) -> tuple[Tensor, ...]:
        mean, square = self.means(gradient, moments)
        return weight - scalars[0] * (mean / (functions.sqrt(square) + self.eps)), mean, square
