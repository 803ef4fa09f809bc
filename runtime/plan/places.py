"""Where the ranges of a plan lie: in the work arena, or so many bytes into a piece of state or an
array of the call."""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from dataclasses import dataclass, replace

from graphc.runtime.plan.plan import Binding, Copy, Launch, Loop, Move, Plan, Range


@dataclass(frozen=True)
class Place:
    """`offset` bytes from the start of a piece of memory, moving with the enclosing loops."""

    segment: str
    """The segment: "work", "state" or "io"."""
    index: int
    """The number of the state value, or of the input or output, inputs first; 0 in the arena."""
    offset: int
    """Bytes from its start in the first iteration; negative for a later stage of a wavefront that
    begins elsewhere."""
    moves: tuple[Move, ...] = ()
    """Its movement with the enclosing loops, the outermost first."""


class Places:
    """Finds what a plan's ranges belong to."""

    def __init__(self, plan: Plan) -> None:
        self._state = _Segment(plan.state)
        self._io = _Segment((*plan.inputs, *plan.outputs))

    def place(self, range: Range, stage: int = 0) -> Place:
        """The place of the first byte in the first iteration. A range of a later `stage` of a
        wavefront may not exist before that iteration; it is then looked up at the place it has
        there."""
        if range.segment == "work":
            return Place("work", 0, range.start, range.moves)
        later = range.moves[-1].at(stage) if range.moves else 0
        moved = replace(range, start=range.start + later, stop=range.stop + later)
        segment = self._state if range.segment == "state" else self._io
        index, offset = segment.find(moved)
        return Place(range.segment, index, offset - later, range.moves)

    def updated_state(self, plan: Plan) -> set[int]:
        """The numbers of the state values that some step writes."""
        updated = set()
        for step in plan.steps:
            if isinstance(step, Launch | Copy | Loop):
                writes = (step.target,) if isinstance(step, Copy) else step.writes
                updated |= {self._state.find(w)[0] for w in writes if w.segment == "state"}
        return updated


class _Segment:
    """Finds the binding that contains a range."""

    def __init__(self, bindings: Sequence[Binding]) -> None:
        self._bindings = bindings
        # Of those that start at one place, all but the last are empty.
        self._order = sorted(range(len(bindings)), key=self._ends)
        self._starts = [bindings[i].place.start for i in self._order]

    def find(self, place: Range) -> tuple[int, int]:
        """(index of the binding, bytes from its start)."""
        at = bisect.bisect_right(self._starts, place.start) - 1
        index = self._order[at]
        return index, place.start - self._bindings[index].place.start

    def _ends(self, index: int) -> tuple[int, int]:
        place = self._bindings[index].place
        return place.start, place.stop
