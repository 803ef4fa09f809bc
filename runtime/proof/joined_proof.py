"""Prove that a joined launch does what its steps do, from the plan alone; shares no code with the
planner.

Its parts are all launches and copies of its steps, within loops as in the steps, in the same order
or in another where neither of two parts writes a byte that the other touches. They are executed
over the bytes that they touch, with loops unrolled. Two parts without a barrier of all blocks in
between must not touch a common byte, unless both only read it, or both are the same single block,
or equally numbered blocks of them touch the same share of these bytes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from graphc.base.errors import PlanError
from graphc.runtime.plan.plan import (
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
from graphc.runtime.proof.shadow import named, range_text, ranges, writes_of


def check_joined(plan: Plan) -> int:
    """Check all joined launches; returns how many pairs of ranges were compared. Raises
    PlanError."""
    steps, stop, pairs = all_steps(plan.steps), 0, 0
    for joined in plan.joined:
        name = f"plan {plan.name}: {joined.kernel.name}"
        if joined.first < stop:
            raise PlanError(f"{name} begins before step {stop}, with which another one ends")
        stop = joined.stop
        expected = list(_expected(plan, plan.steps, 0, joined.first, joined.stop))
        if expected != sorted(map(_key, joined.parts)):
            raise PlanError(f"{name} does not play its steps in their order")
        pairs += _turned(plan, steps, joined, name) + _Bytes(plan, steps, joined, name).pairs
    return pairs


Key = tuple[int, int, tuple[Any, ...]]
"""The step number; the launch number, or -1 for a loop; the keys of what a loop runs."""


def _expected(
    plan: Plan, steps: Sequence[Step], number: int, first: int, stop: int
) -> Iterator[Key]:
    """The keys of all that steps numbered `first` to `stop` run, in order."""
    for step in steps:
        behind = number + len(all_steps([step]))
        if first < behind and number < stop:
            if isinstance(step, Loop):
                yield number, -1, tuple(_expected(plan, step.steps, number + 1, number, behind))
            elif isinstance(step, Launch):
                yield from (
                    (number, n, ()) for n in range(len(plan.kernels[step.kernel].joined_launches))
                )
            elif isinstance(step, Copy):
                yield number, 0, ()
            else:
                raise PlanError(
                    f"plan {plan.name}: {named(number, step)} is part of a joined launch"
                )
        number = behind


def _key(part: LaunchPart | RepeatedParts) -> Key:
    if isinstance(part, LaunchPart):
        return part.step, part.launch, ()
    return part.step, -1, tuple(map(_key, part.parts))


def _turned(plan: Plan, steps: Sequence[Step], joined: JoinedLaunch, name: str) -> int:
    """Check parts that run in another order than the steps: they share no byte that one of them
    writes, and none is a loop. Returns how many pairs of ranges were compared."""
    pairs = 0
    for n, late in enumerate(joined.parts):
        for part in joined.parts[:n]:
            if _key(part) < _key(late):
                continue
            first, second = steps[late.step], steps[part.step]
            if isinstance(first, Loop) or isinstance(second, Loop):
                raise PlanError(f"{name} does not play its steps in their order")
            for writer, other in ((first, second), (second, first)):
                for place in writes_of(writer):
                    for touched in ranges(other):
                        pairs += 1
                        if place.overlaps(touched):
                            raise PlanError(
                                f"{name} plays {named(part.step, second)} before "
                                f"{named(late.step, first)}, which both touch {range_text(place)}"
                            )
    return pairs


class _Bytes:
    """The bytes touched since the last barrier of all blocks."""

    def __init__(self, plan: Plan, steps: Sequence[Step], joined: JoinedLaunch, name: str) -> None:
        self.plan, self.steps, self.name, self.pairs = plan, steps, name, 0
        self.since: list[tuple[int, bool, bool, tuple[object, ...], Range]] = []
        """For each range: the step, whether a single block touched it, whether it was written, and
        its partition among blocks that own rows as (number of blocks, patches) or ()."""
        self.play(joined.parts, ())

    def play(
        self, parts: Sequence[LaunchPart | RepeatedParts], iterations: tuple[int, ...]
    ) -> None:
        """Execute parts in these iterations."""
        for part in parts:
            step = self.steps[part.step]
            if isinstance(part, RepeatedParts):
                assert isinstance(step, Loop), "a repeat is a loop's"
                if part.waits:
                    self.since = []
                for t in range(step.count):
                    self.play(part.parts, (*iterations, t))
            else:
                self.part(part, step, iterations)

    def part(self, part: LaunchPart, step: Step, iterations: tuple[int, ...]) -> None:
        """Check one part against what was touched before, and add it."""
        if part.waits:
            self.since = []
        alone, owned, shares = False, set[int](), tuple[object, ...]()
        if isinstance(step, Launch):
            launch = self.plan.kernels[step.kernel].joined_launches[part.launch]
            shares = math.prod(launch.grid), launch.patches
            alone, owned = shares[0] == 1, {*launch.owned} if part.owns_rows else owned
        written = len(writes_of(step))
        touched = [place.at(iterations) for place in ranges(step)]
        mine = [
            (n >= len(touched) - written, shares if n in owned else (), place)
            for n, place in enumerate(touched)
        ]
        for writes_it, own_shares, place in mine:
            for number, was_alone, wrote, others, other in self.since:
                self.pairs += 1
                one = alone and was_alone
                own = own_shares == others != () and _bytes(place) == _bytes(other)
                if (writes_it or wrote) and not (one or own) and place.overlaps(other):
                    raise PlanError(
                        f"{self.name}: no block waits between {named(number, self.steps[number])} "
                        f"and {named(part.step, step)}, which both touch {range_text(place)}"
                    )
        self.since += [(part.step, alone, w, s, place) for w, s, place in mine]


def _bytes(place: Range) -> tuple[str, int, int]:
    """The segment of a range with its first byte and end."""
    return place.segment, place.start, place.stop
