from __future__ import annotations

import random
import time

import networkx as nx
import pytest

from graphc.runtime.plan.plan import Launch, Plan, Record, Wait
from graphc.runtime.planner.planner import make_plan
from graphc.runtime.planner.streams import maximum_matching, transitive_reduction
from tests.runtime.brute_force import conflict, happens_before
from tests.runtime.random_graphs import (
    add_updates,
    independent,
    random_graph,
    training_graph,
)


def streams_of(plan: Plan) -> dict[str, int]:
    return {s.kernel: s.stream for s in plan.steps if isinstance(s, Launch)}


@pytest.mark.parametrize("streams", [2, 3, 4, 8])
@pytest.mark.parametrize("wgrad_flops", [10**5, 10**7, 10**9])
def test_dgrad_and_wgrad_of_a_layer_run_on_different_streams(
    streams: int, wgrad_flops: int
) -> None:
    """Also where the other stream is so busy that the dgrad's would be free sooner."""
    graph, kernels = training_graph(6, wgrad_flops=wgrad_flops)
    plan = make_plan(graph, kernels, device="cpu", streams=streams)
    of = streams_of(plan)
    for n in range(1, 6):
        assert of[f"conv{n}_dgrad"] != of[f"conv{n}_wgrad"]


def test_halves_of_a_layer_part_wherever_they_are_independent() -> None:
    pairs = 0
    for seed in range(8):
        plan = make_plan(*random_graph(seed, 32), device="cpu", streams=8)
        before = happens_before(plan.steps, plan.streams)
        halves = [(i, *s.kernel.rpartition("_")[0].rpartition("_")[::2], s.stream)
                  for i, s in enumerate(plan.steps) if isinstance(s, Launch)]  # fmt: skip
        for i, layer, half, stream in halves:
            for j, other_layer, other_half, other_stream in halves:
                same = layer == other_layer and (half, other_half) == ("dgrad", "wgrad")
                if same and i not in before[j] and j not in before[i]:
                    assert stream != other_stream
                    pairs += 1
    assert pairs > 10


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_the_dgrads_lie_on_stream_0(device: str) -> None:
    of = streams_of(make_plan(*training_graph(6), device=device, streams=4))
    dgrads = [of[f"conv{n}_dgrad"] for n in range(1, 6)]
    assert dgrads.count(0) > len(dgrads) / 2


def test_kernels_that_fill_the_device_stay_on_one_stream() -> None:
    """Nothing would be gained beside each other; an event would be lost."""
    plan = make_plan(*independent(chunks=2), device="cpu", streams=2, workers=2)
    assert set(streams_of(plan).values()) == {0}
    assert not any(isinstance(step, Record | Wait) for step in plan.steps)


def test_kernels_that_leave_room_run_beside_each_other() -> None:
    alone = make_plan(*independent(chunks=1), device="cpu", streams=1, workers=2)
    plan = make_plan(*independent(chunks=1), device="cpu", streams=2, workers=2)
    of = streams_of(plan)
    assert len({of[f"a{n}"] for n in range(3)} | {of[f"b{n}"] for n in range(3)}) == 2
    assert of["a0"] != of["b0"] and len({of[f"a{n}"] for n in range(3)}) == 1
    assert plan.estimate.microseconds < 0.6 * alone.estimate.microseconds


def test_a_kernel_that_is_too_short_for_an_event_stays() -> None:
    plan = make_plan(*independent(chunks=1, flops=10), device="cpu", streams=2, workers=2)
    assert set(streams_of(plan).values()) == {0}


def test_measured_times_decide_what_is_worth_an_event() -> None:
    measured = {f"{name}{n}": 100.0 for name in "ab" for n in range(3)}
    graph = independent(chunks=1, flops=10)
    plan = make_plan(*graph, device="cpu", streams=2, workers=2, measured=measured)
    assert len(set(streams_of(plan).values())) == 2
    assert plan.estimate.microseconds == pytest.approx(300, rel=0.02)


@pytest.mark.slow
@pytest.mark.parametrize("streams", [1, 4])
def test_a_plan_of_ten_thousand_kernels_takes_less_than_five_seconds(streams: int) -> None:
    graph = random_graph(1, 10_000)
    begin = time.process_time()
    plan = make_plan(*graph, device="cpu", streams=streams)
    assert time.process_time() - begin < 5
    assert plan.peak_bytes <= 1.01 * plan.lower_bound_bytes


