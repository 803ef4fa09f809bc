"""Execute plans over a shadow of the memory, with a vector clock per stream.

A clock holds, for each stream, how many of its steps are known to have ended before the clock's
stream continues. A record stores its stream's clock; a wait takes the maximum with the stored one.
So "step p before step q" is one comparison: q's clock at p's stream has reached p's position.

The memory is cut at every start and stop of a range. Each cell knows the value that it holds, the
step that wrote it and, for each stream, the last step that read it since. A read must follow the
cell's writer and find the value that it names; a write must follow the writer and all readers.
Since every write follows the one before it, this covers every pair of steps that touch a byte and
do not both only read it. (The method is FastTrack's: Flanagan and Freund, 2009.) A loop is one
step, whose results may overlap: a stack, and the last carry, its last element. Launches of one
kernel that draws tickets share its counters, which count as memory that each writes.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Any

import numpy as np

from graphc.base.errors import PlanError
from graphc.ir import Value
from graphc.runtime.plan.plan import Copy, Launch, Loop, Plan, Range, Record, Step, Wait, all_steps

VectorClock = np.ndarray[Any, np.dtype[np.int32]]
COUNTERS = "counters of "
"""The prefix of the names of such memory."""
NOTHING = -1
"""No value, no step."""


def ranges(step: Step) -> tuple[Range, ...]:
    """The ranges that `step` reads and writes."""
    return reads_of(step) + writes_of(step)


def reads_of(step: Step) -> tuple[Range, ...]:
    """The ranges that `step` reads."""
    if isinstance(step, Launch | Loop):
        return step.reads
    return (step.source,) if isinstance(step, Copy) else ()


def writes_of(step: Step) -> tuple[Range, ...]:
    """The ranges that `step` writes."""
    if isinstance(step, Launch | Loop):
        return step.writes
    return (step.target,) if isinstance(step, Copy) else ()


def counters_of(step: Step, plan: Plan) -> tuple[Range, ...]:
    """The ticket counters that `step` uses, as memory of its kernel."""
    if isinstance(step, Launch) and plan.kernels[step.kernel].draws_tickets:
        return (Range(f"{COUNTERS}{step.kernel}", 0, 1, "tickets"),)
    return ()


def named(index: int, step: Step) -> str:
    """Text such as `step 14 (s1 launch conv2_wgrad)`."""
    match step:
        case Launch():
            what = f"launch {step.kernel}"
        case Loop():
            what = f"loop {step.name}"
        case Copy():
            what = f"copy {step.source.value}"
        case Record():
            what = f"record e{step.event}"
        case Wait():
            what = f"wait e{step.event}"
    return f"step {index} (s{step.stream} {what})"


def range_text(place: Range) -> str:
    """Text such as `conv1=work+0..1152000`, in bytes."""
    return f"{place.value}={place.segment}+{place.start}..{place.stop}"


class Shadow:
    """Executes plans one after another on one arena, on construction.

    Raises PlanError if two steps are not ordered, if a read does not find its value, or if a step
    may run before the plan begins or after it ends. `pairs` counts, for each cell, the pairs of
    steps that were compared. State of one name is the same memory in all plans; inputs and outputs
    differ in every run.
    """

    def __init__(self, plans: Sequence[Plan]) -> None:
        _check_shared_state(plans)
        self.plans = plans
        self.pairs = 0
        streams = max(plan.streams for plan in plans)
        self.now = np.zeros((streams, streams), np.int32)
        self.state = [sorted(p.state, key=lambda b: b.place.start) for p in plans]
        self.first = [sum(len(p.steps) for p in plans[:run]) for run in range(len(plans))]
        """The number of each plan's first step."""
        steps = sum(len(plan.steps) for plan in plans)
        self.cells = self._cut()
        self.stream_of = np.zeros(steps + 1, np.int32)
        self.place_of = np.zeros(steps + 1, np.int32)
        """A step's position on its stream; the last entry is 0, so that NOTHING precedes
        everything."""
        self.names: dict[frozenset[str], int] = {}
        """The number of each set of values that a cell holds at once."""
        self.held = np.full(len(self.cells), NOTHING, np.int32)
        self.writer = np.full(len(self.cells), NOTHING, np.int32)
        self.reader = np.full((len(self.cells), streams), NOTHING, np.int32)
        for run in range(len(plans)):
            self._play(run)

    def _cut(self) -> dict[tuple[str, int], int]:
        """The number of the cell that begins at each (memory, byte), ascending within a memory."""
        cuts = set()
        for run, plan in enumerate(self.plans):
            bound = [b.place for b in (*plan.state, *plan.inputs, *plan.outputs)]
            touched = [r for s in plan.steps for r in (*ranges(s), *counters_of(s, plan))]
            for place in (*bound, *touched):
                memory, origin = self._memory(run, place)
                cuts |= {(memory, place.start - origin), (memory, place.stop - origin)}
        return {cut: number for number, cut in enumerate(sorted(cuts))}

    def _memory(self, run: int, place: Range) -> tuple[str, int]:
        """The memory of `place`, and the byte of its segment where that memory begins."""
        if place.segment == "work" or place.segment.startswith(COUNTERS):
            return place.segment, 0
        if place.segment == "io":
            return f"io {run}", 0
        bindings = self.state[run]
        index = bisect_right(bindings, place.start, key=lambda b: b.place.start) - 1
        if index < 0 or place.stop > bindings[index].place.stop:
            raise PlanError(f"plan {self.plans[run].name}: no state lies at {range_text(place)}")
        return f"state {bindings[index].value.name}", bindings[index].place.start

    def _slice(self, run: int, place: Range) -> slice:
        """The cells of a range."""
        memory, origin = self._memory(run, place)
        cells = self.cells
        return slice(cells[memory, place.start - origin], cells[memory, place.stop - origin])

    def _number(self, *values: str) -> int:
        """The content number of a set of values."""
        return self.names.setdefault(frozenset(values), len(self.names))

    def _values_of(self, cell: int) -> frozenset[str]:
        """The values in a cell with this content number."""
        return frozenset() if cell == NOTHING else list(self.names)[cell]

    def _play(self, run: int) -> None:
        """Execute the plan of a run."""
        plan, first = self.plans[run], self.first[run]
        self.held[:] = NOTHING
        for binding in (*plan.state, *plan.inputs):
            self.held[self._slice(run, binding.place)] = self._number(binding.place.value)
        self.now[0, 0] += 1
        beginning = self.now[0, 0]
        events: dict[int, VectorClock] = {}
        for index, step in enumerate(plan.steps):
            now = self.now[step.stream]
            if isinstance(step, Record):
                events[step.event] = now.copy()
            elif isinstance(step, Wait):
                np.maximum(now, events[step.event], out=now)
            elif now[0] < beginning:
                raise PlanError(
                    f"plan {plan.name}: {named(index, step)} may run before the plan begins: "
                    f"s{step.stream} waits for no event that comes after the beginning on s0"
                )
            else:
                now[step.stream] += 1
                self.stream_of[first + index] = step.stream
                self.place_of[first + index] = now[step.stream]
                self._touch(run, index, step, now)
        self._check_join(plan)
        self._check_end(run)

    def _touch(self, run: int, index: int, step: Launch | Copy | Loop, now: VectorClock) -> None:
        """Check and record the reads, then the writes of `step`, whose clock is `now`."""
        number = self.first[run] + index
        reads, writes = reads_of(step), writes_of(step) + counters_of(step, self.plans[run])
        names = [step.source.value] if isinstance(step, Copy) else [r.value for r in writes]
        for place in reads:
            cells = self._slice(run, place)
            self._check_value(run, index, place, cells)
            self._check_order(number, place, "reads", self.writer[cells], "writes", now)
            self.reader[cells, step.stream] = number
        for place in writes:
            cells = self._slice(run, place)
            self._check_order(number, place, "writes", self.writer[cells], "writes", now)
            self._check_order(number, place, "writes", self.reader[cells].ravel(), "reads", now)
        for place, value in zip(writes, names, strict=True):
            cells = self._slice(run, place)
            before = self.held[cells]
            again = self.writer[cells] == number
            also = [self._number(value, *self._values_of(held)) for held in before[again]]
            self.held[cells] = self._number(value)
            self.held[cells][again] = also
            self.writer[cells] = number
            self.reader[cells] = NOTHING

    def _check_order(
        self, number: int, place: Range, does: str, others: VectorClock, did: str, now: VectorClock
    ) -> None:
        """Check that step `number`, which `does` something at `place`, follows all steps `others`,
        each of which `did` something there."""
        if len(others) == 1:  # most ranges are one cell, for which NumPy's loops take too long
            other = others.item()
            self.pairs += other != NOTHING
            if self.place_of[other] <= now[self.stream_of[other]]:
                return
        else:
            self.pairs += int(np.count_nonzero(others != NOTHING))
        late = self.place_of[others] > now[self.stream_of[others]]
        if not late.any():
            return
        other = int(others[late][0])
        name, step = self._locate(number)
        other_name, other_step = self._locate(other)
        run = bisect_right(self.first, other) - 1
        touched = (*ranges(other_step), *counters_of(other_step, self.plans[run]))
        theirs = next(r for r in touched if self._meets(other, r, number, place))
        raise PlanError(
            f"{other_name} {did} {range_text(theirs)} and {name} {does} {range_text(place)}, "
            f"and nothing orders them: s{step.stream} waits for no event that comes after the "
            f"former on s{other_step.stream}"
        )

    def _meets(self, a: int, one: Range, b: int, other: Range) -> bool:
        """Whether the range `one` of step a and `other` of step b share a cell."""
        cells, others = (
            self._slice(bisect_right(self.first, n) - 1, r) for n, r in ((a, one), (b, other))
        )
        return bool(cells.start < others.stop and others.start < cells.stop)

    def _locate(self, number: int) -> tuple[str, Step]:
        """The name of a step with its plan, and the step."""
        run = bisect_right(self.first, number) - 1
        steps, index = self.plans[run].steps, number - self.first[run]
        again = " again" if run and self.plans[run] is self.plans[0] else ""
        place = len(all_steps(steps[:index]))
        return f"plan {self.plans[run].name}{again}, {named(place, steps[index])}", steps[index]

    def _check_value(self, run: int, index: int, place: Range, cells: slice) -> None:
        """Check that cells hold the value that a read names."""
        wrong = self._without(place.value, cells)
        if wrong is not None:
            plan = self.plans[run]
            found = ", ".join(sorted(wrong)) or "nothing"
            raise PlanError(
                f"plan {plan.name}: {named(index, plan.steps[index])} reads {range_text(place)}, "
                f"which holds {found}"
            )

    def _without(self, value: str, cells: slice) -> frozenset[str] | None:
        """The values of a cell that lacks `value`; None if there is no such cell."""
        held = self.held[cells]
        for other in held[held != self._number(value)]:
            if value not in self._values_of(other):
                return self._values_of(other)
        return None

    def _check_join(self, plan: Plan) -> None:
        """Check that the end on stream 0 follows all steps."""
        for stream, clock in enumerate(self.now):
            if self.now[0, stream] < clock[stream]:
                last = max(
                    i
                    for i, step in enumerate(plan.steps)
                    if step.stream == stream and isinstance(step, Launch | Copy | Loop)
                )
                raise PlanError(
                    f"plan {plan.name}: {named(last, plan.steps[last])} may run after the plan "
                    f"ends: s0 waits for no event that comes after it on s{stream}"
                )

    def _check_end(self, run: int) -> None:
        """Check that each output holds its value, and each state one value."""
        plan = self.plans[run]
        for binding in plan.outputs:
            if self._without(binding.place.value, self._slice(run, binding.place)) is not None:
                raise PlanError(
                    f"plan {plan.name}: the output %{binding.value.name} does not hold "
                    f"{range_text(binding.place)} at the end"
                )
        for binding in plan.state:
            held = self.held[self._slice(run, binding.place)]
            if (held[1:] != held[:-1]).any():
                raise PlanError(
                    f"plan {plan.name}: the state %{binding.value.name} holds several values at "
                    "the end"
                )


def _check_shared_state(plans: Sequence[Plan]) -> None:
    """Raise PlanError if plans give state of one name different types."""
    types: dict[str, Value] = {}
    for plan in plans:
        for binding in plan.state:
            value = binding.value
            known = types.setdefault(value.name, value)
            if known.type != value.type:
                raise PlanError(
                    f"plan {plan.name}: the state %{value.name} is {value.type}, another plan "
                    f"knows it as {known.type}"
                )
