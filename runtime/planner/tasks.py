"""Tasks: launches, copies and loops, the buffers they touch, and which must come before which.

A buffer lies in one segment and holds one value after another: most work and io buffers one value,
a state buffer the old contents and then the new. An access names the buffer, the value and its
turn in the buffer, so the order follows from the accesses alone: the writer of a value comes before
its readers, and the readers of old contents come before the writer of the new.

`graph_tasks.py` makes the tasks of a graph, `body.py` those of a loop's body. There a buffer may
also lie in what the loop is given, its operands, and move with the iterations.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

from graphc.base.bits import bits
from graphc.ir import Value, Where
from graphc.ir.state import ALIGNMENT
from graphc.kernels.program.kernel import Kernel
from graphc.runtime.plan.plan import STILL, Move
from graphc.runtime.planner.concurrency import Demand

OLD, FIRST, NEW = 0, 1, 2
"""Turns in a buffer: what lies there before anything is written, what a loop begins with, what is
written. A stack over a scanned value comes after that."""


@dataclass(frozen=True)
class BufferAccess:
    """A task's use of `buffer` while it holds the value named `value`: of `part`, an offset and a
    size in bytes, or of the whole."""

    buffer: int
    value: str
    part: tuple[int, int] | None = None
    turn: int = NEW

    @property
    def byte_range(self) -> tuple[int, tuple[int, int] | None]:
        """Its bytes, whatever they hold."""
        return self.buffer, self.part


class LoopLike(Protocol):
    """A loop among the tasks, as far as they know it: see `loop_body.py`."""

    @property
    def name(self) -> str: ...
    @property
    def demand(self) -> Demand:
        """Of all iterations."""


@dataclass(frozen=True)
class Task:
    """A launch, a loop, or a copy of one buffer to another if both are None. `writes` ends with
    the kernel's workspace if it has one, or with the memory of the loop's iterations."""

    kernel: Kernel | None
    reads: tuple[BufferAccess, ...]
    writes: tuple[BufferAccess, ...]
    where: Where = field(default_factory=Where)
    loop: LoopLike | None = None
    stage: int = 0
    """Of a loop's wavefront: its steps begin that many iterations after the loop's first."""

    @property
    def name(self) -> str:
        if self.loop is not None:
            return self.loop.name
        return "copy" if self.kernel is None else self.kernel.name


@dataclass(frozen=True)
class PlannedBuffer:
    """`nbytes` of a segment, or of a loop's operand of that name, moving with the iterations.

    `start` is None in the work segment until memory is planned. `least` are the bytes that a
    perfect packing of its contents would take, where it is the memory of a loop's iterations.
    """

    segment: str
    nbytes: int
    start: int | None = None
    move: Move = STILL
    least: int | None = None

    @property
    def aligned_bytes(self) -> int:
        """Bytes with alignment."""
        return aligned(self.nbytes)

    @property
    def least_aligned_bytes(self) -> int:
        return self.aligned_bytes if self.least is None else aligned(self.least)


@dataclass(frozen=True)
class Tasks:
    """What is to be planned.

    `tasks` stand in an executable order; `predecessors[i]` has bit j set if task j must end before
    task i begins. `inputs`, `outputs` and `state` say in which buffer a graph's value lies, and
    under which name.
    """

    tasks: tuple[Task, ...]
    predecessors: tuple[int, ...]
    buffers: tuple[PlannedBuffer, ...]
    inputs: tuple[tuple[Value, BufferAccess], ...]
    outputs: tuple[tuple[Value, BufferAccess], ...]
    state: tuple[tuple[Value, BufferAccess], ...]

    @cached_property
    def aligned_sizes(self) -> list[int]:
        """Bytes of each buffer, with alignment."""
        return [buffer.aligned_bytes for buffer in self.buffers]

    def nbytes(self, access: BufferAccess) -> int:
        """The bytes that an access touches."""
        return access.part[1] if access.part else self.buffers[access.buffer].nbytes

    def work_uses(self) -> dict[int, int]:
        """For each work buffer that is not empty, the tasks that touch it, as bits."""
        uses: dict[int, int] = {}
        for i, task in enumerate(self.tasks):
            for access in (*task.reads, *task.writes):
                buffer = self.buffers[access.buffer]
                if buffer.segment == "work" and buffer.nbytes:
                    uses[access.buffer] = uses.get(access.buffer, 0) | 1 << i
        return uses

    def first_writers(self) -> dict[int, int]:
        """For each buffer the first task that writes it; all other uses of a work buffer come
        after that."""
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
