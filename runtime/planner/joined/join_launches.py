"""Join steps of a plan into one launch, where launches take longer than their work.

The blocks of a joined launch wait for each other where a part touches bytes that another wrote, or
writes bytes that another touched, since the last barrier. Parts of a single block need none, as one
block runs them; nor do loops whose blocks own rows, or parts that own patches
(`block_partition.py`), as one block runs these in all iterations. Parts are ordered to need few
barriers (`part_order.py`). So what is computed, and in which order sums are taken, is what the
plan's steps say. The verifier proves it again from the result (`proof/joined_proof.py`).

A joined launch is cooperative: the driver starts it only if all its blocks can be resident at once.
So it completes whatever other streams do: no block waits for one that has not started. Plans of
several streams have none: their launches overlap already, and a barrier would make each wait for
both.

The estimate: a step alone takes a launch per launch of its kernel, and its work. In a joined launch
it takes its work, times `_slower`, and the barriers, `Rates.barrier` each. A step that would not
gain stays alone, and a run of steps is joined only if it gains `MARGIN` of its time. A kernel whose
last blocks draw tickets needs one more launch as parts, which draw none; runs are tried with such
steps, then without.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from graphc.base.target import Kind, kind_of
from graphc.kernels.lower import joined_kernel
from graphc.kernels.program.body.names import identifier
from graphc.kernels.program.joined import (
    COPIED_AT_ONCE,
    MOST_ARGUMENTS,
    RESIDENT,
    ArgumentAddress,
    JoinedLoop,
    JoinedPart,
    JoinedStep,
    StagedRows,
    joinable,
)
from graphc.kernels.program.kernel import GridLaunch, Kernel
from graphc.runtime.plan.plan import (
    STILL,
    Copy,
    JoinedLaunch,
    Launch,
    LaunchPart,
    Loop,
    Plan,
    Range,
    RepeatedParts,
    Step,
    all_steps,
)
from graphc.runtime.planner.concurrency import DeviceModel
from graphc.runtime.planner.joined.block_partition import (
    hull,
    passes_own_rows,
    resident_launch,
    waiting_launches,
)
from graphc.runtime.planner.joined.part_order import as_early_as_possible, phases
from graphc.runtime.planner.joined.shared_staging import staged_rows

MARGIN = 0.3
"""The fraction of its time that a run of steps must gain by estimate to be joined: launch and
barrier times are not measured yet."""


def joined(plan: Plan) -> Plan:
    """`plan` with runs of steps that gain as one launch each."""
    kind = kind_of(plan.device)
    if plan.streams > 1 or not kind.rates.barrier:
        return plan
    chosen: list[_Run] = []
    for draws in (True, False):  # what gains too little with them may do without
        for number, steps in _runs(plan, kind, draws):
            run = _Run(plan, number)
            run.add(steps)
            apart = all(run.stop <= x.first or x.stop <= run.first for x in chosen)
            if apart and run.gains(kind):
                chosen.append(run)
    chosen.sort(key=lambda run: run.first)
    found = [run.joined(f"{identifier(plan.name)}_{n}") for n, run in enumerate(chosen)]
    return replace(plan, joined=tuple(found), notes=(*plan.notes, *map(_note, found)))


def _note(joined: JoinedLaunch) -> str:
    """The plan's note about a joined launch."""
    steps = f"steps {joined.first} to {joined.stop - 1}"
    waits = f"whose blocks wait for each other at {_waits(joined.parts)} places"
    return f"joined: {steps} as one launch, {waits}"


def _waits(parts: Sequence[LaunchPart | RepeatedParts]) -> int:
    """The number of barriers of all blocks."""
    return sum(p.waits + (0 if isinstance(p, LaunchPart) else _waits(p.parts)) for p in parts)


