"""The verifier proves the planner's loops, and no mutant that computes something else or in another
order."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from graphc.base.errors import PlanError
from graphc.runtime.plan.plan import (
    Copy,
    Launch,
    Loop,
    LoopCarry,
    Move,
    Plan,
    Range,
    Record,
    Stack,
    Step,
    Wait,
)  # fmt: skip
from graphc.runtime.planner.planner import make_plan
from graphc.runtime.proof.verify import verify
from tests.runtime.brute_force import is_ordered, plan_meaning
from tests.runtime.random_loops import layered_loops, random_loops
from tests.support.loop_proof import (
    CARRY,
    CELL,
    DOWN,
    FIRST,
    IN,
    LAST,
    OUT,
    PAIR,
    SHOW,
    SLOTS,
    UP,
    launch,
    looped,
    moved,
)


def is_accepted(plan: Plan) -> bool:
    try:
        verify(plan)
    except PlanError:
        return False
    return True


def paths(steps: tuple[Step, ...], above: tuple[int, ...] = ()) -> list[tuple[int, ...]]:
    """Where each step inside loops stands: indices from the outermost list of steps on."""
    found = []
    for index, step in enumerate(steps):
        if above:
            found.append((*above, index))
        if isinstance(step, Loop):
            found += paths(step.steps, (*above, index))
    return found


def step_at(steps: tuple[Step, ...], path: tuple[int, ...]) -> Step:
    step = steps[path[0]]
    return step_at(step.steps, path[1:]) if isinstance(step, Loop) and path[1:] else step


def changed(
    steps: tuple[Step, ...], path: tuple[int, ...], change: Callable[[Step], list[Step]]
) -> tuple[Step, ...]:
    """The steps with others in the place of one."""
    head, step = path[0], steps[path[0]]
    if path[1:]:
        assert isinstance(step, Loop)
        new: list[Step] = [replace(step, steps=changed(step.steps, path[1:], change))]
    else:
        new = change(step)
    return (*steps[:head], *new, *steps[head + 1 :])


def with_ranges(step: Step, number: int, change: Callable[[Range], Range]) -> Step:
    """The step with its range of that number changed."""
    if isinstance(step, Copy):
        if number % 2:
            return replace(step, source=change(step.source))
        return replace(step, target=change(step.target))
    if isinstance(step, Launch) and step.arguments:
        number %= len(step.arguments)
        places = tuple(change(r) if n == number else r for n, r in enumerate(step.arguments))
        reads = len(step.reads)
        return replace(step, arguments=places, reads=places[:reads], writes=places[reads:])
    return step


@pytest.mark.parametrize("streams", [2, 3, 4])
@pytest.mark.parametrize("seed", range(12))
def test_no_event_in_a_loop_can_be_dropped(seed: int, streams: int) -> None:
    graph = random_loops(seed, 10) if seed % 3 else layered_loops(seed)
    plan = make_plan(*graph, device="cpu", streams=streams)
    assert is_accepted(plan)
    for path in paths(plan.steps):
        step = step_at(plan.steps, path)
        if isinstance(step, Wait):
            assert not is_accepted(replace(plan, steps=changed(plan.steps, path, lambda _: [])))
        if isinstance(step, Record):
            *above, _ = path
            owner = step_at(plan.steps, tuple(above))
            assert isinstance(owner, Loop)
            kept = tuple(s for s in owner.steps if getattr(s, "event", None) != step.event)
            less = changed(plan.steps, tuple(above), lambda s, k=kept: [replace(s, steps=k)])
            assert not is_accepted(replace(plan, steps=less))


def mutations(dice: random.Random, size: int, count: int) -> list[Callable[[Range], Range]]:
    """Ways to move a range wrongly."""

    def move(r: Range, stride: int, period: int) -> Range:
        return replace(r, moves=(*r.moves[:-1], Move(stride, period)))

    def last(r: Range) -> Move:
        return r.moves[-1] if r.moves else Move(0, 1)

    return [
        lambda r: move(r, -last(r).stride, last(r).period),
        lambda r: move(r, 2 * last(r).stride, last(r).period),
        lambda r: move(r, last(r).stride, 2),
        lambda r: move(r, last(r).stride or size, count),
        lambda r: replace(r, moves=r.moves[:-1]),
        lambda r: replace(r, start=r.start + size, stop=r.stop + size),
        lambda r: replace(r, start=r.start - size, stop=r.stop - size),
        lambda r: replace(r, value="other"),
    ]


@pytest.mark.parametrize("streams", [1, 3])
@pytest.mark.parametrize("seed", range(10))
def test_mutant_that_is_accepted_computes_the_same_in_every_order(seed: int, streams: int) -> None:
    graph = random_loops(seed, 6, (1, 2, 3, 4), depth=1) if seed % 3 else layered_loops(seed)
    check_mutants(make_plan(*graph, device="cpu", streams=streams), seed, 12)


@pytest.mark.slow
@pytest.mark.parametrize("streams", [1, 3])
@pytest.mark.parametrize("seed", range(10, 60))
def test_many_mutants_of_loops_within_loops(seed: int, streams: int) -> None:
    graph = random_loops(seed, 8, (1, 2, 3, 4, 6)) if seed % 3 else layered_loops(seed)
    check_mutants(make_plan(*graph, device="cpu", streams=streams), seed, 25)


def check_mutants(plan: Plan, seed: int, count: int) -> None:
    """Ranges that move otherwise, steps elsewhere in the body, on other streams or in other
    stages: what is accepted computes the same, when it is written out and played in any order."""
    streams = plan.streams
    inside = [p for p in paths(plan.steps) if not isinstance(step_at(plan.steps, p), Loop)]
    if not inside:
        return
    dice = random.Random(seed)
    wanted = plan_meaning(plan, dice)
    for _ in range(count):
        path = dice.choice(inside)
        step, owner = step_at(plan.steps, path), step_at(plan.steps, path[:-1])
        assert isinstance(owner, Loop)
        if isinstance(step, Launch | Copy) and dice.random() < 0.7:
            size = dice.choice([64, 128, 20])
            change = dice.choice(mutations(dice, size, owner.count))
            mutated = with_ranges(step, dice.randrange(8), change)
            if mutated == step:
                continue
            steps = changed(plan.steps, path, lambda _, m=mutated: [m])
        elif isinstance(step, Launch | Copy) and owner.stages > 1 and dice.random() < 0.5:
            other = dice.randrange(owner.stages)
            steps = changed(plan.steps, path, lambda s, n=other: [replace(s, stage=n)])
        elif dice.random() < 0.5:
            steps = changed(
                plan.steps, path, lambda s: [replace(s, stream=dice.randrange(streams))]
            )
        else:
            body = list(owner.steps)
            body.insert(dice.randrange(len(body)), body.pop(path[-1]))
            moved = replace(owner, steps=tuple(body))
            steps = changed(plan.steps, path[:-1], lambda _, m=moved: [m])
        mutant = replace(plan, steps=steps)
        if is_accepted(mutant):
            assert is_ordered(mutant)
            for _ in range(3):
                assert plan_meaning(mutant, dice) == wanted


def test_loop_by_hand_is_proved() -> None:
    certificate = verify(looped(CELL, SHOW))
    assert (certificate.loops, certificate.launches) == (1, 2)
    assert "1 loops; " in str(certificate)


def test_range_that_ends_before_it_begins_is_refused_in_loops_too() -> None:
    junk = launch("wide", [], [Range("work", 64, 0, "junk")])
    with pytest.raises(PlanError) as error:
        verify(looped(CELL, SHOW, junk))
    assert str(error.value) == (
        "plan p: step 4 (s0 launch wide) uses junk=work+64..0, which ends before it begins"
    )


HISTORY, END = Range("work", 0, 256, "hs"), Range("work", 256, 320, "last")
GROWN = replace(CARRY[0], moves=(Move(64, 4),)), replace(CARRY[1], moves=(Move(64, 4),))
GROW = launch("cell", [GROWN[0], DOWN], [GROWN[1]])
SEE = launch("show", [GROWN[1]], [UP])


def stacked(*steps: Step) -> Plan:
    """As `looped`, with each old h kept: the carry lies in its stack, which is one entry longer."""
    made = looped(
        *steps,
        carries=(LoopCarry("old", "new", FIRST, END),),
        stacks=(Stack("out", OUT), Stack("old", HISTORY)),
        writes=(replace(HISTORY, stop=320, value="slots"), HISTORY, END, OUT),
    )
    return replace(made, peak_bytes=320, lower_bound_bytes=320)


def test_carry_in_its_stack_is_proved() -> None:
    assert verify(stacked(GROW, SEE)).loops == 1


def spoiled(start: int, stride: int = 0) -> Plan:
    """That loop with a kernel behind that writes over an entry of the stack in each iteration."""
    over = Range("work", start, start + 64, "junk", (Move(stride, 4),) if stride else ())
    return stacked(GROW, SEE, launch("wide", [], [over]))


REFUSED = {
    "carries spoiled once they are read": (
        spoiled(0, 64), "hs=work+0..256 does not hold each %old",
    ),
    "first carry spoiled": (spoiled(0), "hs=work+0..256 does not hold each %old"),
    "second carry spoiled": (
        spoiled(64),
        "its step 0 (s0 launch cell) reads old=work+0..64, which does not hold that value in every "
        "iteration",
    ),
    "last carry spoiled": (spoiled(256), "last=work+256..320 does not hold the last %new"),
    "carries spoiled backwards": (spoiled(256, -64), "hs=work+0..256 does not hold each %old"),
    "unordered": (
        looped(CELL, replace(SHOW, stream=1), streams=2),
        "its step 0 (s0 launch cell) writes new=work+64..128 and its step 1 (s1 launch show) reads "
        "new=work+64..128, and nothing orders them",
    ),
    "period that is none": (
        looped(launch("cell", [moved(PAIR[0], Move(64, 3)), DOWN], [PAIR[1]]), SHOW),
        "its step 0 (s0 launch cell) uses old=work+0..64, whose period is not 1, 2 or 4",
    ),
    "carry that does not take turns": (
        looped(launch("cell", [CARRY[0], DOWN], [CARRY[1]]), launch("show", [CARRY[1]], [UP])),
        "its step 0 (s0 launch cell) reads old=work+0..64, which does not hold that value in every "
        "iteration",
    ),
    "in place without leave": (
        looped(launch("cell", [CARRY[0], DOWN], [replace(CARRY[0], value="new")]), SHOW),
        "its step 0 (s0 launch cell) reads old=work+0..64 and writes new=work+0..64, which its "
        "kernel does not allow in place",
    ),
    "elements backwards": (
        looped(launch("cell", [PAIR[0], Range("io", 192, 256, "e", (Move(-64, 4),))],
                      [PAIR[1]]), SHOW),
        "its step 0 (s0 launch cell) reads e=io+192..256, which does not hold that value in every "
        "iteration",
    ),
    "stack backwards": (
        looped(CELL, launch("show", [PAIR[1]], [Range("io", 512, 576, "out", (Move(-64, 4),))])),
        "y=io+320..576 does not hold each %out",
    ),
    "outside": (
        looped(CELL, launch("show", [PAIR[1]], [moved(UP, Move(128, 4))])),
        "its step 1 (s0 launch show) writes out=io+320..384, which the loop does not",
    ),
    "last carry elsewhere": (
        looped(CELL, SHOW,
               carries=(LoopCarry("old", "new", FIRST, replace(LAST, start=64, stop=128)),),
               writes=(SLOTS, replace(LAST, start=64, stop=128), OUT)),
        "last=work+64..128 does not hold the last %new",
    ),
    "carry that is not read": (
        looped(CELL, SHOW, reads=(IN,)),
        "the carry %old is not among its reads and writes",
    ),
    "stack that is not written": (
        looped(CELL, SHOW, stacks=(Stack("out", replace(OUT, start=384)),)),
        "y=io+384..576 is not among its writes",
    ),
    "two outputs on one place": (
        looped(CELL, launch("show", [PAIR[1]], [UP, UP])),
        "its step 1 (s0 launch show) uses both out=io+320..384 and out=io+320..384",
    ),
    "no iterations": (looped(CELL, SHOW, count=0), "has 0 iterations and 1 stages"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_refusal_names_the_step_of_the_loop(case: str) -> None:
    plan, message = REFUSED[case]
    with pytest.raises(PlanError) as error:
        verify(plan)
    assert str(error.value) == f"plan p: step 1 (s0 loop l): {message}"


def test_copy_in_a_loop_has_one_size() -> None:
    with pytest.raises(PlanError) as error:
        verify(looped(CELL, Copy(0, PAIR[1], replace(UP, stop=448))))
    assert str(error.value) == (
        "plan p: step 3 (s0 copy new) copies new=work+64..128 to out=io+320..448, which has "
        "another size"
    )


@pytest.mark.parametrize("seed", [0, 3])
def test_no_step_of_a_wavefront_may_be_in_another_stage(seed: int) -> None:
    plan = make_plan(*layered_loops(seed), device="cpu", streams=3)
    tried = 0
    for path in paths(plan.steps):
        step, owner = step_at(plan.steps, path), step_at(plan.steps, path[:-1])
        assert isinstance(owner, Loop)
        for other in range(owner.stages):
            if isinstance(step, Launch | Copy) and other != step.stage:
                moved = changed(plan.steps, path, lambda s, n=other: [replace(s, stage=n)])
                assert not is_accepted(replace(plan, steps=moved)), (path, other)
                tried += 1
    assert tried >= 5


def test_ranges_of_a_loop_in_a_loop_may_meet_in_no_iteration_of_the_outer_one() -> None:
    whole = Range("work", 0, 64 * 6, "w")
    a = Range("work", 0, 64, "a", (Move(64, 4),))
    b = Range("work", 64 * 5, 64 * 6, "b", (Move(-64, 4),))
    inner = Loop(0, "inner", 2, (launch("cell", [], [a]), launch("show", [], [b])), (), (whole,))
    for shift, meets in ((0, False), (32, True), (64 * 6, False)):
        far = replace(b, start=b.start + shift, stop=b.stop + shift)
        own = tuple(
            replace(r, start=r.start + d, stop=r.stop + d)
            for r, d in ((a, 0), (far, 0))
        )  # fmt: skip
        steps = (launch("cell", [], [a]), launch("show", [], [far]))
        nested = replace(inner, steps=steps, writes=own)
        big = Range("work", 0, 64 * 16, "w")
        loop = Loop(0, "outer", 4, (nested,), (), (big,))
        plan = replace(looped(), steps=(loop,), outputs=(), peak_bytes=64 * 16)
        if not meets:
            verify(plan)
            continue
        with pytest.raises(PlanError) as error:
            verify(plan)
        assert str(error.value) == (
            "plan p: step 1 (s0 loop inner): its step 0 (s0 launch cell) uses a=work+0..64 and its "
            "step 1 (s0 launch show) uses b=work+352..416, which meet in some iterations of the "
            "loops around"
        )
