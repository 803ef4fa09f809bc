"""Kernels that run again so that a plan takes less memory: the same meaning, within the limit, at
about the least cost, and what cannot run again left alone."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace
from itertools import chain, combinations

import numpy as np
import pytest

from graphc.base.errors import RunError
from graphc.ir import Graph, Type, Value, verify
from graphc.ir.state import StateBuffer
from graphc.kernels.program.kernel import Kernel
from graphc.runtime.cpu.executable import CpuExecutable
from graphc.runtime.memory_budget import MemoryBudget, leanest
from graphc.runtime.memory_limit import plan_within
from graphc.runtime.plan.plan import Plan
from graphc.runtime.planner.concurrency import DeviceModel
from graphc.runtime.planner.graph_tasks import make_tasks
from graphc.runtime.planner.planner import make_plan
from graphc.runtime.planner.rematerialize.choose import repeat_within
from graphc.runtime.planner.rematerialize.sequence import Rematerializer, serial
from tests.runtime.random_graphs import (
    add_updates,
    kernel_node,
    opaque_kernel,
    random_graph,
    training_graph,
)
from tests.runtime.random_loops import random_loops
from tests.support.played_plans import CHUNKS, evaluated, functions_of

SEEDS = 60
MANY = 2000


def plan_of(graph: Graph, kernels: Mapping[str, Kernel]) -> Plan:
    plan = make_plan(graph, kernels, device="cpu")
    plan.verify()
    return plan


def leaner(graph: Graph, kernels: Mapping[str, Kernel]) -> MemoryBudget:
    return MemoryBudget(graph, kernels, DeviceModel("cpu"), plan_of)


def kernels_again(graph: Graph, kernels: Mapping[str, Kernel]) -> dict[str, Kernel]:
    """The kernels of a graph in which some run again, by the first outputs of all nodes."""
    return {
        n.outputs[0].name: kernels[n.outputs[0].name.partition(".again")[0]]
        for n in graph.nodes
        if n.op.name not in ("reshape", "scan")
    }


def arrays_for(graph: Graph, seed: int) -> tuple[list[np.ndarray], dict[str, np.ndarray]]:
    dice = np.random.RandomState(seed)

    def draw(value: Value) -> np.ndarray:
        return dice.randint(0, 2**32, value.type.size, np.uint32)

    return [draw(v) for v in graph.inputs], {v.name: draw(v) for v in graph.state}


def assert_same_at_a_random_limit(seed: int) -> None:
    dice = random.Random(seed)
    if seed % 3 == 0:
        graph, kernels = training_graph(dice.randint(2, 9), dice.choice((64, 999)), 1 + seed % 2)
    else:
        graph, kernels = random_graph(seed)
        if seed % 3 == 1:
            graph, kernels = add_updates(graph, kernels)
    begin = plan_of(graph, kernels)
    limit = int(begin.peak_bytes * dice.uniform(0.3, 1.1))
    changed, plan, _ = leaner(graph, kernels).within(limit)
    verify(changed)
    try:
        found = plan_within(limit, begin, lambda *_: begin, True, lambda _: plan)
        assert found.peak_bytes <= limit
    except RunError as refusal:
        least = min(plan.peak_bytes, begin.peak_bytes)
        assert limit < least and f"takes {least} bytes of work memory" in str(refusal)
    inputs, state = arrays_for(graph, seed)
    outputs, new = evaluated(graph, kernels, inputs, dict(state))
    again, state = evaluated(changed, kernels_again(changed, kernels), inputs, dict(state))
    assert list(new) == list(state)
    for a, b in zip((*outputs, *new.values()), (*again, *state.values()), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_random_graphs_mean_the_same_at_random_limits(seed: int) -> None:
    assert_same_at_a_random_limit(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(SEEDS, SEEDS + MANY))
def test_many_random_graphs_mean_the_same_at_random_limits(seed: int) -> None:
    assert_same_at_a_random_limit(seed)


@pytest.mark.parametrize("seed", range(8))
def test_graphs_with_loops_mean_the_same(seed: int) -> None:
    graph, kernels = random_loops(seed)
    peak = plan_of(graph, kernels).peak_bytes
    changed, plan, _ = leaner(graph, kernels).within(peak // 2)
    verify(changed)
    assert plan.peak_bytes <= peak
    inputs, state = arrays_for(graph, seed)
    expected = evaluated(graph, kernels, inputs, dict(state))
    known = {**kernels, **kernels_again(changed, kernels)}
    found = evaluated(changed, known, inputs, dict(state))
    for a, b in zip(expected[0], found[0], strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(("share", "most"), [(0.7, 0.1), (0.5, 0.2), (0.35, 0.34)])
def test_deep_network_fits_a_share_of_its_memory(share: float, most: float) -> None:
    graph, kernels = training_graph(32, 100_000)
    plan = plan_of(graph, kernels)
    limit = int(share * plan.peak_bytes)
    lean = leaner(graph, kernels).within(limit).plan
    assert lean.peak_bytes <= limit
    assert lean.estimate.serial <= (1 + most) * plan.estimate.serial


def test_lean_stays_within_a_quarter_of_the_time() -> None:
    graph, kernels = training_graph(32, 100_000)
    plan = plan_of(graph, kernels)
    lean = leanest([leaner(graph, kernels)], None).plan
    assert lean.peak_bytes < 0.5 * plan.peak_bytes
    assert lean.estimate.serial <= 1.25 * plan.estimate.serial


@pytest.mark.parametrize(("layers", "wide"), [(3, 1), (4, 3), (5, 2)])
def test_cost_is_near_the_least_of_all_choices(layers: int, wide: int) -> None:
    graph, kernels = training_graph(layers, 10_000, wide)
    tasks = make_tasks(graph, kernels)
    base = serial(tasks, range(len(tasks.tasks)))
    repeatable = {i: frozenset[int]() for i in range(len(tasks.tasks) - 1)}
    times = [10.0 + i % 3 for i in range(len(tasks.tasks))]
    repeater = Rematerializer(base, repeatable)
    waiting = [v for v in repeater.values if repeater.has_idle_time(v) or v < layers]
    choices = chain.from_iterable(combinations(waiting, n) for n in range(len(waiting) + 1))
    every = [repeater.repeat(frozenset(choice)) for choice in choices]
    for limit in sorted({s.peak for s in every}):
        least = min(s.cost(times) for s in every if s.peak <= limit)
        found = repeat_within(base, repeatable, times, limit)
        assert found.peak <= limit
        assert found.cost(times) <= 1.34 * least


def test_results_are_kept_where_state_has_changed_before_they_are_read_again() -> None:
    x = Value("x", Type((1000,)))
    weight = Value("weight", Type((1000,)))
    forward = kernel_node("forward", [x, weight], [1000])
    other = kernel_node("other", [forward.output], [10])
    nodes = [forward, other, kernel_node("change", [other.output], [1000])]
    for n in range(8):
        nodes.append(kernel_node(f"middle{n}", [nodes[-1].output], [1000]))
    nodes.append(kernel_node("last", [nodes[-1].output, forward.output], [10]))
    kernels = {n.output.name: opaque_kernel(n.output.name) for n in nodes}
    update = (weight, nodes[2].output)
    graph = Graph("g", (x,), (weight,), tuple(nodes), (nodes[-1].output,), (update,))
    tasks = make_tasks(graph, kernels)
    base, value = serial(tasks, range(len(tasks.tasks))), tasks.tasks[0].writes[0].buffer
    (state,) = (a.buffer for _, a in tasks.state)
    assert any(s.rerun for s in Rematerializer(base, {0: frozenset()}).repeat({value}).steps)
    assert Rematerializer(base, {0: frozenset({state})}).repeat({value}) == base
    assert leaner(graph, kernels).within(1)[0] == graph


def test_kernels_that_run_again_give_the_same_bits_on_the_cpu() -> None:
    graph, opaque = training_graph(10, 3000)
    kernels = {k: replace(v, phases=(CHUNKS, CHUNKS)) for k, v in opaque.items()}
    inputs, arrays = arrays_for(graph, 1)
    limit = plan_of(graph, kernels).peak_bytes * 6 // 10
    changed, plan, _ = leaner(graph, kernels).within(limit)
    assert plan.peak_bytes <= limit
    assert any(".again" in n.outputs[0].name for n in changed.nodes)
    expected = evaluated(graph, kernels, inputs, dict(arrays))
    functions = functions_of(graph, kernels)
    for streams, threads in ((1, 1), (3, 2)):
        plan = make_plan(
            changed, kernels_again(changed, kernels), device="cpu", streams=streams
        )  # fmt: skip
        state = {v.name: StateBuffer(arrays[v.name].view(np.float32)) for v in graph.state}
        found = CpuExecutable(plan, state, threads, functions).run(
            [a.view(np.float32) for a in inputs]
        )
        for a, b in zip(expected[0], found, strict=True):
            np.testing.assert_array_equal(a, b.view(np.uint32).ravel())
        for name, array in expected[1].items():
            np.testing.assert_array_equal(array, state[name].numpy().view(np.uint32).ravel())


def test_notes_say_what_runs_again_why_and_what_it_saves_and_costs() -> None:
    graph, kernels = training_graph(8, 100_000)
    base = plan_of(graph, kernels)
    limit = base.peak_bytes * 7 // 10
    plan = leaner(graph, kernels).within(limit).plan
    head, *lines = [n for n in plan.notes if n.startswith("memory: ")]
    assert head.startswith(f"memory: {len(lines)} launches again for ")
    assert head.endswith(
        f" % more estimated time, {base.peak_bytes} -> {plan.peak_bytes} bytes live at once: "
        f"{limit} bytes are allowed"
    )
    assert lines[0].startswith("memory: conv") and "_forward again before " in lines[0]
    assert "bytes are not held, " in lines[0] and lines[0].endswith(" us")
