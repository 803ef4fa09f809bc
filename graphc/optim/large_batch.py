"""Rules that look at the direction of a whole parameter, or of each element alone: LAMB, Lion and
Muon."""

from __future__ import annotations

import math

from graphc import functions
from graphc.base.errors import GraphError
from graphc.base.source_lines import error
from graphc.optim.adam import WithMeans, correction
from graphc.optim.groups import Rate
from graphc.optim.rule import Groups, Rule
from graphc.trace import Tensor


class Lion(WithMeans):
    """w -= lr * sign(betas[0] * m + (1 - betas[0]) * g), then m = betas[1] * m + (1 - betas[1]) * g
    (Chen et al., 2023). Its rate is some three to ten times smaller than Adam's.

    `weight_decay` shrinks the weights themselves: w *= 1 - lr * weight_decay.
    """

    def __init__(
        self,
        lr: Rate = 1e-4,
        betas: tuple[float, float] = (0.9, 0.99),
        weight_decay: float = 0.0,
        clip_grad_norm: float | None = None,
        groups: Groups = (),
        ema: float | None = None,
        maximize: bool = False,
    ) -> None:
        super().__init__(lr, betas, 0.0, weight_decay, clip_grad_norm, groups, ema, maximize)

    @property
    def moments(self) -> tuple[str, ...]:
        return ("exp_avg",)

    def apply(
        self,
        weight: Tensor,
        gradient: Tensor,
        moments: tuple[Tensor, ...],
        scalars: tuple[Tensor, ...],
    ) -> tuple[Tensor, ...]:
        (rate,), (mean,), (first, second) = scalars, moments, self.betas
        direction = functions.sign(first * mean + (1 - first) * gradient)
        moved = second * mean + (1 - second) * gradient
        return self.shrunk(weight, rate) - rate * direction, moved


class LAMB(WithMeans):
    """w -= lr * |w| / |u| * u, where u = m' / (sqrt(v') + eps) + weight_decay * w with Adam's m'
    and v', and |.| is the norm of a whole parameter; where one of them is 0, w -= lr * u (You et
    al., 2020)."""

    def __init__(
        self,
        lr: Rate = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.0,
        clip_grad_norm: float | None = None,
        groups: Groups = (),
        ema: float | None = None,
        maximize: bool = False,
    ) -> None:
        super().__init__(lr, betas, eps, weight_decay, clip_grad_norm, groups, ema, maximize)

    def scalars(self, rate: Tensor, step: Tensor) -> tuple[Tensor, ...]:
        first, second = (correction(step, beta) for beta in self.betas)
        return rate, first, functions.sqrt(second)

    def apply(
        self,
        weight: Tensor,
        gradient: Tensor,
        moments: tuple[Tensor, ...],
        scalars: tuple[Tensor, ...],
    ) -> tuple[Tensor, ...]:
        rate, first, root = scalars
        mean, square = self.means(gradient, moments)
        direction = mean / first / (functions.sqrt(square) / root + self.eps)
        direction = self.decayed(weight, direction)
        own, moved = (functions.sqrt(functions.sum(x * x)) for x in (weight, direction))
        neither = functions.logical_or(functions.equal(own, 0.0), functions.equal(moved, 0.0))
        ratio = functions.where(neither, 1.0, own / functions.where(neither, 1.0, moved))
        return weight - rate * ratio * direction, mean, square


class Muon(Rule):
    """w -= lr * s * O, where O is what `ns_steps` steps of a Newton-Schulz iteration in bfloat16
    make of the momentum, a matrix whose singular values are near 1 (Jordan et al., 2024), and s is
    sqrt(max(1, rows / columns)), or 0.2 * sqrt(max(rows, columns)) with
    `adjust_lr_fn="match_rms_adamw"`. The momentum is the running mean of g with rate 1 - momentum;
    with `nesterov` g itself is brought in once more.

    `weight_decay` shrinks the weights themselves: w *= 1 - lr * weight_decay. For matrices alone:
    GraphError for a parameter of another rank. Give those that it is for by compile's `train=`, and
    the others a program with another rule.
    """

    def __init__(
        self,
        lr: Rate = 1e-3,
        weight_decay: float = 0.1,
        momentum: float = 0.95,
        nesterov: bool = True,
        ns_coefficients: tuple[float, float, float] = (3.4445, -4.775, 2.0315),
        eps: float = 1e-7,
        ns_steps: int = 5,
        adjust_lr_fn: str | None = None,
        clip_grad_norm: float | None = None,
        groups: Groups = (),
        ema: float | None = None,
        maximize: bool = False,
    ) -> None:
        super().__init__(lr, weight_decay, clip_grad_norm, groups, ema, maximize)
        self.momentum = self.number("momentum", momentum, below=1.0)
        self.nesterov = bool(nesterov)
        if not isinstance(ns_coefficients, (tuple, list)) or len(ns_coefficients) != 3:
            raise error(f"Muon: ns_coefficients expected three numbers, got {ns_coefficients!r}")
        self.ns_coefficients = tuple(map(float, ns_coefficients))
        self.eps = self.number("eps", eps)
        self.ns_steps = int(self.number("ns_steps", ns_steps, below=100))
        if adjust_lr_fn not in (None, "original", "match_rms_adamw"):
            raise error(
                "Muon: adjust_lr_fn expected None, 'original' or 'match_rms_adamw', "
                f"got {adjust_lr_fn!r}"
            )
        self.adjust_lr_fn = adjust_lr_fn

    @property
    def moments(self) -> tuple[str, ...]:
        return ("momentum_buffer",)

    def apply(
        self,
        weight: Tensor,
        gradient: Tensor,
        moments: tuple[Tensor, ...],
        scalars: tuple[Tensor, ...],
    ) -> tuple[Tensor, ...]:
        if len(weight.shape) != 2:
            raise GraphError(
                f"Muon: expected matrices, got a parameter {weight.value.type}: say with train= "
                "which parameters it is for, and update the others by a program with another rule"
            )
        (rate,) = scalars
        momentum = moments[0] + (gradient - moments[0]) * (1 - self.momentum)
        direction = momentum
        if self.nesterov:
            direction = gradient + (momentum - gradient) * self.momentum
        rows, columns = weight.shape
        size = math.sqrt(max(1, rows / columns))
        if self.adjust_lr_fn == "match_rms_adamw":
            size = 0.2 * math.sqrt(max(rows, columns))
        orthogonal = functions.astype(self._orthogonal(direction), weight.dtype)
        return self.shrunk(weight, rate) - rate * size * orthogonal, momentum

    def _orthogonal(self, matrix: Tensor) -> Tensor:
        """`matrix` in bfloat16, with singular values near 1."""
        first, second, third = self.ns_coefficients
        rows, columns = matrix.shape
        x = functions.astype(matrix, "bfloat16")
        if rows > columns:
            x = x.T
        wide = functions.astype(x, "float32")
        norm = functions.astype(functions.sqrt(functions.sum(wide * wide)), "bfloat16")
        x = x / functions.clip(norm, min=self.eps)
        for _ in range(self.ns_steps):
            gram = x @ x.T
            x = first * x + (second * gram + third * (gram @ gram)) @ x
        return x.T if rows > columns else x
