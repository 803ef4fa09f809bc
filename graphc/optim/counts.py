"""Steps made by each parameter, for bias correction.

Parameters that begin together share a counter for as long as every program updates all or none of
them; in the usual case it is the model's own. A program that updates some of them alone splits it,
and programs that were compiled before have to be compiled again: theirs would count for both.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence

import numpy as np

from graphc.ir.state import StateBuffer


class Counts:
    """The counters of a rule's parameters."""

    def __init__(self) -> None:
        self._of: dict[StateBuffer, StateBuffer] = {}
        self.version = 0
        """The number of splits."""
        self._split: dict[StateBuffer, int] = {}
        """Counters that no program should count by any more, with the number of their split."""

    def __getitem__(self, parameter: StateBuffer) -> StateBuffer:
        return self._of[parameter]

    def members(self, counter: StateBuffer) -> list[StateBuffer]:
        """The parameters that share a counter."""
        return [parameter for parameter, own in self._of.items() if own is counter]

    def begin(
        self,
        parameters: Sequence[StateBuffer],
        step: StateBuffer,
        loaded: Callable[[StateBuffer], int | None],
        late: Callable[[StateBuffer], int],
    ) -> None:
        """Let a program update `parameters` and count its model's steps in `step`. Those that are
        new count from what was `loaded` for them, else with `step` if nothing else does yet, else
        from `late`."""
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
        """The parameters by their counters."""
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
        """Whether a program of that state counts by a counter that was split after `version`."""
        return any(self._split.get(buffer, 0) > version for buffer in state)
