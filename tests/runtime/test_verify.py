"""The verifier accepts what the planner makes, and no mutant of it."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

import pytest

from graphc.base.errors import PlanError
from graphc.ir import Graph, Node, Type, Value
from graphc.kernels.program.kernel import Kernel
from graphc.ops.pointwise.elementary import Exp
from graphc.runtime.plan.plan import Binding, Copy, Launch, Plan, Range, Record, Step, Wait
from graphc.runtime.planner.planner import make_plan
from graphc.runtime.proof.verify import verify
from tests.runtime.brute_force import is_ordered
from tests.runtime.random_graphs import (
    opaque_kernel,
    training_graph,
)
from tests.support.verify import (
    FIRST,
    FORK,
    IN,
    JOIN,
    LAST,
    OUT,
    STATE,
    A,
    B,
    S,
    X,
    handmade,
    launch,
    plan_of,
)

STREAMS = (2, 3, 4, 8)


def with_steps(plan: Plan, steps: list[Step]) -> Plan:
    return replace(plan, steps=tuple(steps))


def is_accepted(plan: Plan) -> bool:
    try:
        verify(plan)
    except PlanError:
        return False
    return True


def refusal(plan: Plan) -> str:
    with pytest.raises(PlanError) as error:
        verify(plan)
    return str(error.value)


@pytest.mark.parametrize("streams", STREAMS)
@pytest.mark.parametrize("seed", range(5))
def test_no_event_can_be_dropped(seed: int, streams: int) -> None:
    plan = plan_of(seed, streams)
    assert is_accepted(plan)
    waits = [i for i, s in enumerate(plan.steps) if isinstance(s, Wait)]
    assert waits
    for i in waits:
        assert not is_accepted(with_steps(plan, [s for j, s in enumerate(plan.steps) if j != i]))
    for event in {s.event for s in plan.steps if isinstance(s, Record)}:
        kept = [s for s in plan.steps if getattr(s, "event", None) != event]
        assert not is_accepted(with_steps(plan, kept))


@pytest.mark.parametrize("streams", STREAMS)
@pytest.mark.parametrize("seed", range(5))
def test_verdict_is_that_of_brute_force_reachability(seed: int, streams: int) -> None:
    """Mutants whose reads all find their values, so that ordering alone decides: events moved,
    steps moved to other streams."""
    plan = plan_of(seed, streams, count=16)
    assert is_ordered(plan)
    dice = random.Random(seed)
    verdicts = []
    for _ in range(40):
        steps = list(plan.steps)
        i = dice.randrange(len(steps))
        if isinstance(steps[i], Record | Wait):
            steps.insert(dice.randrange(len(steps)), steps.pop(i))
        else:
            steps[i] = replace(steps[i], stream=dice.randrange(streams))
        mutant = with_steps(plan, steps)
        verdicts.append(is_ordered(mutant))
        assert is_accepted(mutant) == verdicts[-1]
    assert True in verdicts and False in verdicts


@pytest.mark.parametrize("streams", (1, *STREAMS))
def test_values_that_live_at_once_cannot_share_bytes(streams: int) -> None:
    plan = make_plan(*training_graph(5), device="cpu", streams=streams)
    places = {r.value: r for s in plan.steps if isinstance(s, Launch) for r in s.arguments}
    for n in range(4):
        saved, other = places[f"conv{n}_forward"], places["loss.1"]
        moved = Range("work", saved.start, saved.start + 4000, other.value)
        assert "reads" in refusal(move(plan, {other.value: moved}))


def test_swapped_buffers_are_found_where_their_lives_differ() -> None:
    plan = make_plan(*training_graph(5), device="cpu", streams=2)
    places = {r.value: r for s in plan.steps if isinstance(s, Launch) for r in s.arguments}
    a, b = places["conv0_forward"], places["d_relu0"]
    swapped = {
        a.value: Range("work", b.start, b.stop, a.value),
        b.value: Range("work", a.start, a.stop, b.value),
    }
    assert a.start != b.start
    refusal(move(plan, swapped))


def move(plan: Plan, places: dict[str, Range]) -> Plan:
    """The plan with some values elsewhere."""

    def moved(ranges: tuple[Range, ...]) -> tuple[Range, ...]:
        return tuple(places.get(r.value, r) for r in ranges)

    steps = tuple(
        replace(s, arguments=moved(s.arguments), reads=moved(s.reads), writes=moved(s.writes))
        if isinstance(s, Launch)
        else s
        for s in plan.steps
    )
    launches = [s for s in steps if isinstance(s, Launch)]
    ends = [r.stop for s in launches for r in s.arguments if r.segment == "work"]
    return replace(plan, steps=steps, peak_bytes=-(-max(ends) // 64) * 64)


NO_KERNELS: dict[str, Kernel] = {}
OVERWRITES = Kernel("over", "pointwise", "", inplace=((0, 0),))
TWICE = Kernel("first", "pointwise", "", workspace=128)


DRAWS = {"last": Kernel("last", "pointwise", "", draws_tickets=True)}


def refusals() -> Iterator[tuple[str, Plan, str]]:
    """(what is wrong, plan, message)."""
    yield (
        "unordered write and read",
        handmade(*FORK, FIRST, launch("last", [A], [OUT], 1), *JOIN),
        "plan p, step 2 (s0 launch first) writes a=work+0..64 and plan p, step 3 (s1 launch last) "
        "reads a=work+0..64, and nothing orders them: s1 waits for no event that comes after the "
        "former on s0",
    )
    yield (
        "unordered read and write",
        handmade(FIRST, *FORK, LAST, launch("over", [], [Range("work", 0, 64, "d")], 1), *JOIN),
        "plan p, step 3 (s0 launch last) reads a=work+0..64 and plan p, step 4 (s1 launch over) "
        "writes d=work+0..64, and nothing orders them: s1 waits for no event that comes after the "
        "former on s0",
    )
    yield (
        "no fork",
        handmade(FIRST, LAST, launch("side", [IN], [B], 1), *JOIN),
        "plan p: step 2 (s1 launch side) may run before the plan begins: s1 waits for no event "
        "that comes after the beginning on s0",
    )
    yield (
        "no join",
        handmade(*FORK, FIRST, LAST, launch("side", [IN], [B], 1)),
        "plan p: step 4 (s1 launch side) may run after the plan ends: s0 waits for no event that "
        "comes after it on s1",
    )
    yield (
        "uninitialised",
        handmade(LAST, peak_bytes=64),
        "plan p: step 0 (s0 launch last) reads a=work+0..64, which holds nothing",
    )
    yield (
        "overwritten",
        handmade(FIRST, launch("over", [], [Range("work", 0, 64, "d")]), LAST),
        "plan p: step 2 (s0 launch last) reads a=work+0..64, which holds d",
    )
    yield (
        "output not written",
        handmade(FIRST),
        "plan p: the output %y does not hold y=io+64..128 at the end",
    )
    yield (
        "half of a state",
        handmade(FIRST, LAST, launch("half", [], [Range("state", 0, 32, "t")])),
        "plan p: the state %s holds several values at the end",
    )
    yield (
        "wait before record",
        handmade(Wait(1, 0), Record(0, 0), FIRST, LAST),
        "plan p: step 0 (s1 wait e0) waits for an event that is not recorded before it",
    )
    yield (
        "recorded twice",
        handmade(*FORK, Record(0, 0), FIRST, LAST),
        "plan p: step 2 (s0 record e0) records an event that is recorded before",
    )
    yield (
        "no such stream",
        handmade(FIRST, LAST, Record(2, 0)),
        "plan p: step 2 (s2 record e0) is on a stream that is not one of 2",
    )
    yield (
        "outside its segment",
        handmade(FIRST, launch("last", [Range("state", 0, 128, "s")], [OUT])),
        "plan p: step 1 (s0 launch last) uses s=state+0..128, which is outside its segment",
    )
    yield (
        "across two states",
        handmade(
            FIRST,
            launch("last", [Range("state", 0, 128, "s")], [OUT]),
            state=(Binding(S, STATE), Binding(Value("t", S.type), Range("state", 64, 128, "t"))),
        ),
        "plan p: no state lies at s=state+0..128",
    )
    yield (
        "backwards",
        handmade(FIRST, launch("last", [replace(A, stop=-64)], [OUT])),
        "plan p: step 1 (s0 launch last) uses a=work+0..-64, which ends before it begins",
    )
    yield (
        "not aligned",
        handmade(launch("first", [IN], [Range("work", 32, 96, "a")]), peak_bytes=128),
        "plan p: step 0 (s0 launch first) uses a=work+32..96, which is not aligned to 64 bytes",
    )
    yield (
        "input written",
        handmade(launch("first", [], [IN])),
        "plan p: step 0 (s0 launch first) writes x=io+0..64, which is the input %x",
    )
    yield (
        "no kernel",
        handmade(FIRST, LAST, kernels=NO_KERNELS),
        "plan p: step 0 (s0 launch first) has no kernel",
    )
    yield (
        "arguments",
        handmade(replace(FIRST, arguments=(A, IN)), LAST),
        "plan p: step 0 (s0 launch first) has other arguments than what it reads, then what it "
        "writes",
    )
    yield (
        "workspace",
        handmade(FIRST, LAST, kernels={"first": TWICE, "last": opaque_kernel("last")}),
        "plan p: step 0 (s0 launch first) has a workspace a=work+0..64, its kernel needs 128 bytes",
    )
    yield (
        "in place",
        handmade(FIRST, launch("over", [A], [A]), LAST),
        "plan p: step 1 (s0 launch over) reads a=work+0..64 and writes a=work+0..64, which its "
        "kernel does not allow in place",
    )
    yield (
        "partly in place",
        handmade(
            launch("first", [IN], [replace(A, stop=128)]),
            launch("over", [replace(A, stop=128)], [Range("work", 64, 192, "b")]),
            LAST,
            kernels={n: opaque_kernel(n) for n in ("first", "last")} | {"over": OVERWRITES},
        ),
        "plan p: step 1 (s0 launch over) reads a=work+0..128 and writes b=work+64..192, which its "
        "kernel does not allow in place",
    )
    yield (
        "in place over another argument",
        handmade(
            FIRST,
            launch("over", [B, A], [replace(A, value="c")]),
            launch("last", [replace(A, value="c")], [OUT]),
            kernels={n: opaque_kernel(n) for n in ("first", "last")} | {"over": OVERWRITES},
        ),
        "plan p: step 1 (s0 launch over) reads a=work+0..64 and writes c=work+0..64, which its "
        "kernel does not allow in place",
    )
    yield (
        "two outputs",
        handmade(launch("first", [IN], [A, A]), LAST),
        "plan p: step 0 (s0 launch first) writes both a=work+0..64 and a=work+0..64",
    )
    yield (
        "copy of another size",
        handmade(FIRST, Copy(0, A, Range("state", 0, 32, "a"))),
        "plan p: step 1 (s0 copy a) copies a=work+0..64 to a=state+0..32, which has another size",
    )
    yield (
        "copy into a larger place",
        handmade(Copy(0, IN, Range("work", 0, 128, "x")), LAST),
        "plan p: step 0 (s0 copy x) copies x=io+0..64 to x=work+0..128, which has another size",
    )
    yield (
        "copy over a part of itself",
        handmade(
            launch("first", [IN], [replace(A, stop=128)]),
            Copy(0, replace(A, stop=128), Range("work", 64, 192, "a")),
            peak_bytes=192,
        ),
        "plan p: step 1 (s0 copy a) copies a=work+0..128 onto itself",
    )
    yield (
        "copy onto itself",
        handmade(FIRST, Copy(0, A, A)),
        "plan p: step 1 (s0 copy a) copies a=work+0..64 onto itself",
    )
    yield (
        "unordered tickets",
        handmade(
            *FORK, launch("last", [IN], [OUT]), launch("last", [IN], [A], 1), *JOIN, kernels=DRAWS
        ),
        "plan p, step 2 (s0 launch last) writes tickets=counters of last+0..1 and plan p, step 3 "
        "(s1 launch last) writes tickets=counters of last+0..1, and nothing orders them: s1 waits "
        "for no event that comes after the former on s0",
    )
    yield (
        "peak",
        handmade(FIRST, LAST, peak_bytes=128),
        "plan p: its peak is given as 128 bytes, its steps use 64",
    )
    yield (
        "binding of another size",
        handmade(FIRST, LAST, state=(Binding(S, Range("state", 0, 32, "s")),)),
        "plan p: %s : f32[16] is bound to s=state+0..32",
    )
    yield (
        "bindings that overlap",
        handmade(FIRST, LAST, inputs=(Binding(X, IN), Binding(S, Range("io", 0, 64, "s")))),
        "plan p: %s and %x share s=io+0..64",
    )


@pytest.mark.parametrize(
    ("plan", "message"), [c[1:] for c in refusals()], ids=[c[0] for c in refusals()]
)
def test_refusal_names_the_steps_and_what_is_missing(plan: Plan, message: str) -> None:
    assert refusal(plan) == message


def test_launches_that_draw_from_the_same_counters_may_follow_each_other() -> None:
    steps = launch("last", [IN], [A]), launch("last", [A], [OUT])
    assert is_accepted(handmade(*steps, kernels=DRAWS))


def test_the_planner_puts_them_one_after_another() -> None:
    """Two that nothing else orders, on streams of their own."""
    x, y, z = (Value(n, Type((16,))) for n in "xyz")
    nodes = tuple(Node(Exp(), (x,), (v,)) for v in (y, z))
    graph = Graph("twice", (x,), (), nodes, (y, z))
    for kernel, waits in ((opaque_kernel("last"), 1), (DRAWS["last"], 2)):
        plan = make_plan(graph, {"y": kernel, "z": kernel}, device="cuda", streams=2)
        assert is_accepted(plan)
        streams = {s.stream for s in plan.steps if isinstance(s, Launch)}
        assert len(streams) == 3 - waits


def test_in_place_is_accepted_where_the_kernel_allows_it() -> None:
    step = launch("over", [A], [Range("work", 0, 64, "d")])
    plan = handmade(FIRST, step, launch("last", [Range("work", 0, 64, "d")], [OUT]))
    allowed = {**plan.kernels, "over": opaque_kernel("over", inplace=((0, 0),))}
    assert is_accepted(replace(plan, kernels=allowed))
    assert not is_accepted(plan)
