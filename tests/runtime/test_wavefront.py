"""Layers of loops play at once where that is faster, and compute the same."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import graphc
from graphc.ir import Graph, Node, Type, Value
from graphc.kernels.program.kernel import Kernel
from graphc.ops.loops.scan import Scan, stacked
from graphc.ops.view import Reshape
from graphc.runtime.plan.plan import Launch, Loop, Plan
from graphc.runtime.plan.unroll import unrolled
from graphc.runtime.planner.planner import make_plan
from tests.runtime.brute_force import graph_meaning, is_ordered, plan_meaning
from tests.runtime.random_graphs import kernel_node, opaque_kernel
from tests.runtime.random_loops import layered_loops

LENGTH = 5
ROW = Type((16,))


def layers(
    count: int, flops: int = 10**8, between: bool = False
) -> tuple[Graph, dict[str, Kernel]]:
    """Layers of one kernel each, `between` two of which another may look at the whole stack."""
    x, h = Value("x", stacked(ROW, LENGTH)), Value("h", ROW)
    kernels: dict[str, Kernel] = {}
    nodes: list[Node] = []
    start, scanned = h, x
    for n in range(count):
        old, element = Value(f"old{n}", ROW), Value(f"x{n}", ROW)
        cell = kernel_node(f"cell{n}", [old, element], [16])
        kernels[f"cell{n}"] = opaque_kernel(f"cell{n}", flops=flops)
        body = Graph(f"body{n}", (old, element), (), (cell,), (cell.output, cell.output))
        last, stack = Value(f"last{n}", ROW), Value(f"stack{n}", stacked(ROW, LENGTH))
        nodes.append(Node(Scan(body, LENGTH, 1, 1), (start, scanned), (last, stack)))
        scanned = stack
        if between:
            look = kernel_node(f"look{n}", [stack], [16])
            kernels[f"look{n}"] = opaque_kernel(f"look{n}")
            nodes.append(look)
            start = look.output
    return Graph("layers", (x, h), (), tuple(nodes), (scanned,)), kernels


def loops(plan: Plan) -> list[Loop]:
    return [step for step in plan.steps if isinstance(step, Loop)]


@pytest.mark.parametrize("count", [2, 3])
def test_layers_play_at_once_each_an_iteration_behind(count: int) -> None:
    graph, kernels = layers(count)
    plan = make_plan(graph, kernels, device="cpu", streams=count)
    (loop,) = loops(plan)
    assert (loop.count, loop.stages) == (LENGTH + count - 1, count)
    assert plan.notes == (f"wavefront: last0 plays {count} loops of 5 iterations at once",)
    launches = [step for step in loop.steps if isinstance(step, Launch)]
    assert {(step.kernel, step.stage) for step in launches} == {
        (f"cell{n}", n) for n in range(count)
    }
    assert len({step.stream for step in launches}) == count
    plan.verify()
    assert is_ordered(plan)
    assert plan_meaning(plan, random.Random(0)) == graph_meaning(graph, kernels)
    played = [u.step.kernel for u in unrolled(plan) if isinstance(u.step, Launch)]
    assert sorted(played) == sorted([f"cell{n}" for n in range(count)] * LENGTH)


@pytest.mark.parametrize("count", [2, 3, 4])
def test_carries_take_turns_in_two_buffers_at_every_stage(count: int) -> None:
    """What is stacked is not the carry, which has no memory for more than the old and the new."""
    x, h = Value("x", stacked(ROW, LENGTH)), Value("h", ROW)
    kernels = {f"cell{n}": opaque_kernel(f"cell{n}", flops=10**8) for n in range(count)}
    nodes: list[Node] = []
    scanned, ends = x, []
    for n in range(count):
        old, element = Value(f"old{n}", ROW), Value(f"x{n}", ROW)
        cell = kernel_node(f"cell{n}", [old, element], [16, 16])
        body = Graph(f"body{n}", (old, element), (), (cell,), cell.outputs)
        ends.append(Value(f"last{n}", ROW))
        stack = Value(f"stack{n}", stacked(ROW, LENGTH))
        nodes.append(Node(Scan(body, LENGTH, 1, 1), (h, scanned), (ends[-1], stack)))
        scanned = stack
    graph = Graph("layers", (x, h), (), tuple(nodes), (*ends, scanned))
    plan = make_plan(graph, kernels, device="cpu", streams=count)
    (loop,) = loops(plan)
    moves = {m.period for s in loop.steps if isinstance(s, Launch) for m in s.reads[0].moves}
    assert loop.stages == count and moves == {2}
    plan.verify()
    assert plan_meaning(plan, random.Random(0)) == graph_meaning(graph, kernels)


@pytest.mark.parametrize(("carried", "read"), [(True, False), (False, False), (True, True)])
@pytest.mark.parametrize("length", [2, 5, 6])
@pytest.mark.parametrize("reverse", [False, True])
def test_what_a_stage_alone_passes_to_the_next_takes_turns_in_two_places(
    carried: bool, read: bool, length: int, reverse: bool
) -> None:
    """A stack of new carries, or of something else; not where another kernel looks at it too, nor
    where there are but two elements."""
    x, h = Value("x", stacked(ROW, length)), Value("h", ROW)
    kernels = {f"cell{n}": opaque_kernel(f"cell{n}", flops=10**8) for n in range(3)}
    kernels["look"] = opaque_kernel("look")
    nodes: list[Node] = []
    scanned, ends = x, []
    for n in range(3):
        old, element = Value(f"old{n}", ROW), Value(f"x{n}", ROW)
        cell = kernel_node(f"cell{n}", [old, element], [16, 16])
        passed = cell.outputs[0 if carried else 1]
        body = Graph(f"body{n}", (old, element), (), (cell,), (cell.outputs[0], passed))
        ends.append(Value(f"last{n}", ROW))
        stack = Value(f"stack{n}", stacked(ROW, length))
        op = Scan(body, length, 1, 1, reverse)
        nodes.append(Node(op, (h, scanned), (ends[-1], stack)))
        scanned = stack
    look = kernel_node("look", [nodes[0].outputs[1] if read else ends[0], *ends], [16])
    graph = Graph("layers", (x, h), (), (*nodes, look), (look.output, ends[-1]))
    plan = make_plan(graph, kernels, device="cpu", streams=3)
    (loop,) = loops(plan)
    assert loop.stages == 3
    periods = {
        (step.stage, place.moves[0].period)
        for step in loop.steps
        if isinstance(step, Launch)
        for place in step.reads[1:]
    }
    whole = {(1, length + 2)} if read or length == 2 else set()
    assert periods >= whole | {(0, length + 2)} and (not whole) == ((1, 2) in periods)
    plan.verify()
    assert is_ordered(plan)
    assert plan_meaning(plan, random.Random(0)) == graph_meaning(graph, kernels)


@pytest.mark.parametrize("streams", [2, 3])
def test_a_stage_may_write_over_what_the_one_before_passed_on(streams: int) -> None:
    """As the activated gates of an LSTM lie over the sums that they are made of."""
    x, h = Value("x", stacked(ROW, LENGTH)), Value("h", ROW)
    names = ["make", *(f"cell{n}" for n in range(streams))]
    kernels = {n: opaque_kernel(n, flops=10**8, inplace=((1, 1),)) for n in names}
    kernels["make"] = opaque_kernel("make")
    first = kernel_node("make", [x], [LENGTH * 16])
    made = Value("made", stacked(ROW, LENGTH))
    nodes = [first, Node(Reshape(made.type.shape), (first.output,), (made,))]
    scanned, ends = made, []
    for n in range(streams):
        old, element = Value(f"old{n}", ROW), Value(f"x{n}", ROW)
        cell = kernel_node(f"cell{n}", [old, element], [16, 16, 16])
        new, saved, passed = cell.outputs
        body = Graph(f"body{n}", (old, element), (), (cell,), (new, saved, passed))
        ends.append(Value(f"last{n}", ROW))
        stacks = [Value(f"{s}{n}", stacked(ROW, LENGTH)) for s in ("saved", "stack")]
        nodes.append(Node(Scan(body, LENGTH, 1, 1), (h, scanned), (ends[-1], *stacks)))
        look = kernel_node(f"look{n}", [stacks[0]], [16])
        kernels[f"look{n}"] = opaque_kernel(f"look{n}")
        nodes.append(look)
        ends.append(look.output)
        scanned = stacks[1]
    graph = Graph("layers", (x, h), (), tuple(nodes), (*ends, scanned))
    plan = make_plan(graph, kernels, device="cpu", streams=streams)
    (loop,) = loops(plan)
    assert loop.stages == streams
    cells = [step for step in loop.steps if isinstance(step, Launch)]
    assert all(step.reads[1].start == step.writes[1].start for step in cells)
    plan.verify()
    assert is_ordered(plan)
    assert plan_meaning(plan, random.Random(0)) == graph_meaning(graph, kernels)


def test_one_stream_plays_one_layer_after_the_other() -> None:
    plan = make_plan(*layers(2), device="cpu", streams=1)
    assert [loop.stages for loop in loops(plan)] == [1, 1]
    assert plan.notes == ()


def test_layers_that_need_something_between_them_stay_apart() -> None:
    plan = make_plan(*layers(2, between=True), device="cpu", streams=2)
    assert [loop.stages for loop in loops(plan)] == [1, 1]


def test_layers_stay_apart_where_one_takes_nearly_all_the_time() -> None:
    graph, kernels = layers(2)
    kernels["cell1"] = opaque_kernel("cell1", flops=10**5)
    plan = make_plan(graph, kernels, device="cpu", streams=2)
    assert [loop.stages for loop in loops(plan)] == [1, 1]


@pytest.mark.parametrize("streams", [2, 4])
@pytest.mark.parametrize("seed", range(12))
def test_wavefronts_compute_what_the_graph_means_in_any_allowed_order(
    seed: int, streams: int
) -> None:
    graph, kernels = layered_loops(seed, length=1 + seed % 4)
    plan = make_plan(graph, kernels, device="cpu", streams=streams)
    plan.verify()
    assert is_ordered(plan)
    dice = random.Random(seed)
    for _ in range(2):
        assert plan_meaning(plan, dice) == graph_meaning(graph, kernels)


@pytest.mark.parametrize("seed", [2, 16, 59, 101])
def test_what_stages_pass_on_is_found_by_whatever_else_needs_it(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a loop that is given what another one's carry ended as."""
    monkeypatch.setattr("graphc.runtime.planner.wavefront.GAIN", 1e9)
    graph, kernels = layered_loops(seed, layers=2 + seed % 3, length=1 + seed % 6)
    plan = make_plan(graph, kernels, device="cuda", streams=2)
    assert ".passed" in str(plan)
    plan.verify()
    assert is_ordered(plan)
    assert plan_meaning(plan, random.Random(seed)) == graph_meaning(graph, kernels)


