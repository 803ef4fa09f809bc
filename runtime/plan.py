"""The plan: every launch, byte and event of one call of a program, decided ahead of time."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from graphc.ir import Value, Where
from graphc.kernels.kernel import Kernel

if TYPE_CHECKING:
    from graphc.runtime.verify import Certificate


@dataclass(frozen=True)
class Range:
    """Bytes `start` to `stop` (exclusive) of a segment.

    Segments are "work" (the transient arena), "state" (stays on the device between calls; offsets
    are those of `Plan.state`) and "io" (the call's inputs and outputs; offsets of `Plan.io`).
    `value` is the name of the value that lies there.
    """

    segment: str
    start: int
    stop: int
    value: str = field(default="", compare=False)

    def overlaps(self, other: Range) -> bool:
        return self.segment == other.segment and self.start < other.stop and other.start < self.stop


@dataclass(frozen=True)
class Launch:
    """Run `kernel` on `stream` with `arguments` in the order of `Kernel`."""

    stream: int
    kernel: str
    arguments: tuple[Range, ...]
    reads: tuple[Range, ...]
    writes: tuple[Range, ...]
    where: Where = field(default_factory=Where)


@dataclass(frozen=True)
class Copy:
    """Copy bytes on `stream`; `source` and `target` have the same length."""

    stream: int
    source: Range
    target: Range


@dataclass(frozen=True)
class Record:
    """Mark `event` when all that was put on `stream` before has ended."""

    stream: int
    event: int


@dataclass(frozen=True)
class Wait:
    """Let what comes later on `stream` begin after `event`."""

    stream: int
    event: int


Step = Launch | Copy | Record | Wait


@dataclass(frozen=True)
class Binding:
    """A value that lives outside the work arena, and its place in its segment."""

    value: Value
    place: Range


@dataclass(frozen=True)
class Plan:
    """Steps in the order in which they are issued; `streams` FIFO queues.

    Every stream forks from stream 0 and is joined by it at the end, by events where no other edge
    implies the order. Plans of one device run one after another.
    """

    name: str
    device: str
    streams: int
    steps: tuple[Step, ...]
    kernels: dict[str, Kernel]
    state: tuple[Binding, ...]
    inputs: tuple[Binding, ...]
    outputs: tuple[Binding, ...]
    peak_bytes: int
    """Bytes of the work arena, workspaces, padding and alignment included."""
    lower_bound_bytes: int
    """The most bytes live at once over the serial order."""
    notes: tuple[str, ...] = ()
    """What the planner chose and why, one line each (`streams: auto chose 1 ...`)."""

    def verify(self) -> Certificate:
        """Prove the plan's orderings; raises PlanError."""
        from graphc.runtime.verify import verify

        return verify(self)

    def __str__(self) -> str:
        return self.text()

    def text(self, measured: bool = False) -> str:
        """One line per step. `measured` adds measured times where there are any."""
        from graphc.runtime.plan_text import plan_text

        return plan_text(self, measured)