def _runs(plan: Plan, kind: Kind, draws: bool) -> Iterator[tuple[int, list[Step]]]:
    """Runs of neighbouring steps that gain, each with the number of its first step; `draws`
    includes steps that draw tickets on their own."""
    run: list[Step] = []
    number = first = 0
    filled = False
    for step in plan.steps:
        fills = isinstance(step, Loop) and bool(resident_launch(plan, step))
        if fills or (filled and not isinstance(step, Copy)):
            # Its blocks fill a multiprocessor, which is for copies beside, but not for others.
            copies = 0 if filled else _copies_at_end(run)
            if run[: len(run) - copies]:
                yield first, run[: len(run) - copies]
            run = run[len(run) - copies :]
            first, filled = number - copies, fills
        if fills or ((draws or not _draws(plan, step)) and _gains(plan, step, kind)):
            first = first if run else number
            run.append(step)
        elif run:
            yield first, run
            run = []
        number += len(all_steps([step]))
    if run:
        yield first, run


def _copies_at_end(run: Sequence[Step]) -> int:
    """The number of copies at the end of a run."""
    return next((n for n, x in enumerate(reversed(run)) if not isinstance(x, Copy)), len(run))


def _draws(plan: Plan, step: Step) -> bool:
    """Whether a step draws tickets when it is launched alone."""
    return isinstance(step, Launch) and plan.kernels[step.kernel].draws_tickets


def _gains(plan: Plan, step: Step, kind: Kind) -> bool:
    """Whether a step is faster as a part, with a barrier before it."""
    if isinstance(step, Loop):
        return all(_gains(plan, inner, kind) for inner in step.steps)
    if isinstance(step, Copy):
        return True
    if not isinstance(step, Launch) or not joinable(plan.kernels[step.kernel]):
        return False
    if plan.kernels[
        step.kernel
    ].fills_multiprocessor:  # it takes more registers than two blocks have each
        return False
    alone, part = _times(plan, plan.kernels[step.kernel], kind)
    return part + kind.rates.barrier * len(plan.kernels[step.kernel].joined_launches) < alone


def _times(plan: Plan, kernel: Kernel, kind: Kind) -> tuple[float, float]:
    """Microseconds of a kernel alone, and of its work as part of a joined launch."""
    alone = DeviceModel(plan.device).kernel(kernel).microseconds
    work = alone - max(1, len(kernel.launches)) * kind.rates.launch
    return alone, work * max((_slower(x, kind) for x in kernel.joined_launches), default=1.0)


