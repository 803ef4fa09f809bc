"""The rule of a program from a file: its arithmetic is in the graph, its rates can be set."""

from __future__ import annotations

from collections.abc import Sequence

from graphc.base.errors import GraphError
from graphc.nn.selection import Selection
from graphc.optim.clock import Clock
from graphc.optim.groups import Group, Rate
from graphc.optim.stateful import Stateful


class RestoredRule(Stateful):
    """A rule that updates the parameters of one program, and no others.

    Args:
        rates: The learning rates of the rule and its groups, as `rates_of` returned them.
        lr: The learning rate or schedule of the rule in place of its own; None keeps that.
        clock: The program's counters.

    Raises:
        GraphError: The rule had a schedule, which no file holds, and `lr` is None.
    """

    def __init__(self, rates: Sequence[float | str], lr: Rate | None, clock: Clock) -> None:
        first = rates[0] if lr is None else lr
        if isinstance(first, str):
            raise GraphError(
                "the program was saved with a schedule of learning rates, which no file holds: "
                "give it as lr="
            )
        super().__init__(first, 0.0, None)
        self._groups = tuple(
            Group(self, number, self, Selection("load", [])) for number in range(len(rates) - 1)
        )
        self._clocks = [clock]
        self.lr = first
        for group, rate in zip(self._groups, rates[1:], strict=True):
            if not isinstance(rate, str):
                group.lr = rate
