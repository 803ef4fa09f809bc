"""Times of launches, as devices measure them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from graphc.ir import Array

Play = Callable[[], object]
"""Plays something once, so that it can be measured."""


@dataclass(frozen=True)
class Timing:
    """A launch or copy over the calls that were measured. In a loop a call of the program has many
    calls of a kernel: `least` and `most` are then of their mean in one call of the program."""

    step: int
    """Its number in the plan; on the reference device that of the node."""
    name: str
    """The kernel, or `copy`."""
    calls: int
    microseconds: float
    """Of all calls."""
    least: float
    """Microseconds of the shortest call."""
    most: float


def timing(step: int, name: str, microseconds: Array, iterations: int = 1) -> Timing:
    """From what a launch took in each call of the program, [calls] in microseconds."""
    each = microseconds / iterations
    low, high = (float(f(initial=bound)) for f, bound in ((each.min, np.inf), (each.max, 0.0)))
    return Timing(step, name, len(each) * iterations, float(microseconds.sum()), low, high)
