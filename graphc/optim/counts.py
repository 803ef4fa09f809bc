"""Count the steps of each parameter, for bias correction.

Parameters that are first updated together share a counter as long as every program updates all or
none of them; usually it is the model's own. A program that updates some of them alone splits the
counter. Programs that were compiled before then have to be compiled again, since they would count
for both parts.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence

import numpy as np

from graphc.ir.state import StateBuffer


class Counts:
    """The step counters of a rule's parameters."""

    def __init__(self) -> None:
        self._of: dict[StateBuffer, StateBuffer] = {}
        self.version = 0
        """The number of splits."""
        self._split: dict[StateBuffer, int] = {}
        """Counters that no program should count by any more, with the number of their split."""

    def __getitem__(self, parameter: StateBuffer) -> StateBuffer:
        return self._of[parameter]

    def members(self, counter: StateBuffer) -> list[StateBuffer]:
        """Return the parameters that share a counter."""
        return [parameter for parameter, own in self._of.items() if own is counter]

    def begin(
        self,
        parameters: Sequence[StateBuffer],
        step: StateBuffer,
        loaded: Callable[[StateBuffer], int | None],
        late: Callable[[StateBuffer], int],
    ) -> None:
        """Register a program that updates `parameters` and counts its model's steps in `step`.

        New parameters start from the count `loaded` for them, else share `step` if nothing else
        does yet, else start from `late`.
        """
        begun = step in self._split or any(counter is step for counter in self._of.values())
        fresh: dict[int, StateBuffer] = {}
        for parameter in parameters:
            if parameter not in self._of:
                first = loaded(parameter)
                if first is None and not begun:
                    self._of[parameter] = step
                    continue
                first = late(parameter) if first is None else first
                if first not in fresh:
                    fresh[first] = StateBuffer(first, np.int32)
                self._of[parameter] = fresh[first]
        ticking = {step, *(self._of[parameter] for parameter in parameters)}
        for counter in ticking:
            self._part(counter, set(parameters))

    def together(self) -> list[list[StateBuffer]]:
        """Return the parameters of each counter."""
        return [self.members(counter) for counter in dict.fromkeys(self._of.values())]

    def _part(self, counter: StateBuffer, inside: Collection[StateBuffer]) -> None:
        """Split a counter if some of its parameters are not `inside`."""
        members = self.members(counter)
        if all(parameter in inside for parameter in members):
            return
        self.version += 1
        self._split[counter] = self.version
        both = StateBuffer(counter.numpy()), StateBuffer(counter.numpy())
        for parameter in members:
            self._of[parameter] = both[parameter in inside]

    def are_stale(self, state: Iterable[StateBuffer], version: int) -> bool:
        """Return whether a program of that state uses a counter that was split after `version`."""
        return any(self._split.get(buffer, 0) > version for buffer in state)
