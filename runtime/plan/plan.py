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

    A period of 2 is a pair of buffers that take turns, one of the loop's count a stack.
    """

    stride: int
    period: int

    def at(self, iteration: int) -> int:
        """The offset in bytes."""
        return iteration % self.period * self.stride


STILL = Move(0, 1)


@dataclass(frozen=True)
class Range:
    """Bytes `start` to `stop` (exclusive) of a segment.

    Segments are "work" (the transient arena), "state" (stays on the device between calls; offsets
    are those of `Plan.state`) and "io" (the call's inputs and outputs; offsets of `Plan.io`).
    `value` is the name of the value that lies there. Within loops `moves` says how the range moves
    with each, the outermost first; with those that it does not name it does not move.
    """

    segment: str
    start: int
    stop: int
    value: str = field(default="", compare=False)
    moves: tuple[Move, ...] = ()

    def at(self, iterations: Sequence[int]) -> Range:
        """Where it lies in these iterations of the enclosing loops, the outermost first."""
        offset = sum(m.at(t) for m, t in zip(self.moves, iterations, strict=False))
        return Range(self.segment, self.start + offset, self.stop + offset, self.value)

    def overlaps(self, other: Range) -> bool:
        return self.segment == other.segment and self.start < other.stop and other.start < self.stop


@dataclass(frozen=True)
class Launch:
    """Run `kernel` on `stream` with `arguments` in the order of `Kernel`. `stage` is that of a loop
    that has several."""

    stream: int
    kernel: str
    arguments: tuple[Range, ...]
    reads: tuple[Range, ...]
    writes: tuple[Range, ...]
    where: Where = field(default_factory=Where)
    stage: int = 0


@dataclass(frozen=True)
class Copy:
    """Copy bytes on `stream`; `source` and `target` have the same length."""

    stream: int
    source: Range
    target: Range
    stage: int = 0


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


@dataclass(frozen=True)
class LoopCarry:
    """What the iterations of a loop hand on. In the first one `old` is the value at `initial`, in
    any other what the one before left as `new`; what the last one leaves lies at `last`. First and
    last are meant in its stage."""

    old: str
    new: str
    initial: Range
    last: Range
    stage: int = 0


@dataclass(frozen=True)
class Stack:
    """Element t of the value at `place`, along its first axis, is `element` in the iteration of
    that number in its stage; in a loop that runs downwards the elements are counted from the
    end."""

    element: str
    place: Range
    stage: int = 0


@dataclass(frozen=True)
class Link:
    """In each iteration of `stage`, `element` is what the iteration before left as `value`, which
    belongs to the stage before."""

    element: str
    value: str
    stage: int


@dataclass(frozen=True)
class Loop:
    """Play `steps` `count` times on streams of the loop's own, the first of which is `stream`.

    An iteration begins when the one before it has ended on all of them, so its events are its own.
    `reads` and `writes` are what the loop needs from and leaves to other steps, the memory that is
    used within an iteration being the last of what it writes. `carries`, `scanned` (elements that
    iterations read) and `stacks` (that they write) say what the values named in `steps` are.

    A loop of several stages is a wavefront: several loops of one length, each of which scans what
    the one before it stacks, play at once, each an iteration behind the one before. Steps of stage
    s play in all iterations but the first s and the last `stages` - 1 - s; `links` say what
    stages hand on.
    """

    stream: int
    name: str
    count: int
    steps: tuple[Step, ...]
    reads: tuple[Range, ...]
    writes: tuple[Range, ...]
    carries: tuple[LoopCarry, ...] = ()
    scanned: tuple[Stack, ...] = ()
    stacks: tuple[Stack, ...] = ()
    reverse: bool = False
    where: Where = field(default_factory=Where)
    stage: int = 0
    stages: int = 1
    links: tuple[Link, ...] = ()

    @property
    def length(self) -> int:
        """In how many iterations each stage plays."""
        return self.count - self.stages + 1

    def plays(self, stage: int, iteration: int) -> bool:
        """Whether the steps of `stage` play in this iteration."""
        return stage <= iteration < stage + self.length

    @property
    def streams(self) -> int:
        """How many streams the loop has."""
        return 1 + max((step.stream for step in self.steps), default=0)


Step = Launch | Copy | Record | Wait | Loop


def all_steps(steps: Sequence[Step]) -> list[Step]:
    """The steps, each loop followed by its own. A step's place in this list is its number."""
    found: list[Step] = []
    for step in steps:
        found.append(step)
        if isinstance(step, Loop):
            found += all_steps(step.steps)
    return found


@dataclass(frozen=True)
class LaunchPart:
    """A launch of a joined launch: number `launch` of the kernel of step `step`, as `all_steps`
    counts; of a copy number 0. With `waits` all blocks wait for each other before it. Blocks of one
    number of parts with `owns_rows` are played by one block, which waits for itself alone."""

    step: int
    launch: int
    waits: bool
    owns_rows: bool = False


@dataclass(frozen=True)
class RepeatedParts:
    """The loop that is step `step`, within a joined launch. With `waits` all blocks wait for each
    other before it, else before the first part of each iteration."""

    step: int
    parts: tuple[LaunchPart | RepeatedParts, ...]
    waits: bool = False


@dataclass(frozen=True)
class JoinedLaunch:
    """The steps from number `first` to before `stop`, as `all_steps` counts, none of which waits or
    records, as one cooperative launch: all its blocks run at once, play the `parts` in this order,
    and wait for each other where that is said. `arguments` are those of `kernel`."""

    first: int
    stop: int
    parts: tuple[LaunchPart | RepeatedParts, ...]
    kernel: Kernel
    arguments: tuple[Range, ...]


@dataclass(frozen=True)
class Binding:
    """A value that lives outside the work arena, and its place in its segment."""

    value: Value
    place: Range


@dataclass(frozen=True)
class Estimate:
    """What one call is estimated to take, in microseconds; the same with all kernels one after
    another; and what it takes `least` on any number of streams. They rank plans, and predict
    nothing."""

    microseconds: float = 0.0
    serial: float = 0.0
    least: float = 0.0


NOT_ESTIMATED = Estimate()


@dataclass(frozen=True)
class Plan:
    """Steps in the order in which they are issued; `streams` FIFO queues.

    Every stream forks from stream 0 and is joined by it at the end, by events where no other edge
    implies the order. Plans of one device run one after another. A loop is one step, whatever its
    count.
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
    estimate: Estimate = field(default=NOT_ESTIMATED, compare=False)
    joined: tuple[JoinedLaunch, ...] = ()
    """Runs of steps that a device may play as one launch each, in their order. The steps say what
    is computed, with these or without."""

    prove: ClassVar[Callable[[Plan], Certificate]]
    """Set by `graphc.runtime.proof`, which stands above this folder."""
    format_text: ClassVar[Callable[[Plan, bool], str]]
    """Set by `text.py`, which knows what a plan is."""

    def verify(self) -> Certificate:
        """Prove the plan's orderings; raises PlanError. `graphc.runtime.proof` has the proof."""
        return Plan.prove(self)

    def __str__(self) -> str:
        return self.text()

    def _repr_html_(self) -> str:
        from graphc.base.html import details

        launches = sum(isinstance(step, Launch) for step in all_steps(self.steps))
        title = f"plan {self.name}: {launches} launches on {self.streams} stream(s), "
        return details(f"{title}peak {self.peak_bytes:,} bytes of work memory", str(self))

    def text(self, measured: bool = False) -> str:
        """One line per step. `measured` adds measured times where there are any."""
        return Plan.format_text(self, measured)
