from __future__ import annotations

from dataclasses import replace
from itertools import permutations

import pytest

from graphc.ir import Graph, Type, Value
from graphc.runtime.planner.graph_tasks import make_tasks
from graphc.runtime.planner.serial_order import live_bytes, memory_order
from graphc.runtime.planner.tasks import Tasks
from tests.runtime.random_graphs import (
    kernel_node,
    opaque_kernel,
    random_graph,
    training_graph,
)


def is_executable(tasks: Tasks, order: tuple[int, ...]) -> bool:
    place = {i: n for n, i in enumerate(order)}
    return sorted(order) == list(range(len(tasks.tasks))) and all(
        place[j] < place[i]
        for i, mask in enumerate(tasks.predecessors)
        for j in range(len(order))
        if mask >> j & 1
    )


@pytest.mark.parametrize("seed", range(10))
def test_order_is_executable(seed: int) -> None:
    tasks = make_tasks(*random_graph(seed))
    assert is_executable(tasks, memory_order(tasks))


@pytest.mark.parametrize("seed", range(10))
def test_order_of_few_tasks_is_within_a_tenth_of_the_best(seed: int) -> None:
    graph, kernels = random_graph(seed, 7)
    tasks = make_tasks(replace(graph, outputs=(), updates=()), kernels)
    count = len(tasks.tasks)
    orders = (o for o in permutations(range(count)) if is_executable(tasks, o))
    best = min(max(live_bytes(tasks, o)) for o in orders)
    assert max(live_bytes(tasks, memory_order(tasks))) <= 1.1 * best


def least_peak(tasks: Tasks) -> int:
    """The most bytes live at once in the best order: what is live while a task runs depends on
    which tasks ran before, not on their order."""
    count = len(tasks.tasks)
    best = {0: 0}
    for done in range(1 << count):
        if done not in best:
            continue
        ran = [i for i in range(count) if done >> i & 1]
        for i in set(range(count)).difference(ran):
            if tasks.predecessors[i] & ~done == 0:
                rest = [j for j in range(count) if j != i and j not in ran]
                peak = max(best[done], live_bytes(tasks, (*ran, i, *rest))[len(ran)])
                after = done | 1 << i
                best[after] = min(best.get(after, peak), peak)
    return best[(1 << count) - 1]


@pytest.mark.parametrize("seed", [1, 18, 49])
def test_no_order_needs_less_than_one_whose_tasks_were_moved_across_the_peak(seed: int) -> None:
    """Graphs for which every greedy rule alone needs more."""
    graph, kernels = random_graph(seed, 10)
    tasks = make_tasks(replace(graph, outputs=(), updates=()), kernels)
    assert max(live_bytes(tasks, memory_order(tasks))) == least_peak(tasks)


def test_order_releases_one_branch_before_it_starts_the_next() -> None:
    """Ten branches x -> big -> small: interleaved they would hold ten big buffers."""
    x = Value("x", Type((16,)))
    bigs = [kernel_node(f"big{n}", [x], [10_000]) for n in range(10)]
    smalls = [kernel_node(f"small{n}", [b.output], [16]) for n, b in enumerate(bigs)]
    total = kernel_node("total", [s.output for s in smalls], [16])
    nodes = (*bigs, *smalls, total)
    kernels = {n.output.name: opaque_kernel(n.output.name) for n in nodes}
    tasks = make_tasks(Graph("g", (x,), (), nodes, (total.output,)), kernels)
    assert max(live_bytes(tasks, memory_order(tasks))) < 2 * 40_000


def test_wgrad_comes_as_soon_as_it_can_release_its_activation() -> None:
    """Backwards, no more than the saved activations and two gradients are ever held."""
    tasks = make_tasks(*training_graph(8, batch=1600))
    assert max(live_bytes(tasks, memory_order(tasks))) <= (8 + 2) * 6400 + 64 * 16


def test_live_bytes_count_a_task_with_inputs_outputs_and_workspace() -> None:
    x = Value("x", Type((16,)))
    a = kernel_node("a", [x], [100])
    b = kernel_node("b", [a.output], [17])
    c = kernel_node("c", [b.output], [16])
    kernels = {n: opaque_kernel(n, workspace=70 if n == "b" else 0) for n in "abc"}
    tasks = make_tasks(Graph("g", (x,), (), (a, b, c), (c.output,)), kernels)
    assert live_bytes(tasks, (0, 1, 2)) == [448, 448 + 128 + 128, 128]


def test_live_bytes_count_one_buffer_where_an_output_overwrites_its_input() -> None:
    x = Value("x", Type((16,)))
    a = kernel_node("a", [x], [16])
    b = kernel_node("b", [a.output], [16])
    c = kernel_node("c", [b.output], [16])
    kernels = {n: opaque_kernel(n, inplace=((0, 0),)) for n in "abc"}
    tasks = make_tasks(Graph("g", (x,), (), (a, b, c), (c.output,)), kernels)
    assert live_bytes(tasks, (0, 1, 2)) == [64, 64, 64]
