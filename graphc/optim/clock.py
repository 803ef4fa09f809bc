"""Counters that the programs of one model share: steps, learning rates, random draws."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from graphc.ir.state import StateBuffer
from graphc.optim import loss_scale
from graphc.trace import Builder

SHARED = ("random.key", "random.step", *loss_scale.NAMES)
"""State of a model's programs: `random.step` counts the calls of random ops, `random.key` is what
they count from; the rest is the loss scale's."""


class Clock:
    """The number of finished steps of one model, and the learning rates of its next step."""

    def __init__(self, groups: int = 0) -> None:
        self.rate = StateBuffer(0.0, np.float32)
        self.rates = [StateBuffer(0.0, np.float32) for _ in range(groups)]
        """That of each group."""
        self.step = StateBuffer(0, np.int32)
        self.loaded = 0
        """The steps that were finished when the state was loaded."""
        self._counted = -1, 0
        """A version of `step` and the number in it."""
        self.shared: dict[str, StateBuffer] = {}
        """What programs share once one has it, by the names in `SHARED`."""

    def share(self, builder: Builder, made: Callable[[str, StateBuffer], StateBuffer]) -> None:
        """Bind the state of a program that the model's other programs have too.

        `made` gives the buffer of a name from a first one.
        """
        for name in (name for name in SHARED if name in builder.buffers):
            if name not in self.shared:
                self.shared[name] = made(name, StateBuffer(builder.buffers[name].numpy()))
            builder.rebind_state(name, self.shared[name])

    @property
    def finished(self) -> int:
        """Return the number of finished steps."""
        return int(self.step.numpy())

    def count(self) -> int:
        """Return the number of finished steps before another one begins.

        A device that has written `step` once since the last time has added one; it is not waited
        for. With a loss scale it may have skipped the step, and is asked.
        """
        version, (before, count) = self.step.version, self._counted
        follows = version == before + 1 and self.step.current != "host"
        if follows and loss_scale.SCALE not in self.shared:
            self._counted = version, count + 1
        elif version != before:
            self._counted = version, self.finished
        return self._counted[1]