def test_layers_stay_apart_where_their_kernels_take_all_threads() -> None:
    graph, kernels = layers(2)
    wide = {n: replace(kernel, phases=(8,)) for n, kernel in kernels.items()}
    plan = make_plan(graph, wide, device="cpu", streams=2)
    assert [loop.stages for loop in loops(plan)] == [1, 1]
    plan = make_plan(graph, wide, device="cuda", streams=2)
    assert [loop.stages for loop in loops(plan)] == [2]


@pytest.mark.parametrize("elementwise", [False, True])
@pytest.mark.parametrize(("rows", "options"), [
    (64, {"device": "sim"}),
    (4, {"device": "cpu", "threads": 1}),
    (4, {"device": "cpu", "threads": 2}),
])  # fmt: skip
def test_wavefront_has_the_bits_of_one_stream(
    rows: int, options: dict[str, Any], elementwise: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the CPU too, where loops of kernels so short would stay apart."""
    monkeypatch.setattr("graphc.runtime.planner.wavefront.GAIN", 1e9)

    def fn(x: graphc.Tensor, h: graphc.Tensor, w: graphc.Tensor) -> tuple[graphc.Tensor, ...]:
        def step(h: graphc.Tensor, x: graphc.Tensor) -> tuple[graphc.Tensor, graphc.Tensor]:
            new = graphc.tanh(h @ w) * x
            return new, new

        def in_place(h: graphc.Tensor, x: graphc.Tensor) -> tuple[graphc.Tensor, graphc.Tensor]:
            return graphc.tanh(h * w) + x, h - x

        first, once = graphc.scan(in_place if elementwise else step, h, x)
        last, twice = graphc.scan(in_place if elementwise else step, h, once)
        return first, last, twice

    shapes = (4, rows, rows), (rows, rows), (rows, rows)
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(shape).astype(np.float32) for shape in shapes]
    results = []
    for streams in (1, 2):
        specs = map(graphc.spec, shapes)
        program = graphc.compile(fn, *specs, streams=streams, **options)
        assert program.plan is not None
        assert [loop.stages for loop in loops(program.plan)] == ([1, 1] if streams == 1 else [2])
        results.append([array.tobytes() for array in program(*arrays)])
    assert results[0] == results[1]
