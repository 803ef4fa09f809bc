"""Learning rates as functions of the number of finished steps, with PyTorch's values.

Any function is a schedule; these are the ones that take more than a line. They are for `lr=` of a
rule: `optim.SGD(lr=optim.schedules.Cosine(0.1, 1000))`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from graphc.base.errors import GraphError

__all__ = ["Cosine", "CosineRestarts", "OneCycle", "Plateau", "Warmup"]


def __dir__() -> list[str]:
    return __all__


@dataclass(frozen=True)
class Cosine:
    """Half a cosine from `base` down to `low` in `steps` steps, and `low` from then on.

    These are the values of CosineAnnealingLR(T_max=steps, eta_min=low), which rises again later.

    Args:
        base: The rate at first.
        steps: The number of steps.
        low: The rate at the end.

    Raises:
        GraphError: `steps` is no positive number.

    Example:
        >>> rate = optim.schedules.Cosine(0.1, 100)
        >>> rate(0), round(rate(50), 6), rate(100)
        (0.1, 0.05, 0.0)
    """

    base: float
    steps: int
    low: float = 0.0

    def __post_init__(self) -> None:
        _positive("Cosine: steps", self.steps)

    def __call__(self, step: int) -> float:
        """Return the rate after so many finished steps."""
        return _between(self.base, self.low, min(step / self.steps, 1.0))


@dataclass(frozen=True)
class CosineRestarts:
    """Cosines from `base` down to `low`, one after another, each `factor` times as long.

    These are the values of CosineAnnealingWarmRestarts(T_0=steps, T_mult=factor, eta_min=low).

    Args:
        base: The rate at the beginning of each cosine.
        steps: The number of steps of the first one.
        factor: How many times as long the next one is.
        low: The rate at the end of each.

    Raises:
        GraphError: `steps` or `factor` is no positive whole number.

    Example:
        >>> rate = optim.schedules.CosineRestarts(0.1, 10, factor=2)
        >>> rate(0), rate(10), rate(30)
        (0.1, 0.1, 0.1)
    """

    base: float
    steps: int
    factor: int = 1
    low: float = 0.0

    def __post_init__(self) -> None:
        _positive("CosineRestarts: steps", self.steps)
        _positive("CosineRestarts: factor", self.factor)

    def __call__(self, step: int) -> float:
        """Return the rate after so many finished steps."""
        length = self.steps
        if self.factor == 1:
            step %= length
        while step >= length:
            step, length = step - length, length * self.factor
        return _between(self.base, self.low, step / length)


@dataclass(frozen=True)
class OneCycle:
    """Up from `peak / divide` to `peak`, then down to `peak / divide / divide_at_end`.

    These are the values of OneCycleLR with the same arguments; its cycle of the momentum is not
    part of it. After the last step the rate stays.

    Args:
        peak: The largest rate.
        steps: The number of steps of the run.
        rising: The fraction of the steps in which the rate rises.
        divide: How many times smaller the first rate is than the largest.
        divide_at_end: How many times smaller the last rate is than the first.
        linear: Whether the rate moves along lines in place of cosines.
        three_phases: Whether it falls as it rose, and from the first rate to the last in the rest.

    Raises:
        GraphError: `steps` is no positive number, or `rising` is not between 0 and 1 (1/2 with
            three phases).

    Example:
        >>> rate = optim.schedules.OneCycle(0.1, 101, rising=0.5)
        >>> round(rate(0), 6), round(max(map(rate, range(101))), 3)
        (0.004, 0.1)
    """

    peak: float
    steps: int
    rising: float = 0.3
    divide: float = 25.0
    divide_at_end: float = 1e4
    linear: bool = False
    three_phases: bool = False

    def __post_init__(self) -> None:
        _positive("OneCycle: steps", self.steps)
        most = 0.5 if self.three_phases else 1
        if not 0 < self.rising < most:
            raise GraphError(
                f"OneCycle: rising expected a number between 0 and {most}, got {self.rising!r}"
            )

    def __call__(self, step: int) -> float:
        """Return the rate after so many finished steps."""
        first, top = self.peak / self.divide, self.rising * self.steps - 1
        last, end = first / self.divide_at_end, float(self.steps - 1)
        phases = [(top, first, self.peak), (end, self.peak, last)]
        if self.three_phases:
            phases[1:] = [(2 * top, self.peak, first), (end, first, last)]
        begin = 0.0
        for stop, start, goal in phases:
            if begin < stop and step <= stop:
                part = (step - begin) / (stop - begin)
                along = start + (goal - start) * part
                return along if self.linear else _between(start, goal, part)
            begin = stop
        return last


@dataclass(frozen=True)
class Warmup:
    """A line from `start` times the first rate up to it in `steps` steps, then `schedule`.

    These are the values of SequentialLR with LinearLR(start_factor=start, total_iters=steps) and
    the schedule, whose first step is the one behind the line.

    Args:
        schedule: A rate, or a function of the number of finished steps.
        steps: The number of steps of the line.
        start: The fraction of the rate to begin with.

    Raises:
        GraphError: `steps` is no positive number.

    Example:
        >>> rate = optim.schedules.Warmup(optim.schedules.Cosine(0.1, 90), steps=10)
        >>> rate(0), round(rate(5), 6), rate(10), rate(100)
        (0.0, 0.05, 0.1, 0.0)
    """

    schedule: float | Callable[[int], float]
    steps: int
    start: float = 0.0

    def __post_init__(self) -> None:
        _positive("Warmup: steps", self.steps)

    def __call__(self, step: int) -> float:
        """Return the rate after so many finished steps."""
        behind = max(step - self.steps, 0)
        rate = self.schedule(behind) if callable(self.schedule) else self.schedule
        if step >= self.steps:
            return rate
        return rate * (self.start + (1 - self.start) * step / self.steps)


class Plateau:
    """A rate that falls when a metric stops to improve: what ReduceLROnPlateau of PyTorch does.

    Call it with the metric after each epoch: `program.lr = plateau(loss)`; the callback
    `graphc.training.ReduceOnPlateau` does.

    Args:
        rate: The rate at first.
        factor: What the rate is multiplied by.
        patience: The number of epochs without a better value that are let pass.
        threshold: By how much a better value differs at least.
        relative: Whether `threshold` is a fraction of the best value.
        cooldown: The number of epochs after a fall in which none counts.
        low: The smallest rate.
        mode: "min" if smaller is better, "max" if larger is.
        eps: The smallest fall; a smaller one is left out.

    Attributes:
        rate: The rate by now.

    Raises:
        GraphError: `factor` is not below 1, or `mode` is something else.

    Example:
        >>> plateau = optim.schedules.Plateau(0.1, factor=0.5, patience=1)
        >>> [plateau(loss) for loss in (1.0, 0.8, 0.8, 0.8)]
        [0.1, 0.1, 0.1, 0.05]
    """

    def __init__(
        self,
        rate: float,
        factor: float = 0.1,
        patience: int = 10,
        threshold: float = 1e-4,
        relative: bool = True,
        cooldown: int = 0,
        low: float = 0.0,
        mode: str = "min",
        eps: float = 1e-8,
    ) -> None:
        if not 0 < factor < 1:
            raise GraphError(f"Plateau: factor expected a number between 0 and 1, got {factor!r}")
        if mode not in ("min", "max"):
            raise GraphError(f"Plateau: mode expected 'min' or 'max', got {mode!r}")
        self.rate, self.factor, self.low, self.eps = rate, factor, low, eps
        self.patience, self.cooldown = patience, cooldown
        self.threshold, self.relative = threshold, relative
        self._sign = 1 if mode == "min" else -1
        self._best = math.inf * self._sign
        self._bad = self._cooling = 0

    def __call__(self, value: float) -> float:
        """Return the rate after an epoch with this value of the metric."""
        if self._is_better(value):
            self._best, self._bad = value, 0
        else:
            self._bad += 1
        if self._cooling > 0:
            self._cooling, self._bad = self._cooling - 1, 0
        if self._bad > self.patience:
            lower = max(self.rate * self.factor, self.low)
            self.rate = lower if self.rate - lower > self.eps else self.rate
            self._cooling, self._bad = self.cooldown, 0
        return self.rate

    def _is_better(self, value: float) -> bool:
        margin = self._sign * self.threshold
        goal = self._best * (1 - margin) if self.relative else self._best - margin
        return self._sign * value < self._sign * goal


def _between(start: float, goal: float, part: float) -> float:
    """The point of a half cosine from `start` to `goal`, at 0 <= part <= 1 of its way."""
    return goal + (start - goal) * (1 + math.cos(math.pi * part)) / 2


def _positive(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise GraphError(f"{name} expected a whole number from 1 up, got {value!r}")
