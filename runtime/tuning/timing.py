"""Times of launches, as devices measure them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from graphc.ir import Array

Play = Callable[[], object]
"""Runs something once, for measurement."""


@dataclass(frozen=True)
class Timing:
    """The times of a launch or copy over the measured calls. In a loop one call of the program runs
    a kernel many times; `least` and `most` are then of the mean within one call of the program."""

    step: int
    """Its step number in the plan; on the reference device the node's."""
    name: str
    """The kernel, or `copy`."""
    calls: int
    microseconds: float
    """Microseconds of all calls."""
    least: float
    """Microseconds of the shortest call."""
    most: float
    """Microseconds of the longest call."""


def timing(step: int, name: str, microseconds: Array, iterations: int = 1) -> Timing:
    """The times from a launch's microseconds in each call of the program, [calls]."""
    each = microseconds / iterations
    low, high = (float(f(initial=bound)) for f, bound in ((each.min, np.inf), (each.max, 0.0)))
    return Timing(step, name, len(each) * iterations, float(microseconds.sum()), low, high)