def _slower(launch: GridLaunch, kind: Kind) -> float:
    """The factor by which a launch is slower as a part: at most `RESIDENT` of its blocks are on a
    multiprocessor at once, where more might fit."""
    threads, blocks = launch.block[0], math.prod(launch.grid)
    alone = max(1, kind.full_threads // threads)
    rounds = [-(-blocks // (kind.multiprocessors * places)) for places in (alone, RESIDENT)]
    return max(1.0, rounds[1] / rounds[0])


@dataclass
class _Run:
    """Steps that become a joined launch."""

    plan: Plan
    """The plan."""
    first: int
    """The number of the first step."""
    parts: list[LaunchPart | RepeatedParts] = field(default_factory=list)
    """The parts, as the plan has them."""
    texts: list[JoinedStep] = field(default_factory=list)
    """The parts, as they are printed."""
    pointers: dict[tuple[str, int], Range] = field(default_factory=dict)
    """The argument for each first byte of a value."""
    stop: int = 0
    """The number after the last step."""

    def add(self, steps: Sequence[Step]) -> None:
        """Add steps with their parts."""
        walk = _Walk(self)
        found = list(walk.items(steps, self.first, ()))
        self.parts, self.texts = [p for p, _ in found], [t for _, t in found]
        self.stop = self.first + len(all_steps(steps))

    def joined(self, name: str) -> JoinedLaunch:
        """The joined launch."""
        kernel = joined_kernel(name, self.texts, len(self.pointers))
        arguments = tuple(replace(r, moves=()) for r in self.pointers.values())
        return JoinedLaunch(self.first, self.stop, tuple(self.parts), kernel, arguments)

    def gains(self, kind: Kind) -> bool:
        """Whether joining the steps is possible and gains enough."""
        alone, within = self._sums(self.texts, kind)
        fast = within + kind.rates.launch <= (1 - MARGIN) * alone
        return fast and len(self.pointers) <= MOST_ARGUMENTS

    def _sums(
        self, texts: Sequence[JoinedStep], kind: Kind, resident: JoinedPart | None = None
    ) -> tuple[float, float]:
        """Microseconds of the parts' separate launches, and of their work in a joined launch."""
        alone = within = 0.0
        for text in texts:
            if isinstance(text, JoinedLoop):
                a, b = self._sums(text.parts, kind, text.resident_part)
                alone, within = alone + text.count * a, within + text.count * b
                within += text.waits * kind.rates.barrier
                continue
            within += text.waits * kind.rates.barrier
            if text.kernel is None:
                whole = DeviceModel(self.plan.device).copy(text.nbytes).microseconds
                alone, within = alone + whole, within + whole - kind.rates.launch
            elif text.launch == 0:
                a, b = _times(self.plan, text.kernel, kind)
                if text is resident:
                    b *= 1 - text.kernel.resident_bytes / max(text.kernel.bytes, 1)
                alone, within = alone + a, within + b
        return alone, within

    def place(self, place: Range, loops: Sequence[Loop], offset: int = 0) -> ArgumentAddress:
        """The address of a range, by an argument shared with others of the same first byte."""
        key = place.segment, place.start
        self.pointers.setdefault(key, place)
        moves = zip(place.moves, loops, strict=False)
        found = tuple((m.stride, m.period, x.count) for m, x in moves)
        return ArgumentAddress(list(self.pointers).index(key), found, offset)


class _Walk:
    """Walks through steps in the order of `part_order.py` and decides where all blocks wait."""

    def __init__(self, run: _Run) -> None:
        self.run = run
        self.reads: list[tuple[Range, bool]] = []
        self.writes: list[tuple[Range, bool]] = []
        """Ranges touched since the last barrier of all blocks, each with whether a single block
        touched it."""
        self.must_wait = False

    def items(
        self, steps: Sequence[Step], number: int, loops: tuple[Loop, ...], owns_rows: bool = False
    ) -> Iterator[tuple[LaunchPart | RepeatedParts, JoinedStep]]:
        """The parts of `steps` as the plan has them and as they are printed."""
        found = phases(self.run.plan, steps, number)
        for turn in found if loops else as_early_as_possible(found):
            step, number = turn.step, turn.number
            if isinstance(step, Loop) and not loops and resident_launch(self.run.plan, step):
                yield self.resident_loop(step, number)
            elif isinstance(step, Loop):
                rows = passes_own_rows(self.run.plan, step)
                self.must_wait = not rows
                inner = list(self.items(step.steps, number + 1, (*loops, step), rows))
                near = self.staged_rows(step) if rows and not loops else None
                self.must_wait = True
                parts, texts = tuple(p for p, _ in inner), tuple(t for _, t in inner)
                holds = _most_resident(texts) if rows else None
                yield (
                    RepeatedParts(number, parts, rows),
                    JoinedLoop(step.count, texts, rows, holds, near),
                )
            elif isinstance(step, Copy):
                waits = self.add_part((step.source,), (step.target,), False)
                places = (step.source, step.target)
                size = step.source.stop - step.source.start
                aligned = not any(x % COPIED_AT_ONCE for x in (*_starts(places, loops), size))
                text = self.text(step, None, 0, places, waits, loops)
                yield LaunchPart(number, 0, waits), replace(text, nbytes=size, aligned=aligned)
            elif isinstance(step, Launch):
                kernel = self.run.plan.kernels[step.kernel]
                waits = not owns_rows and self.add_part(step.reads, step.writes, turn.alone)
                text = self.text(step, kernel, turn.launch, step.arguments, waits, loops)
                yield (
                    LaunchPart(number, turn.launch, waits, owns_rows),
                    replace(text, owns_rows=owns_rows),
                )

    def staged_rows(self, loop: Loop) -> StagedRows | None:
        """The rows that blocks of a loop with owned rows keep in shared memory."""
        steps = [step for step in loop.steps if isinstance(step, Launch)]

        def number(place: Range) -> int:
            return self.run.place(place, ()).argument

        return staged_rows(self.run.plan, steps, loop.count, number)

    def resident_loop(self, loop: Loop, number: int) -> tuple[RepeatedParts, JoinedLoop]:
        """A loop whose blocks keep an operand resident and run equally numbered blocks of all
        parts."""
        plan, waits, held = (
            self.run.plan,
            waiting_launches(self.run.plan, loop),
            resident_launch(self.run.plan, loop),
        )
        parts, texts, holds = [], [], None
        for n, step in enumerate(loop.steps):
            assert isinstance(step, Launch), "loops that hold something launch and nothing else"
            kernel = plan.kernels[step.kernel]
            for launch in range(len(kernel.joined_launches)):
                late = (n, launch) in waits
                text = self.text(step, kernel, launch, step.arguments, late, (loop,))
                texts.append(replace(text, owns_rows=True))
                parts.append(LaunchPart(number + 1 + n, launch, late, True))
                holds = texts[-1] if step is held and launch == 0 else holds
        late, self.must_wait = bool(self.reads or self.writes), True
        return RepeatedParts(number, tuple(parts), late), JoinedLoop(
            loop.count, tuple(texts), late, holds
        )

    def text(
        self,
        step: Launch | Copy,
        kernel: Kernel | None,
        launch: int,
        places: Sequence[Range],
        waits: bool,
        loops: Sequence[Loop],
    ) -> JoinedPart:
        """A part as it is printed."""
        plays = (step.stage, loops[-1].length) if loops and loops[-1].stages > 1 else ()
        offsets = [kernel.offset(n) if kernel else 0 for n in range(len(places))]
        found = tuple(self.run.place(x, loops, o) for x, o in zip(places, offsets, strict=True))
        return JoinedPart(kernel, launch, found, waits, iterations=plays)

    def conflicts(self, reads: Sequence[Range], writes: Sequence[Range], alone: bool) -> bool:
        """Whether all blocks must wait before a part that touches these bytes."""
        return self.must_wait or any(
            not (alone and single) and _meet(a, b)
            for mine, others in (
                (reads, self.writes),
                (writes, self.writes),
                (writes, self.reads),
            )
            for a in mine
            for b, single in others
        )

    def add_part(self, reads: Sequence[Range], writes: Sequence[Range], alone: bool) -> bool:
        """Record what a part touches; returns whether all blocks wait before it."""
        waits = self.conflicts(reads, writes, alone)
        if waits:
            self.reads, self.writes, self.must_wait = [], [], False
        self.reads += [(place, alone) for place in reads]
        self.writes += [(place, alone) for place in writes]
        return waits


def _meet(a: Range, b: Range) -> bool:
    """Whether two ranges may share a byte in one iteration."""
    if a.moves != b.moves:
        a, b = hull(a), hull(b)
    return a.overlaps(b)


def _most_resident(texts: Sequence[JoinedStep]) -> JoinedPart | None:
    """The part with the largest operand that its blocks may keep resident."""
    own = [(n, t, t.kernel) for n, t in enumerate(texts) if isinstance(t, JoinedPart) and t.kernel]
    held = [(kernel.resident_bytes, -n, t) for n, t, kernel in own]
    nbytes, _, found = max(held, default=(0, 0, None))
    return found if nbytes else None


def _starts(places: Sequence[Range], loops: Sequence[Loop]) -> list[int]:
    """Numbers that must all be multiples of the size that a copy moves at once."""
    moves = [m.stride for place in places for m in place.moves if m != STILL]
    return [*(place.start for place in places), *moves]
