"""Two buffers that live at once can share no byte: the verifier finds each that do."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

import pytest

from graphc.base.errors import PlanError
from graphc.runtime.plan.plan import Copy, Launch, Plan, Range, Step
from graphc.runtime.planner.planner import make_plan
from graphc.runtime.proof.verify import verify
from tests.runtime.brute_force import happens_before, reads_of, writes_of
from tests.runtime.random_graphs import add_updates, random_graph

MUTANTS = 10
"""Of one plan."""
SEEDS = [*range(3), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(3, 30))]


@pytest.mark.parametrize("streams", (1, 2, 3, 4, 8))
@pytest.mark.parametrize("seed", SEEDS)
def test_buffers_that_live_at_once_cannot_share_a_byte(seed: int, streams: int) -> None:
    plan = make_plan(*add_updates(*random_graph(seed)), device="cpu", streams=streams)
    verify(plan)
    pairs = list(live_at_once(plan))
    dice = random.Random(seed)
    for a, b in dice.sample(pairs, MUTANTS):
        start = a.start + dice.randrange(0, a.stop - a.start, 64)
        moved = replace(b, start=start, stop=start + b.stop - b.start)
        with pytest.raises(PlanError):
            verify(with_value_at(plan, moved))


def live_at_once(plan: Plan) -> Iterator[tuple[Range, Range]]:
    """Pairs of work buffers neither of which has been used for the last time when the other is
    first written, by a search of the graph of steps."""
    before = happens_before(plan.steps, plan.streams)
    places: dict[str, Range] = {}
    uses: dict[str, list[int]] = {}
    for number, step in enumerate(plan.steps):
        for place in used(step):
            if place.segment == "work" and place.start < place.stop:
                places[place.value] = place
                uses.setdefault(place.value, []).append(number)

    def ended(old: str, new: str) -> bool:
        """In place, the step that ends one begins the other."""
        first = uses[new][0]
        return set(uses[old]) <= before[first] | {first}

    for a, one in places.items():
        for b, other in places.items():
            if a != b and not ended(a, b) and not ended(b, a):
                yield one, other


def used(step: Step) -> tuple[Range, ...]:
    return (*reads_of(step), *writes_of(step)) if isinstance(step, Launch | Copy) else ()


def with_value_at(plan: Plan, place: Range) -> Plan:
    """The plan with one value elsewhere."""

    def moved(r: Range) -> Range:
        return place if r.segment == "work" and r.value == place.value else r

    def changed(step: Step) -> Step:
        if isinstance(step, Copy):
            return replace(step, source=moved(step.source), target=moved(step.target))
        if not isinstance(step, Launch):
            return step
        reads, writes = tuple(map(moved, step.reads)), tuple(map(moved, step.writes))
        return replace(step, arguments=reads + writes, reads=reads, writes=writes)

    steps = tuple(map(changed, plan.steps))
    ends = [r.stop for step in steps for r in used(step) if r.segment == "work"]
    return replace(plan, steps=steps, peak_bytes=-(-max(ends) // 64) * 64)
