from __future__ import annotations

import random
from itertools import permutations

import numpy as np
import pytest

from graphc.ir import Graph, Type, Value
from graphc.runtime.plan.plan import Launch, Plan, Range
from graphc.runtime.planner.memory import packing
from graphc.runtime.planner.memory.packing import Flags, pack
from graphc.runtime.planner.planner import make_plan
from tests.runtime.brute_force import happens_before
from tests.runtime.random_graphs import (
    add_updates,
    kernel_node,
    opaque_kernel,
    random_graph,
    training_graph,
)


def intervals(seed: int, count: int) -> tuple[list[int], Flags, int]:
    """Sizes and conflicts of buffers with random lifetimes, and the most bytes live at once."""
    dice = random.Random(seed)
    lives = [sorted(dice.sample(range(count), 2)) for _ in range(count)]
    sizes = [64 * dice.choice([1, 2, 3, 5, 10, 40]) for _ in range(count)]
    conflicts = np.array(
        [[x is not y and x[0] < y[1] and y[0] < x[1] for y in lives] for x in lives]
    )
    live = [sum(s for s, x in zip(sizes, lives, strict=True) if x[0] <= t < x[1])
            for t in range(count)]  # fmt: skip
    return sizes, conflicts, max(live)


def top(starts: list[int], sizes: list[int]) -> int:
    return max(a + s for a, s in zip(starts, sizes, strict=True))


@pytest.mark.parametrize("seed", range(8))
def test_conflicting_buffers_lie_apart_within_a_twentieth_of_the_bound(seed: int) -> None:
    sizes, conflicts, bound = intervals(seed, 40)
    starts = pack(sizes, conflicts, bound)
    assert_apart(starts, sizes, conflicts)
    assert bound <= top(starts, sizes) <= 1.05 * bound


def assert_apart(starts: list[int], sizes: list[int], conflicts: Flags) -> None:
    for a, b in np.argwhere(conflicts):
        assert starts[a] + sizes[a] <= starts[b] or starts[b] + sizes[b] <= starts[a]


@pytest.mark.parametrize(("seed", "count"), [(17, 40), (42, 40), (277, 70)])
def test_search_reaches_the_bound_where_no_greedy_pile_does(seed: int, count: int) -> None:
    sizes, conflicts, bound = intervals(seed, count)
    assert top(pack(sizes, conflicts, bound), sizes) == bound
    assert top(pack(sizes, conflicts, bound, work=0), sizes) > bound


@pytest.mark.parametrize("seed", range(8))
def test_few_buffers_are_packed_as_well_as_any_sequence_packs_them(seed: int) -> None:
    sizes, conflicts, bound = intervals(seed, 6)
    best = min(_first_fit(order, sizes, conflicts) for order in permutations(range(6)))
    assert top(pack(sizes, conflicts, bound), sizes) == best


def test_many_buffers_are_piled_as_few_are(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes, conflicts, bound = intervals(3, 120)
    for least in (0, bound):
        starts = pack(sizes, conflicts, least, work=0)
        monkeypatch.setattr(packing, "MANY", 100)
        assert pack(sizes, conflicts, least, work=0) == starts
        monkeypatch.undo()


def _first_fit(order: tuple[int, ...], sizes: list[int], conflicts: Flags) -> int:
    placed: dict[int, int] = {}
    for b in order:
        near = [c for c in placed if conflicts[b, c]]
        places = sorted([0, *(placed[c] + sizes[c] for c in near)])
        placed[b] = next(
            p for p in places
            if all(p + sizes[b] <= placed[c] or placed[c] + sizes[c] <= p for c in near)
        )  # fmt: skip
    return max(placed[b] + sizes[b] for b in placed)


@pytest.mark.parametrize("streams", [1, 2, 4])
@pytest.mark.parametrize("seed", range(5))
def test_buffers_share_bytes_only_if_every_use_of_one_ends_before_the_other(
    seed: int, streams: int
) -> None:
    plan = make_plan(*add_updates(*random_graph(seed, 30)), device="cpu", streams=streams)
    before = happens_before(plan.steps, streams)
    uses: dict[str, set[int]] = {}
    places: dict[str, Range] = {}
    first: dict[str, int] = {}
    for i, step in enumerate(plan.steps):
        for place in step.arguments if isinstance(step, Launch) else ():
            if place.segment == "work" and place.start < place.stop:
                uses.setdefault(place.value, set()).add(i)
                places[place.value] = place
                first.setdefault(place.value, i)
    shared = 0
    for a in uses:
        for b in uses:
            if a < b and places[a].overlaps(places[b]):
                shared += 1
                ends = [(a, b), (b, a)]
                # In place, the task that ends one value begins the next.
                assert any(uses[x] - {first[y]} <= before[first[y]] for x, y in ends)
    assert shared


def test_lower_bound_is_the_most_bytes_live_at_once() -> None:
    plan = make_plan(*training_graph(5, batch=1600, wide=3), device="cpu")
    assert plan.lower_bound_bytes == _most_live(plan) == plan.peak_bytes


def _most_live(plan: Plan) -> int:
    lives: dict[str, list[int]] = {}
    sizes: dict[str, int] = {}
    for i, step in enumerate(plan.steps):
        assert isinstance(step, Launch)
        for place in step.arguments:
            if place.segment == "work":
                lives.setdefault(place.value, []).append(i)
                sizes[place.value] = -(-(place.stop - place.start) // 64) * 64
    return max(
        sum(sizes[v] for v, uses in lives.items() if min(uses) <= i <= max(uses))
        for i in range(len(plan.steps))
    )


@pytest.mark.parametrize("streams", [2, 4])
def test_more_streams_cost_a_training_step_little_memory(streams: int) -> None:
    plan = make_plan(*training_graph(10, batch=16_000), device="cpu", streams=streams)
    assert plan.peak_bytes <= 1.1 * plan.lower_bound_bytes


def test_a_kernel_overwrites_its_dying_input_where_it_allows_it() -> None:
    x = Value("x", Type((16,)))
    a = kernel_node("a", [x], [16])
    b = kernel_node("b", [a.output], [16])
    c = kernel_node("c", [b.output], [16])
    d = kernel_node("d", [b.output, c.output], [16])
    kernels = {n: opaque_kernel(n, inplace=((0, 0),)) for n in "abcd"}
    plan = make_plan(Graph("g", (x,), (), (a, b, c, d), (d.output,)), kernels, device="cpu")
    plan.verify()
    places = {s.kernel: s.writes[0] for s in plan.steps if isinstance(s, Launch)}
    assert places["a"] == places["b"] != places["c"]


def test_a_larger_output_is_not_written_over_a_smaller_input() -> None:
    x = Value("x", Type((16,)))
    a = kernel_node("a", [x], [16])
    b = kernel_node("b", [a.output], [32])
    c = kernel_node("c", [b.output], [16])
    kernels = {n: opaque_kernel(n, inplace=((0, 0),)) for n in "abc"}
    plan = make_plan(Graph("g", (x,), (), (a, b, c), (c.output,)), kernels, device="cpu")
    plan.verify()
    places = {s.kernel: s.writes[0] for s in plan.steps if isinstance(s, Launch)}
    assert not places["a"].overlaps(places["b"]) and plan.peak_bytes == 192
