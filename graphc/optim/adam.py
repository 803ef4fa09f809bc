"""Adam and AdamW."""

from __future__ import annotations

import math

from graphc import functions
from graphc.base.errors import GraphError
from graphc.base.source_lines import user_line
from graphc.optim.groups import Rate
from graphc.optim.rule import Groups, Rule
from graphc.trace import Tensor


class WithMeans(Rule):
    """Base of optimizers with running means of g and g * g, whose decay rates are `betas`."""

    decoupled_weight_decay = False
    """Whether `weight_decay` shrinks the weights themselves, and is no part of the gradient."""

    def __init__(
        self,
        lr: Rate,
        betas: tuple[float, float],
        eps: float,
        weight_decay: float,
        clip_grad_norm: float | None,
        groups: Groups,
        ema: float | None,
        maximize: bool,
    ) -> None:
        super().__init__(lr, weight_decay, clip_grad_norm, groups, ema, maximize)
        if not isinstance(betas, (tuple, list)) or len(betas) != 2:
            raise GraphError(
                f"{type(self).__name__}: betas expected a pair of numbers in [0, 1), "
                f"got {betas!r} ({', '.join(user_line())})"
            )
        first, second = (self.number("betas", beta, below=1.0) for beta in betas)
        self.betas = (first, second)
        self.eps = self.number("eps", eps)

    @property
    def moments(self) -> tuple[str, ...]:
        return ("exp_avg", "exp_avg_sq")

    def means(self, gradient: Tensor, moments: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
        """Return the running means of g and g * g, from the first two moments."""
        mean = moments[0] + (gradient - moments[0]) * (1 - self.betas[0])
        return mean, self.betas[1] * moments[1] + (1 - self.betas[1]) * (gradient * gradient)

    def decay(self, weight: Tensor, gradient: Tensor, rate: Tensor) -> tuple[Tensor, Tensor]:
        """Return weight and gradient after weight decay."""
        if self.decoupled_weight_decay:
            return self.shrunk(weight, rate), gradient
        return weight, self.decayed(weight, gradient)


class Adam(WithMeans):
    """Adam: w -= lr * m' / (sqrt(v') + eps).

    m and v are running means of g and g * g, and m' = m / (1 - betas[0]^t), v' = v / (1 -
    betas[1]^t) at step t.

    Args:
        lr: The learning rate, or a function from the number of finished steps to one.
        betas: The decay rates of the two running means.
        eps: Added to the denominator.
        weight_decay: The factor of w that is added to g.
        amsgrad: Whether to use the largest v so far (Reddi et al., 2018).
        clip_grad_norm: The largest norm of all gradients together; larger ones are scaled down.
        groups: Parameter groups with arguments of their own, see `Rule`.
        ema: The decay rate of running averages of the parameters, see `Rule`.
        maximize: Whether to increase the loss.

    Example:
        >>> model = nn.Linear(2, 1)
        >>> step = graphc.compile(lambda m: graphc.sum(m.weight**2), model, update=optim.Adam())
        >>> bool(step() > step())
        True
    """

    def __init__(
        self,
        lr: Rate = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        amsgrad: bool = False,
        clip_grad_norm: float | None = None,
        groups: Groups = (),
        ema: float | None = None,
        maximize: bool = False,
    ) -> None:
        super().__init__(lr, betas, eps, weight_decay, clip_grad_norm, groups, ema, maximize)
        self.amsgrad = bool(amsgrad)

    @property
    def moments(self) -> tuple[str, ...]:
        return (*super().moments, *(("max_exp_avg_sq",) if self.amsgrad else ()))

    def scalars(self, rate: Tensor, step: Tensor) -> tuple[Tensor, ...]:
        first, second = (correction(step, beta) for beta in self.betas)
        return rate, rate / first, functions.sqrt(second)

    def apply(
        self,
        weight: Tensor,
        gradient: Tensor,
        moments: tuple[Tensor, ...],
        scalars: tuple[Tensor, ...],
    ) -> tuple[Tensor, ...]:
        rate, corrected_rate, root = scalars
        weight, gradient = self.decay(weight, gradient, rate)
        mean, square = self.means(gradient, moments)
        largest = (functions.maximum(moments[2], square),) if self.amsgrad else ()
        scale = functions.sqrt(largest[0] if largest else square) / root + self.eps
        return weight - corrected_rate * (mean / scale), mean, square, *largest


class AdamW(Adam):
    """Adam with decoupled weight decay: w *= 1 - lr * weight_decay before each step.

    Args:
        lr: The learning rate, or a function from the number of finished steps to one.
        betas: The decay rates of the two running means.
        eps: Added to the denominator.
        weight_decay: By how much the weights shrink.
        amsgrad: Whether to use the largest v so far (Reddi et al., 2018).
        clip_grad_norm: The largest norm of all gradients together; larger ones are scaled down.
        groups: Parameter groups with arguments of their own, see `Rule`.
        ema: The decay rate of running averages of the parameters, see `Rule`.
        maximize: Whether to increase the loss.

    Example:
        >>> model = nn.Linear(2, 1)
        >>> step = graphc.compile(lambda m: graphc.sum(m.weight**2), model, update=optim.AdamW())
        >>> bool(step() > step())
        True
    """

    decoupled_weight_decay = True

    def __init__(
        self,
        lr: Rate = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        amsgrad: bool = False,
        clip_grad_norm: float | None = None,
        groups: Groups = (),
        ema: float | None = None,
        maximize: bool = False,
    ) -> None:
        common = clip_grad_norm, groups, ema, maximize
        super().__init__(lr, betas, eps, weight_decay, amsgrad, *common)


def correction(step: Tensor, beta: float) -> Tensor:
    """Return 1 - beta^step, accurate where beta^step is near 1."""
    exponent = math.log(beta) if beta else -100.0  # exp(-100) is nothing beside 1
    return -functions.expm1(step * exponent)
