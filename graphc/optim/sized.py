"""Rules that find the size of a step by themselves: Adadelta and Rprop."""

from __future__ import annotations

from graphc import functions
from graphc.base.source_lines import error
from graphc.optim.groups import Rate
from graphc.optim.rule import Groups, Rule
from graphc.trace import Tensor


class Adadelta(Rule):
    """w -= lr * d, where d = sqrt(a + eps) / sqrt(v + eps) * g; v and a are running means of g * g
    and d * d with rate 1 - rho (Zeiler, 2012).

    `weight_decay` adds weight_decay * w to g.
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
    """w -= s * sign(g), where s is a size for each element: it grows by etas[1] where g keeps its
    sign, within step_sizes, and shrinks by etas[0] where g changes it, for which g counts as 0
    (Riedmiller and Braun, 1993). For gradients of all the data.

    `lr` is the first s; a later one changes nothing.
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
