"""Stochastic gradient descent, and averaged stochastic gradient descent."""

from __future__ import annotations

from graphc import functions
from graphc.base.errors import GraphError
from graphc.base.source_lines import user_line
from graphc.optim.groups import Rate
from graphc.optim.rule import Groups, Rule
from graphc.trace import Tensor


class SGD(Rule):
    """Stochastic gradient descent with momentum: w -= lr * b.

    b = momentum * b + (1 - dampening) * (g + weight_decay * w); the first b is the gradient itself.

    Args:
        lr: The learning rate, or a function from the number of finished steps to one.
        momentum: The factor of the previous b.
        dampening: By how much the gradient is damped.
        weight_decay: The factor of w that is added to g.
        nesterov: Whether to use g + momentum * b instead of b.
        clip_grad_norm: The largest norm of all gradients together; larger ones are scaled down.
        groups: Parameter groups with arguments of their own, see `Rule`.
        ema: The decay rate of running averages of the parameters, see `Rule`.
        maximize: Whether to increase the loss.

    Raises:
        GraphError: `nesterov` without momentum, or with dampening.

    Example:
        >>> model = nn.Linear(2, 1)
        >>> step = graphc.compile(lambda m: graphc.sum(m.weight**2), model, update=optim.SGD())
        >>> bool(step() > step())
        True
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
        maximize: bool = False,
    ) -> None:
        super().__init__(lr, weight_decay, clip_grad_norm, groups, ema, maximize)
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

    def keeps_unread(self) -> bool:
        return not self.momentum and not self.weight_decay

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
        gradient = self.decayed(weight, gradient)
        if not self.momentum:
            return (weight - rate * gradient,)
        fresh = gradient * scalars[1] if self.dampening else gradient
        momentum = self.momentum * moments[0] + fresh
        direction = gradient + self.momentum * momentum if self.nesterov else momentum
        return weight - rate * direction, momentum


class ASGD(Rule):
    """Averaged SGD: w = w * (1 - lambd * eta) - eta * g (Polyak and Juditsky, 1992).

    eta = lr / (1 + lambd * lr * (t - 1))^alpha at step t. The moment `ax` is the mean of w over the
    steps from `t0` on, and w itself before.

    Args:
        lr: The learning rate, or a function from the number of finished steps to one.
        lambd: The decay term.
        alpha: The exponent of eta.
        t0: The step at which averaging begins.
        weight_decay: The factor of w that is added to g.
        clip_grad_norm: The largest norm of all gradients together; larger ones are scaled down.
        groups: Parameter groups with arguments of their own, see `Rule`.
        ema: The decay rate of running averages of the parameters, see `Rule`.
        maximize: Whether to increase the loss.

    Example:
        >>> model = nn.Linear(2, 1)
        >>> step = graphc.compile(lambda m: graphc.sum(m.weight**2), model, update=optim.ASGD())
        >>> bool(step() > step())
        True
    """

    def __init__(
        self,
        lr: Rate = 1e-2,
        lambd: float = 1e-4,
        alpha: float = 0.75,
        t0: float = 1e6,
        weight_decay: float = 0.0,
        clip_grad_norm: float | None = None,
        groups: Groups = (),
        ema: float | None = None,
        maximize: bool = False,
    ) -> None:
        super().__init__(lr, weight_decay, clip_grad_norm, groups, ema, maximize)
        self.lambd = self.number("lambd", lambd)
        self.alpha = self.number("alpha", alpha)
        self.t0 = self.number("t0", t0)

    @property
    def moments(self) -> tuple[str, ...]:
        return ("ax",)

    def scalars(self, rate: Tensor, step: Tensor) -> tuple[Tensor, ...]:
        before = step - 1
        eta = rate / (1 + self.lambd * rate * before) ** self.alpha
        return eta, 1 / functions.maximum(before - self.t0, 1.0)

    def apply(
        self,
        weight: Tensor,
        gradient: Tensor,
        moments: tuple[Tensor, ...],
        scalars: tuple[Tensor, ...],
    ) -> tuple[Tensor, ...]:
        eta, share = scalars
        gradient = self.decayed(weight, gradient)
        weight = weight * (1 - self.lambd * eta) - eta * gradient
        moved = moments[0] + (weight - moments[0]) * share
        return weight, functions.where(functions.equal(share, 1.0), weight, moved)
