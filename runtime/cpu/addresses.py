"""Where the bytes of a plan are in this process."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from graphc.base.dtypes import Array
from graphc.base.errors import RunError
from graphc.ir import Type
from graphc.ir.state import StateBuffer, aligned_empty
from graphc.runtime.cpu.player import RelativeAddress
from graphc.runtime.plan.places import Places
from graphc.runtime.plan.plan import Plan, Range

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
            memory = aligned_empty((nbytes,), np.uint8)
        except MemoryError:
            raise RunError(
                f"out of memory: the work arena needs {nbytes} bytes; the state is unchanged"
            ) from None
        self.address = 0  # an interrupt must not leave the address of memory that is freed
        self.memory = memory
        self.address = memory.ctypes.data


ARENA = HostArena()


class HostAddresses:
    """Where a plan's bytes are: state in its buffers, work and io relative to bases."""

    def __init__(self, plan: Plan, buffers: list[StateBuffer]) -> None:
        self.buffers = buffers
        """Those of the plan's state, in its order."""
        self._arrays = [buffer.array for buffer in buffers]  # whose addresses the player has
        self._places = Places(plan)

    def address(self, place: Range, stage: int = 0) -> RelativeAddress:
        """The address of the first byte in the first iteration; `stage` as in `Places.place`."""
        found = self._places.place(place, stage)
        if found.segment == "work":
            return RelativeAddress(WORK, found.offset, found.moves)
        if found.segment == "state":
            start = self.buffers[found.index].array.ctypes.data
            return RelativeAddress(ABSOLUTE, start + found.offset, found.moves)
        return RelativeAddress(IO + found.index, found.offset, found.moves)

    def array(self, place: Range, type: Type, io: Sequence[Array]) -> Array:
        """The elements at `place` as they are in memory; `io` are the call's arrays."""
        if place.segment == "work":
            memory = ARENA.memory[place.start : place.stop]
        else:
            found = self._places.place(replace(place, moves=()))
            owner = self.buffers[found.index].array if place.segment == "state" else io[found.index]
            stop = found.offset + place.stop - place.start
            memory = owner.reshape(-1).view(np.uint8)[found.offset : stop]
        return memory.view(type.numpy_dtype)

    def updated_state(self, plan: Plan) -> set[int]:
        """The indices of the state that some step writes."""
        return self._places.updated_state(plan)
