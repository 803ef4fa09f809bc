"""Optimizers that normalize an update: LAMB, Lion and Muon."""

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
    """Lion: w -= lr * sign(betas[0] * m + (1 - betas[0]) * g) (Chen et al., 2023).

    Then m = betas[1] * m + (1 - betas[1]) * g. The learning rate is usually 3 to 10 times smaller
    than Adam's.

    Args:
        lr: The learning rate, or a function from the number of finished steps to one.
        betas: The weights of m in the update and in its own.
        weight_decay: The weights shrink by themselves: w *= 1 - lr * weight_decay.
        clip_grad_norm: The largest norm of all gradients together; larger ones are scaled down.
        groups: Parameter groups with arguments of their own, see `Rule`.
        ema: The decay rate of running averages of the parameters, see `Rule`.
        maximize: Whether to increase the loss.

    Example:
        >>> model = nn.Linear(2, 1)
        >>> step = graphc.compile(lambda m: graphc.sum(m.weight**2), model, update=optim.Lion())
        >>> bool(step() > step())
        True
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
    """LAMB: w -= lr * |w| / |u| * u, with u = m' / (sqrt(v') + eps) + weight_decay * w.

    m' and v' are Adam's, |.| is the norm of a whole parameter; where one norm is 0, w -= lr * u
    (You et al., 2020).

    Args:
        lr: The learning rate, or a function from the number of finished steps to one.
        betas: The decay rates of the two running means.
        eps: Added to the denominator.
        weight_decay: The factor of w in u.
        clip_grad_norm: The largest norm of all gradients together; larger ones are scaled down.
        groups: Parameter groups with arguments of their own, see `Rule`.
        ema: The decay rate of running averages of the parameters, see `Rule`.
        maximize: Whether to increase the loss.

    Example:
        >>> model = nn.Linear(2, 1)
        >>> step = graphc.compile(lambda m: graphc.sum(m.weight**2), model, update=optim.LAMB())
        >>> bool(step() > step())
        True
    """

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
    """Muon: orthogonalized momentum for matrices (Jordan et al., 2024).

    w -= lr * s * O. O is the momentum after `ns_steps` Newton-Schulz iterations in bfloat16, which
    bring its singular values near 1. s is sqrt(max(1, rows / columns)), or 0.2 * sqrt(max(rows,
    columns)) with `adjust_lr_fn="match_rms_adamw"`. Parameters of other ranks raise GraphError at
    compile: choose the matrices with compile's `train`, and update the others in another program.

    Args:
        lr: The learning rate, or a function from the number of finished steps to one.
        weight_decay: The weights shrink by themselves: w *= 1 - lr * weight_decay.
        momentum: The decay rate of the momentum, a running mean of g.
        nesterov: Whether to add g once more.
        ns_coefficients: The coefficients of the iteration.
        eps: Added to the norm of the momentum.
        ns_steps: The number of iterations.
        adjust_lr_fn: None, "original" or "match_rms_adamw".
        clip_grad_norm: The largest norm of all gradients together; larger ones are scaled down.
        groups: Parameter groups with arguments of their own, see `Rule`.
        ema: The decay rate of running averages of the parameters, see `Rule`.
        maximize: Whether to increase the loss.

    Raises:
        GraphError: A coefficient or `adjust_lr_fn` is unknown.

    Example:
        >>> model = nn.Linear(2, 1)
        >>> step = graphc.compile(lambda m: graphc.sum(m.weight**2), model, update=optim.Muon())
        >>> bool(step() > step())
        True
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
