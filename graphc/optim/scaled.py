"""Optimizers that divide by the size of past gradients: RMSprop and Adagrad."""

from __future__ import annotations

from graphc import functions
from graphc.optim.groups import Rate
from graphc.optim.rule import Groups, Rule
from graphc.trace import Tensor


class RMSprop(Rule):
    """RMSprop: w -= lr * g / (sqrt(v) + eps), with the running mean v of g * g.

    Args:
        lr: The learning rate, or a function from the number of finished steps to one.
        alpha: The decay rate of v.
        eps: Added to the denominator.
        weight_decay: The factor of w that is added to g.
        momentum: If above 0, w -= lr * b with b = momentum * b + g / (sqrt(v) + eps).
        centered: Whether to subtract the square of the running mean of g from v.
        clip_grad_norm: The largest norm of all gradients together; larger ones are scaled down.
        groups: Parameter groups with arguments of their own, see `Rule`.
        ema: The decay rate of running averages of the parameters, see `Rule`.
        maximize: Whether to increase the loss.

    Example:
        >>> model = nn.Linear(2, 1)
        >>> step = graphc.compile(lambda m: graphc.sum(m.weight**2), model, update=optim.RMSprop())
        >>> bool(step() > step())
        True
    """

    def __init__(
        self,
        lr: Rate = 1e-2,
        alpha: float = 0.99,
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        momentum: float = 0.0,
        centered: bool = False,
        clip_grad_norm: float | None = None,
        groups: Groups = (),
        ema: float | None = None,
        maximize: bool = False,
    ) -> None:
        super().__init__(lr, weight_decay, clip_grad_norm, groups, ema, maximize)
        self.alpha = self.number("alpha", alpha)
        self.eps = self.number("eps", eps)
        self.momentum = self.number("momentum", momentum)
        self.centered = bool(centered)

    @property
    def moments(self) -> tuple[str, ...]:
        centered = ("grad_avg",) if self.centered else ()
        return ("square_avg", *centered, *(("momentum",) if self.momentum else ()))

    def apply(
        self,
        weight: Tensor,
        gradient: Tensor,
        moments: tuple[Tensor, ...],
        scalars: tuple[Tensor, ...],
    ) -> tuple[Tensor, ...]:
        (rate,) = scalars
        gradient = self.decayed(weight, gradient)
        square = self.alpha * moments[0] + (1 - self.alpha) * (gradient * gradient)
        new, variance = [square], square
        if self.centered:
            mean = moments[1] + (gradient - moments[1]) * (1 - self.alpha)
            new.append(mean)
            variance = square - mean * mean
        direction = gradient / (functions.sqrt(variance) + self.eps)
        if self.momentum:
            direction = self.momentum * moments[-1] + direction
            new.append(direction)
        return weight - rate * direction, *new


class Adagrad(Rule):
    """Adagrad: w -= lr / (1 + (t - 1) * lr_decay) * g / (sqrt(s) + eps), with the sum s of g * g.

    Args:
        lr: The learning rate, or a function from the number of finished steps to one.
        lr_decay: The decay of the learning rate.
        weight_decay: The factor of w that is added to g.
        initial_accumulator_value: The initial s.
        eps: Added to the denominator.
        clip_grad_norm: The largest norm of all gradients together; larger ones are scaled down.
        groups: Parameter groups with arguments of their own, see `Rule`.
        ema: The decay rate of running averages of the parameters, see `Rule`.
        maximize: Whether to increase the loss.

    Example:
        >>> model = nn.Linear(2, 1)
        >>> step = graphc.compile(lambda m: graphc.sum(m.weight**2), model, update=optim.Adagrad())
        >>> bool(step() > step())
        True
    """

    def __init__(
        self,
        lr: Rate = 1e-2,
        lr_decay: float = 0.0,
        weight_decay: float = 0.0,
        initial_accumulator_value: float = 0.0,
        eps: float = 1e-10,
        clip_grad_norm: float | None = None,
        groups: Groups = (),
        ema: float | None = None,
        maximize: bool = False,
    ) -> None:
        super().__init__(lr, weight_decay, clip_grad_norm, groups, ema, maximize)
        self.lr_decay = self.number("lr_decay", lr_decay)
        self.initial_accumulator_value = self.number(
            "initial_accumulator_value", initial_accumulator_value
        )
        self.eps = self.number("eps", eps)

    @property
    def moments(self) -> tuple[str, ...]:
        return ("sum",)

    def initial(self, moment: str) -> float:
        return self.initial_accumulator_value

    def keeps_unread(self) -> bool:
        return not self.weight_decay and self.eps > 0

    def scalars(self, rate: Tensor, step: Tensor) -> tuple[Tensor, ...]:
        if not self.lr_decay:
            return (rate,)
        return (rate / (1 + (step - 1) * self.lr_decay),)

    def apply(
        self,
        weight: Tensor,
        gradient: Tensor,
        moments: tuple[Tensor, ...],
        scalars: tuple[Tensor, ...],
    ) -> tuple[Tensor, ...]:
        (rate,) = scalars
        gradient = self.decayed(weight, gradient)
        total = moments[0] + gradient * gradient
        return weight - rate * (gradient / (functions.sqrt(total) + self.eps)), total
