"""Tasks (launches, copies and loops), the buffers they access, and their dependencies.

A buffer is in one segment and holds one value after another: most work and io buffers one value, a
state buffer the old contents and then the new. An access names the buffer, the value and its turn
in the buffer, so the accesses alone imply the order: the writer of a value precedes its readers,
and readers of old contents precede the writer of the new.

`graph_tasks.py` creates the tasks of a graph, `body.py` those of a loop's body. There a buffer may
also be part of the loop's operands and move with the iterations.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from typing import Protocol

from graphc.base.bits import bits
from graphc.base.cached import cached_property
from graphc.ir import Value, Where
from graphc.ir.state import ALIGNMENT
from graphc.kernels.program.kernel import Kernel
from graphc.runtime.plan.plan import STILL, Move
from graphc.runtime.planner.concurrency import Demand

OLD, FIRST, NEW, SUMMED = 0, 1, 2, 3
"""Turns in a buffer: the contents before anything is written, what a loop begins with, what is
written, and its sum over all ranks. A stack that replaces a scanned value comes after it."""


@dataclass(frozen=True)
class BufferAccess:
    """A task's use of a buffer."""

    buffer: int
    """The buffer's number."""
    value: str
    """The name of the value that the buffer holds."""
    part: tuple[int, int] | None = None
    """(byte offset, bytes) within the buffer; None for the whole."""
    turn: int = NEW
    """The value's turn in the buffer."""

    @property
    def byte_range(self) -> tuple[int, tuple[int, int] | None]:
        """The bytes that it covers, whatever they hold."""
        return self.buffer, self.part


class LoopLike(Protocol):
    """A loop among the tasks, as far as this module knows it; see `loop_body.py`."""

    @property
    def name(self) -> str: ...
    @property
    def demand(self) -> Demand:
        """The demand of all iterations."""


@dataclass(frozen=True)
class Task:
    """A launch, a loop, or a copy of one buffer to another if both are None."""

    kernel: Kernel | None
    """The launched kernel."""
    reads: tuple[BufferAccess, ...]
    """What it reads."""
    writes: tuple[BufferAccess, ...]
    """What it writes; last, the kernel's workspace or the memory of a loop's iterations."""
    where: Where = field(default_factory=Where)
    """Where in the user's program it comes from."""
    loop: LoopLike | None = None
    """The loop that it runs."""
    guarded: bool = False
    """Whether it may be left out where the guard of the loop around it is false."""
    stage: int = 0
    """The stage in a wavefront: the task starts that many iterations after the loop's first."""

    @property
    def name(self) -> str:
        """The kernel, the loop or `copy`."""
        if self.loop is not None:
            return self.loop.name
        return "copy" if self.kernel is None else self.kernel.name


@dataclass(frozen=True)
class PlannedBuffer:
    """`nbytes` of a segment, or of a loop's operand of that name."""

    segment: str
    """The segment, or the name of the loop's operand."""
    nbytes: int
    """Bytes without alignment."""
    start: int | None = None
    """The byte offset in the segment; None in the work segment until memory is planned."""
    move: Move = STILL
    """How it moves with the iterations."""
    least: int | None = None
    """For the memory of a loop's iterations: the bytes of a perfect packing of its contents. None
    for other buffers."""

    @property
    def aligned_bytes(self) -> int:
        """Bytes rounded up to the alignment."""
        return aligned(self.nbytes)

    @property
    def least_aligned_bytes(self) -> int:
        """`least`, or else `nbytes`, rounded up to the alignment."""
        return self.aligned_bytes if self.least is None else aligned(self.least)


@dataclass(frozen=True)
class Tasks:
    """The tasks to plan."""

    tasks: tuple[Task, ...]
    """The tasks in an executable order."""
    predecessors: tuple[int, ...]
    """For each task, a bit set of the tasks that must end before it begins."""
    buffers: tuple[PlannedBuffer, ...]
    """The buffers by number."""
    inputs: tuple[tuple[Value, BufferAccess], ...]
    """The graph's inputs with their accesses."""
    outputs: tuple[tuple[Value, BufferAccess], ...]
    """The graph's outputs with their accesses."""
    state: tuple[tuple[Value, BufferAccess], ...]
    """The graph's state with its accesses."""

    @cached_property
    def aligned_sizes(self) -> list[int]:
        """Bytes of each buffer, rounded up to the alignment."""
        return [buffer.aligned_bytes for buffer in self.buffers]

    def nbytes(self, access: BufferAccess) -> int:
        """The bytes of an access."""
        return access.part[1] if access.part else self.buffers[access.buffer].nbytes

    def work_uses(self) -> dict[int, int]:
        """For each work buffer that is not empty, a bit set of the tasks that access it."""
        uses: dict[int, int] = {}
        for i, task in enumerate(self.tasks):
            for access in (*task.reads, *task.writes):
                buffer = self.buffers[access.buffer]
                if buffer.segment == "work" and buffer.nbytes:
                    uses[access.buffer] = uses.get(access.buffer, 0) | 1 << i
        return uses

    def first_writers(self) -> dict[int, int]:
        """For each buffer the first task that writes it; all other uses of a work buffer follow."""
        return {
            a.buffer: i for i, task in reversed(tuple(enumerate(self.tasks))) for a in task.writes
        }


def aligned(nbytes: int) -> int:
    """`nbytes` rounded up to a multiple of ALIGNMENT."""
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


def executable_order(predecessors: list[int]) -> list[int]:
    """The first executable order, by task number."""
    successors: list[list[int]] = [[] for _ in predecessors]
    missing = [mask.bit_count() for mask in predecessors]
    for i, mask in enumerate(predecessors):
        for j in bits(mask):
            successors[j].append(i)
    ready = [i for i, n in enumerate(missing) if not n]
    order = []
    while ready:
        i = heapq.heappop(ready)
        order.append(i)
        for j in successors[i]:
            missing[j] -= 1
            if not missing[j]:
                heapq.heappush(ready, j)
    assert len(order) == len(predecessors), "the tasks wait for each other in a circle"
    return order
