"""Counters that the programs of one model share: steps, learning rates, random draws."""

from __future__ import annotations

import numpy as np

from graphc.ir.state import StateBuffer


class Clock:
    """The number of finished steps of one model, and the learning rates of its next step."""

    def __init__(self, groups: int = 0) -> None:
        self.rate = StateBuffer(0.0, np.float32)
        self.rates = [StateBuffer(0.0, np.float32) for _ in range(groups)]
        """That of each group."""
        self.step = StateBuffer(0, np.int32)
        self.loaded = 0
        """The steps that were finished when the state was loaded."""
        self.random: dict[str, StateBuffer] = {}
        """`random.step` counts the random ops' calls, `random.key` is what they count from; there
        once a program has random ops."""

    @property
    def finished(self) -> int:
        """Return the number of finished steps."""
        return int(self.step.numpy())
