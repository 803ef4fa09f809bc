"""Optimizers that find the size of a step by themselves: Adadelta and Rprop."""

from __future__ import annotations

from graphc import functions
from graphc.base.source_lines import error
from graphc.optim.groups import Rate
from graphc.optim.rule import Groups, Rule
from graphc.trace import Tensor


class Adadelta(Rule):
    """Adadelta: w -= lr * d, with d = sqrt(a + eps) / sqrt(v + eps) * g (Zeiler, 2012).

    v and a are running means of g * g and d * d.

    Args:
        lr: The learning rate, or a function from the number of finished steps to one.
        rho: The decay rate of the running means.
        eps: Added to the running means.
        weight_decay: The factor of w that is added to g.
        clip_grad_norm: The largest norm of all gradients together; larger ones are scaled down.
        groups: Parameter groups with arguments of their own, see `Rule`.
        ema: The decay rate of running averages of the parameters, see `Rule`.
        maximize: Whether to increase the loss.

    Example:
        >>> model = nn.Linear(2, 1)
        >>> step = graphc.compile(lambda m: graphc.sum(m.weight**2), model, update=optim.Adadelta())
        >>> bool(step() > step())
        True
    """

    def __init__(
        self,
        lr: Rate = 1.0,
        rho: float = 0.9,
        eps: float = 1e-6,
        weight_decay: float = 0.0,
        clip_grad_norm: float | None = None,
        groups: Groups = (),
        ema: float | None = None,
        maximize: bool = False,
    ) -> None:
        super().__init__(lr, weight_decay, clip_grad_norm, groups, ema, maximize)
        self.rho = self.number("rho", rho)
        self.eps = self.number("eps", eps)

    @property
    def moments(self) -> tuple[str, ...]:
        return ("square_avg", "acc_delta")

    def apply(
        self,
        weight: Tensor,
        gradient: Tensor,
        moments: tuple[Tensor, ...],
        scalars: tuple[Tensor, ...],
    ) -> tuple[Tensor, ...]:
        gradient = self.decayed(weight, gradient)
        square = self.rho * moments[0] + (1 - self.rho) * (gradient * gradient)
        root = functions.sqrt(square + self.eps)
        step = functions.sqrt(moments[1] + self.eps) / root * gradient
        moved = self.rho * moments[1] + (1 - self.rho) * (step * step)
        return weight - scalars[0] * step, square, moved


class Rprop(Rule):
    """Resilient backpropagation: w -= s * sign(g), with a step size s per element.

    s grows by etas[1] where g keeps its sign, and shrinks by etas[0] where g changes it, for which
    g counts as 0 (Riedmiller and Braun, 1993). It is meant for gradients of all the data.

    Args:
        lr: The initial s; setting it later changes nothing.
        etas: The factors of s, below and above 1.
        step_sizes: The smallest and the largest s.
        clip_grad_norm: The largest norm of all gradients together; larger ones are scaled down.
        groups: Parameter groups with arguments of their own, see `Rule`.
        ema: The decay rate of running averages of the parameters, see `Rule`.
        maximize: Whether to increase the loss.

    Raises:
        GraphError: The factors or step sizes are not as described.

    Example:
        >>> model = nn.Linear(2, 1)
        >>> step = graphc.compile(lambda m: graphc.sum(m.weight**2), model, update=optim.Rprop())
        >>> bool(step() > step())
        True
    """

    def __init__(
        self,
        lr: Rate = 1e-2,
        etas: tuple[float, float] = (0.5, 1.2),
        step_sizes: tuple[float, float] = (1e-6, 50.0),
        clip_grad_norm: float | None = None,
        groups: Groups = (),
        ema: float | None = None,
        maximize: bool = False,
    ) -> None:
        super().__init__(lr, 0.0, clip_grad_norm, groups, ema, maximize)
        for name, pair in (("etas", etas), ("step_sizes", step_sizes)):
            if not isinstance(pair, (tuple, list)) or len(pair) != 2:
                raise error(f"Rprop: {name} expected a pair of numbers, got {pair!r}")
        shrink, grow = (self.number("etas", eta) for eta in etas)
        if not shrink < 1.0 < grow:
            raise error(f"Rprop: etas expected 0 <= etas[0] < 1 < etas[1], got {etas!r}")
        least, most = (self.number("step_sizes", size) for size in step_sizes)
        self.etas, self.step_sizes = (shrink, grow), (least, most)

    @property
    def moments(self) -> tuple[str, ...]:
        return ("prev", "step_size")

    def initial(self, moment: str) -> float:
        return self.rate_at(0) if moment == "step_size" else 0.0

    def apply(
        self,
        weight: Tensor,
        gradient: Tensor,
        moments: tuple[Tensor, ...],
        scalars: tuple[Tensor, ...],
    ) -> tuple[Tensor, ...]:
        agree = gradient * moments[0]
        kept, turned = functions.greater(agree, 0.0), functions.less(agree, 0.0)
        factor = functions.where(kept, self.etas[1], functions.where(turned, self.etas[0], 1.0))
        size = functions.clip(moments[1] * factor, *self.step_sizes)
        gradient = functions.where(turned, 0.0, gradient)
        return weight - functions.sign(gradient) * size, gradient, size
