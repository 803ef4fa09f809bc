"""The plan: every launch, byte and event of one call of a program, decided ahead of time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from graphc.ir import Value, Where
from graphc.kernels.program.kernel import Kernel
from graphc.runtime.plan.certificate import Certificate


@dataclass(frozen=True)
class Move:
    """How a range moves with a loop: by (t mod `period`) * `stride` bytes in iteration t.

    A period of 1 stays in place, 2 alternates between two buffers, and the loop's count is a stack.
    """

    stride: int
    """Bytes per iteration."""
    period: int
    """Iterations after which the range is back at its start."""

    def at(self, iteration: int) -> int:
        """The offset in bytes."""
        return iteration % self.period * self.stride


STILL = Move(0, 1)
"""A range that does not move."""


@dataclass(frozen=True)
class Range:
    """Bytes `start` to `stop` (exclusive) of a segment."""

    segment: str
    """One of "work" (the transient arena), "state" (stays on the device between calls; laid out as
    `Plan.state`) and "io" (the call's inputs and outputs; laid out as `Plan.inputs` and
    `Plan.outputs`)."""
    start: int
    """The first byte."""
    stop: int
    """The end, exclusive."""
    value: str = field(default="", compare=False)
    """The name of the value stored there; "" for none."""
    moves: tuple[Move, ...] = ()
    """How the range moves with each enclosing loop, the outermost first; it is still in loops
    beyond these."""

    def at(self, iterations: Sequence[int]) -> Range:
        """The range in these iterations of the enclosing loops, the outermost first."""
        offset = sum(m.at(t) for m, t in zip(self.moves, iterations, strict=False))
        return Range(self.segment, self.start + offset, self.stop + offset, self.value)

    def overlaps(self, other: Range) -> bool:
        """Whether the two share a byte."""
        return self.segment == other.segment and self.start < other.stop and other.start < self.stop


@dataclass(frozen=True)
class Launch:
    """Run `kernel` on `stream`."""

    stream: int
    kernel: str
    arguments: tuple[Range, ...]
    """The kernel's arguments: what it reads, then what it writes."""
    reads: tuple[Range, ...]
    """The ranges that it reads."""
    writes: tuple[Range, ...]
    """The ranges that it writes; last, the workspace if there is one."""
    where: Where = field(default_factory=Where)
    """Where in the user's program it comes from."""
    stage: int = 0
    """The stage of the enclosing wavefront that it belongs to; 0 in any other loop."""
    guarded: bool = False
    """Whether it may be left out where the guard of the enclosing loop is false."""


@dataclass(frozen=True)
class Copy:
    """Copy bytes on `stream`; `source` and `target` have the same length."""

    stream: int
    source: Range
    target: Range
    stage: int = 0
    """The stage of the enclosing wavefront; 0 in any other loop."""
    guarded: bool = False
    """Whether it may be left out where the guard of the enclosing loop is false."""


@dataclass(frozen=True)
class Record:
    """Record `event` on `stream`: it completes when all earlier steps of the stream have ended."""

    stream: int
    event: int


@dataclass(frozen=True)
class Wait:
    """Make later steps of `stream` wait for `event`."""

    stream: int
    event: int


@dataclass(frozen=True)
class LoopCarry:
    """A value that each iteration of a loop hands to the next."""

    old: str
    """The value's name where an iteration reads it."""
    new: str
    """The value's name where an iteration writes it."""
    initial: Range
    """The value that the first iteration of the stage reads."""
    last: Range
    """The value that the last iteration of the stage leaves."""
    stage: int = 0
    """The stage of the wavefront that it belongs to."""


@dataclass(frozen=True)
class Stack:
    """A value whose element t along its first axis is `element` in iteration t of its stage. In a
    loop that runs downwards, elements count from the end."""

    element: str
    """The name of an element in the loop's body."""
    place: Range
    """The whole stack."""
    stage: int = 0


@dataclass(frozen=True)
class Link:
    """A value that one stage of a wavefront hands to the next: in each iteration, `element` of
    `stage` is what the previous iteration of the stage before left as `value`."""

    element: str
    value: str
    stage: int


@dataclass(frozen=True)
class Loop:
    """Run `steps` `count` times on streams of the loop's own, of which `stream` is the first.

    An iteration begins when the previous one has ended on all these streams, so its events are
    local.

    A loop of several stages is a wavefront: loops of equal length, each scanning what the one
    before stacks, run concurrently, each an iteration behind the one before. Steps of stage s run
    in all iterations but the first s and the last `stages` - 1 - s.
    """

    stream: int
    """The first of its streams."""
    name: str
    count: int
    """Iterations, those of later stages included."""
    steps: tuple[Step, ...]
    """The steps of an iteration."""
    reads: tuple[Range, ...]
    """What the loop needs from other steps."""
    writes: tuple[Range, ...]
    """What the loop leaves to other steps; last, the memory used within an iteration."""
    carries: tuple[LoopCarry, ...] = ()
    """Values that iterations hand on."""
    scanned: tuple[Stack, ...] = ()
    """Stacks whose elements iterations read."""
    stacks: tuple[Stack, ...] = ()
    """Stacks whose elements iterations write."""
    reverse: bool = False
    """Whether it runs from the last element to the first."""
    where: Where = field(default_factory=Where)
    stage: int = 0
    """The stage of an enclosing wavefront."""
    stages: int = 1
    """The number of stages; 1 unless it is a wavefront."""
    links: tuple[Link, ...] = ()
    """What stages hand to the next."""
    guard: Range | None = None
    """A bool, as it is when an iteration begins. Where it is false, nothing that counts depends on
    the `guarded` steps of the iteration, so that they may be left out."""
    guarded: bool = False
    """Whether it may be left out where the guard of the enclosing loop is false."""

    @property
    def length(self) -> int:
        """Iterations of each stage."""
        return self.count - self.stages + 1

    def plays(self, stage: int, iteration: int) -> bool:
        """Whether the steps of `stage` run in this iteration."""
        return stage <= iteration < stage + self.length

    @property
    def streams(self) -> int:
        """The number of streams that it uses."""
        return 1 + max((step.stream for step in self.steps), default=0)


