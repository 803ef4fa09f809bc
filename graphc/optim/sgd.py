"""Stochastic gradient descent."""

from __future__ import annotations

from graphc import functions
from graphc.errors import GraphError
from graphc.lines import user_line
from graphc.optim.groups import Rate
from graphc.optim.rule import Groups, Rule
from graphc.trace import Tensor


class SGD(Rule):
    """w -= lr * b, where b = momentum * b + (1 - dampening) * (g + weight_decay * w).

    The first b is the gradient itself. With `nesterov`, g + momentum * b is used for b.
    """

    def __init__(
        self,
        lr: Rate = 1e-3,
        momentum: float = 0.0,
        dampening: float = 0.0,
        weight_decay: float = 0.0,
        nesterov: bool = False,
        clip_grad_norm: float | None = None,
        groups: Groups = (),
        ema: float | None = None,
    ) -> None:
        super().__init__(lr, weight_decay, clip_grad_norm, groups, ema)
        self.momentum = self.number("momentum", momentum)
        self.dampening = self.number("dampening", dampening)
        self.nesterov = bool(nesterov)
        if self.nesterov and (not self.momentum or self.dampening):
            raise GraphError(
                "SGD: nesterov expected momentum > 0 and dampening = 0, "
                f"got {momentum!r} and {dampening!r} ({', '.join(user_line())})"
            )

    @property
    def moments(self) -> tuple[str, ...]:
        return ("momentum",) if self.momentum else ()

    def scalars(self, rate: Tensor, step: Tensor) -> tuple[Tensor, ...]:
        if not self.dampening:
            return (rate,)
        return rate, functions.where(functions.equal(step, 1.0), 1.0, 1 - self.dampening)

    def apply(
        self,
        weight: Tensor,
        gradient: Tensor,
        moments: tuple[Tensor, ...],
        scalars: tuple[Tensor, ...],
    ) -> tuple[Tensor, ...]:
        rate = scalars[0]
        if self.weight_decay:
            gradient = gradient + self.weight_decay * weight
        if not self.momentum:
            return (weight - rate * gradient,)
        fresh = gradient * scalars[1] if self.dampening else gradient
        momentum = self.momentum * moments[0] + fresh
        direction = gradient + self.momentum * momentum if self.nesterov else momentum
        return weight - rate * direction, momentum
