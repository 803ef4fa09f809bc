"""Where the bytes of a plan are in this process."""

from __future__ import annotations

import bisect
from collections.abc import Sequence

import numpy as np

from graphc.base.dtypes import Array
from graphc.base.errors import RunError
from graphc.base.records import replace
from graphc.ir import Type
from graphc.ir.state import StateBuffer, aligned_empty
from graphc.runtime.cpu.player import RelativeAddress
from graphc.runtime.plan.plan import Binding, Copy, Launch, Loop, Plan, Range

BYTES = Type((), "u8")
ABSOLUTE, WORK, IO = 0, 1, 2
"""Bases of addresses: none (state never moves), the work arena, the first input or output."""


class HostArena:
    """The work memory that all programs share, as large as the largest of them needs."""

    def __init__(self) -> None:
        self.address = 0
        self.memory = aligned_empty((0,), np.uint8)

    def reserve(self, nbytes: int) -> None:
        """Grow to at least `nbytes`. Raises RunError if the system lacks memory."""
        if self.address and nbytes <= self.memory.nbytes:
            return
        try:
            self.memory = aligned_empty((nbytes,), np.uint8)
        except MemoryError:
            raise RunError(
                f"out of memory: the work arena needs {nbytes} bytes; the state is unchanged"
            ) from None
        self.address = self.memory.ctypes.data


ARENA = HostArena()


class HostAddresses:
    """Where a plan's bytes are: state in its buffers, work and io relative to bases."""

    def __init__(self, plan: Plan, buffers: list[StateBuffer]) -> None:
        self.buffers = buffers
        """Those of the plan's state, in its order."""
        self._state = _Segment(plan.state)
        self._io = _Segment((*plan.inputs, *plan.outputs))

    def address(self, place: Range, stage: int = 0) -> RelativeAddress:
        """The address of the first byte in the first iteration. A range of a later `stage` of a
        wavefront may not exist before that iteration; it is then looked up at the place it has
        there."""
        if place.segment == "work":
            return RelativeAddress(WORK, place.start, place.moves)
        later = place.moves[-1].at(stage) if place.moves else 0
        place = replace(place, start=place.start + later, stop=place.stop + later)
        if place.segment == "state":
            index, offset = self._state.find(place)
            start = self.buffers[index].array.ctypes.data
            return RelativeAddress(ABSOLUTE, start + offset - later, place.moves)
        index, offset = self._io.find(place)
        return RelativeAddress(IO + index, offset - later, place.moves)

    def array(self, place: Range, type: Type, io: Sequence[Array]) -> Array:
        """The elements at `place` as they are in memory; `io` are the call's arrays."""
        if place.segment == "work":
            memory = ARENA.memory[place.start : place.stop]
        else:
            state = place.segment == "state"
            segment = self._state if state else self._io
            index, offset = segment.find(place)
            owner = self.buffers[index].array if state else io[index]
            memory = owner.reshape(-1).view(np.uint8)[offset : offset + place.stop - place.start]
        return memory.view(type.numpy_dtype)

    def updated_state(self, plan: Plan) -> set[int]:
        """The indices of the state that some step writes."""
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