Step = Launch | Copy | Record | Wait | Loop
"""A step of a plan."""


def all_steps(steps: Sequence[Step]) -> list[Step]:
    """The steps, each loop followed by its own. A step's position in this list is its number."""
    found: list[Step] = []
    for step in steps:
        found.append(step)
        if isinstance(step, Loop):
            found += all_steps(step.steps)
    return found


@dataclass(frozen=True)
class LaunchPart:
    """A launch, or a copy, as part of a joined launch."""

    step: int
    """The step's number."""
    launch: int
    """The number of the launch among the kernel's; 0 for a copy."""
    waits: bool
    """Whether all blocks wait for each other before it."""
    owns_rows: bool = False
    """Whether its blocks own rows. Equally numbered blocks of such parts run on one block, with a
    barrier of its threads in between."""


@dataclass(frozen=True)
class RepeatedParts:
    """A loop as part of a joined launch."""

    step: int
    """The loop's step number."""
    parts: tuple[LaunchPart | RepeatedParts, ...]
    """The parts of an iteration."""
    waits: bool = False
    """Whether all blocks wait for each other before the loop; if not, before the first part of each
    iteration."""


@dataclass(frozen=True)
class JoinedLaunch:
    """A run of steps as one cooperative launch: all its blocks run at once, execute the parts in
    order and wait for each other where a part says so."""

    first: int
    """The number of the first step."""
    stop: int
    """The number after the last step. None of the steps waits or records."""
    parts: tuple[LaunchPart | RepeatedParts, ...]
    """The parts in order."""
    kernel: Kernel
    """The kernel that runs all parts."""
    arguments: tuple[Range, ...]
    """The kernel's arguments."""


@dataclass(frozen=True)
class Binding:
    """A value outside the work arena and its place in its segment."""

    value: Value
    place: Range


@dataclass(frozen=True)
class Estimate:
    """Estimated times of one call, in microseconds. They rank plans and predict nothing."""

    microseconds: float = 0.0
    """The plan as it is."""
    serial: float = 0.0
    """All kernels one after another."""
    least: float = 0.0
    """The least on any number of streams."""


NOT_ESTIMATED = Estimate()


@dataclass(frozen=True)
class Plan:
    """Steps in the order in which they are issued to `streams` FIFO queues.

    Every stream forks from stream 0 and is joined by it at the end, by events where no other edge
    implies the order. Plans of one device run one after another. A loop is one step, whatever its
    count.
    """

    name: str
    device: str
    """The kind of device, such as "cuda"."""
    streams: int
    """The number of streams."""
    steps: tuple[Step, ...]
    """The steps in issue order."""
    kernels: dict[str, Kernel]
    """The kernels by name."""
    state: tuple[Binding, ...]
    """State values, in the order of the state segment."""
    inputs: tuple[Binding, ...]
    """The inputs, in the order of the io segment."""
    outputs: tuple[Binding, ...]
    """The outputs, after the inputs in the io segment."""
    peak_bytes: int
    """Bytes of the work arena, workspaces, padding and alignment included."""
    lower_bound_bytes: int
    """The most bytes live at once over the serial order."""
    notes: tuple[str, ...] = ()
    """What the planner chose and why, one line each (`streams: auto chose 1 ...`)."""
    estimate: Estimate = field(default=NOT_ESTIMATED, compare=False)
    """Estimated times of one call."""
    joined: tuple[JoinedLaunch, ...] = ()
    """Runs of steps that a device may execute as one launch each, in order. The steps define what
    is computed, with or without these."""

    prove: ClassVar[Callable[[Plan], Certificate]]
    """The verifier, set by `graphc.runtime.proof`, which imports this package."""
    format_text: ClassVar[Callable[[Plan, bool], str]]
    """The printer, set by `text.py`, which imports this module."""

    def verify(self) -> Certificate:
        """Prove the plan's orderings; raises PlanError. The proof is in `graphc.runtime.proof`."""
        return Plan.prove(self)

    def __str__(self) -> str:
        return self.text()

    def _repr_html_(self) -> str:
        from graphc.base.html import details

        launches = sum(isinstance(step, Launch) for step in all_steps(self.steps))
        title = f"plan {self.name}: {launches} launches on {self.streams} stream(s), "
        return details(f"{title}peak {self.peak_bytes:,} bytes of work memory", str(self))

    def text(self, measured: bool = False) -> str:
        """The plan with one line per step; `measured` includes notes with measured times."""
        return Plan.format_text(self, measured)