def test_wgrad_waits_for_activation_backward() -> None:
    plan = make_plan(*training_graph(3), device="cpu", streams=2)
    before = happens_before(plan.steps, plan.streams)
    index = {s.kernel: i for i, s in enumerate(plan.steps) if isinstance(s, Launch)}
    for n in range(3):
        assert index[f"d_relu{n}"] in before[index[f"conv{n}_wgrad"]]


def test_dgrad_is_issued_before_wgrad() -> None:
    plan = make_plan(*training_graph(5), device="cpu", streams=2)
    order = [s.kernel for s in plan.steps if isinstance(s, Launch)]
    for n in range(1, 5):
        assert order.index(f"conv{n}_dgrad") < order.index(f"conv{n}_wgrad")


@pytest.mark.parametrize("streams", [2, 3, 4, 8])
@pytest.mark.parametrize("seed", range(6))
def test_every_event_carries_an_ordering_that_is_needed(seed: int, streams: int) -> None:
    """Without any one wait two conflicting steps, or a step and the fork or join, lose order."""
    plan = make_plan(*add_updates(*random_graph(seed, 16)), device="cpu", streams=streams)
    nothing = Launch(0, "nothing", (), (), ())
    steps = [nothing, *plan.steps, nothing]
    last = len(steps) - 1
    whole = happens_before(steps, streams)
    for n, step in enumerate(steps):
        if not isinstance(step, Wait):
            continue
        kept = [nothing if i == n else s for i, s in enumerate(steps)]
        less = happens_before(
            [Launch(step.stream, "nothing", (), (), ()) if s is nothing and 0 < i < last else s
             for i, s in enumerate(kept)], streams)  # fmt: skip
        lost = [(i, j) for j in range(len(steps)) for i in whole[j] - less[j]]
        assert any(
            i == 0 or j == last or conflict(steps[i], steps[j])
            for i, j in lost
            if not isinstance(steps[i], Record | Wait) and not isinstance(steps[j], Record | Wait)
        )


def test_each_event_is_recorded_once_and_waited_for() -> None:
    plan = make_plan(*random_graph(2, 40), device="cpu", streams=4)
    records = [s.event for s in plan.steps if isinstance(s, Record)]
    assert records == list(range(len(records)))
    assert {s.event for s in plan.steps if isinstance(s, Wait)} == set(records)


@pytest.mark.parametrize("seed", range(10))
def test_transitive_reduction_is_that_of_networkx(seed: int) -> None:
    dice = random.Random(seed)
    count = 30
    edges = [(i, j) for j in range(count) for i in range(j) if dice.random() < 0.15]
    predecessors = [sum(1 << i for i, k in edges if k == j) for j in range(count)]
    reduced = transitive_reduction(predecessors, range(count))
    graph = nx.DiGraph(edges)
    expected = set(nx.transitive_reduction(graph).edges)
    assert {(i, j) for j in range(count) for i in range(count) if reduced[j] >> i & 1} == expected


@pytest.mark.parametrize("seed", range(60))
def test_a_matching_is_one_and_has_the_most_pairs(seed):
    generator = random.Random(seed)
    count = generator.randint(1, 40)
    edges = [
        (i, j)
        for i in range(count)
        for j in range(count)
        if generator.random() < generator.choice((0.02, 0.1, 0.4))
    ]
    generator.shuffle(edges)
    found = maximum_matching(edges)
    assert set(found.items()) <= set(edges)
    assert len(set(found.values())) == len(found)
    graph = nx.Graph((i, ~j) for i, j in edges)
    left = [i for i in graph if i >= 0]
    expected = nx.bipartite.hopcroft_karp_matching(graph, left) if left else {}
    assert 2 * len(found) == len(expected)


def test_matching_thousands_of_tasks_takes_little_time():
    edges = [(i, j) for i in range(6000) for j in (i + 1, i + 2, i + 7)]
    start = time.process_time()
    assert len(maximum_matching(edges)) == 6000
    assert time.process_time() - start < 2
