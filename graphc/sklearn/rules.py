"""Update rules with scikit-learn's arithmetic, which differs from PyTorch's."""

from __future__ import annotations

from graphc import functions
from graphc.optim import Rule
from graphc.optim.adam import correction
from graphc.trace import Tensor


class MomentumSGD(Rule):
    """v = momentum * v - lr * g; w += v, or momentum * v - lr * g with Nesterov's momentum.

    The rate is part of v, so that a new rate changes steps that come later only.
    """

    def __init__(self, momentum: float, nesterov: bool) -> None:
        super().__init__(1e-3, weight_decay=0.0, clip_grad_norm=None)
        self.momentum, self.nesterov = momentum, nesterov

    @property
    def moments(self) -> tuple[str, ...]:
        return ("velocity",)

    def apply(
        self,
        weight: Tensor,
        gradient: Tensor,
        moments: tuple[Tensor, ...],
        scalars: tuple[Tensor, ...],
    ) -> tuple[Tensor, ...]:
        move = scalars[0] * gradient
        velocity = self.momentum * moments[0] - move
        return weight + (self.momentum * velocity - move if self.nesterov else velocity), velocity


class ScaledAdam(Rule):
    """Adam whose epsilon is added to the square root before that is corrected for its bias."""

    def __init__(self, beta_1: float, beta_2: float, epsilon: float) -> None:
        super().__init__(1e-3, weight_decay=0.0, clip_grad_norm=None)
        self.beta_1, self.beta_2, self.epsilon = beta_1, beta_2, epsilon

    @property
    def moments(self) -> tuple[str, ...]:
        return ("mean", "square")

    def scalars(self, rate: Tensor, step: Tensor) -> tuple[Tensor, ...]:
        first, second = (correction(step, beta) for beta in (self.beta_1, self.beta_2))
        return (rate * functions.sqrt(second) / first,)

    def apply(
        self,
        weight: Tensor,
        gradient: Tensor,
        moments: tuple[Tensor, ...],
        scalars: tuple[Tensor, ...],
    ) -> tuple[Tensor, ...]:
        mean = self.beta_1 * moments[0] + (1 - self.beta_1) * gradient
        square = self.beta_2 * moments[1] + (1 - self.beta_2) * gradient * gradient
        return weight - scalars[0] * mean / (functions.sqrt(square) + self.epsilon), mean, square
