"""Plans of random graphs compute what the graphs mean, on any number of streams."""

from __future__ import annotations

import random

import pytest

from graphc.base.errors import PlanError
from graphc.ir import Graph, Node, Type, Value
from graphc.ops.view import Reshape
from graphc.runtime.plan.plan import Copy, Launch, Plan, Record, Wait
from graphc.runtime.planner.planner import make_plan
from tests.runtime.brute_force import given, graph_meaning, plan_meaning
from tests.runtime.random_graphs import (
    add_updates,
    kernel_node,
    opaque_kernel,
    random_graph,
    training_graph,
)

STREAMS = (1, 2, 3, 4, 8)


def launched(plan: Plan) -> list[str]:
    return [s.kernel for s in plan.steps if isinstance(s, Launch)]


def copies(plan: Plan) -> list[Copy]:
    return [s for s in plan.steps if isinstance(s, Copy)]


@pytest.mark.parametrize("streams", STREAMS)
@pytest.mark.parametrize("seed", range(12))
def test_plan_computes_what_the_graph_means_in_any_allowed_order(seed: int, streams: int) -> None:
    graph, kernels = random_graph(seed)
    if seed % 2:
        graph, kernels = add_updates(graph, kernels)
    plan = make_plan(graph, kernels, device="cpu", streams=streams)
    plan.verify()
    dice = random.Random(seed)
    for _ in range(3):
        assert plan_meaning(plan, dice) == graph_meaning(graph, kernels)


@pytest.mark.parametrize("streams", STREAMS)
def test_same_graph_gives_the_same_plan_text(streams: int) -> None:
    first = make_plan(*random_graph(5, 40), device="cpu", streams=streams)
    second = make_plan(*random_graph(5, 40), device="cpu", streams=streams)
    assert first.text() == second.text()


def test_one_stream_has_no_events() -> None:
    plan = make_plan(*random_graph(3), device="cpu", streams=1)
    assert not [s for s in plan.steps if isinstance(s, Record | Wait)]


def test_peak_is_the_end_of_the_last_work_range_and_at_least_the_lower_bound() -> None:
    for seed in range(8):
        plan = make_plan(*random_graph(seed, 40), device="cpu", streams=1)
        launches = [s for s in plan.steps if isinstance(s, Launch)]
        ends = [r.stop for s in launches for r in s.arguments if r.segment == "work"]
        assert plan.peak_bytes == -(-max(ends) // 64) * 64
        assert plan.lower_bound_bytes <= plan.peak_bytes <= 1.05 * plan.lower_bound_bytes


def test_optimizer_writes_all_state_in_place_without_copies() -> None:
    graph, kernels = training_graph(4)
    plan = make_plan(graph, kernels, device="cpu", streams=2)
    assert not copies(plan)
    update = next(s for s in plan.steps if isinstance(s, Launch) and s.kernel == "update")
    assert update.writes == update.reads[: len(update.writes)]
    assert {r.segment for r in update.writes} == {"state"}


X = Value("x", Type((16,)))
S = Value("s", Type((16,)))
T = Value("t", Type((16,)))


def test_state_is_updated_in_place_only_after_its_last_reader() -> None:
    early = kernel_node("new", [S, X], [16])
    late = kernel_node("reader", [S], [16])
    graph = Graph("g", (X,), (S,), (early, late), (late.output,), ((S, early.output),))
    kernels = {
        "new": opaque_kernel("new", inplace=((0, 0),)),
        "reader": opaque_kernel("reader"),
    }
    plan = make_plan(graph, kernels, device="cpu")
    assert launched(plan) == ["reader", "new"]
    assert not copies(plan)


def test_state_that_is_read_after_its_new_contents_is_copied_at_the_end() -> None:
    new = kernel_node("new", [S], [16])
    late = kernel_node("reader", [S, new.output], [16])
    graph = Graph("g", (), (S,), (new, late), (late.output,), ((S, new.output),))
    kernels = {
        "new": opaque_kernel("new", inplace=((0, 0),)),
        "reader": opaque_kernel("reader"),
    }
    plan = make_plan(graph, kernels, device="cpu")
    assert launched(plan) == ["new", "reader"]
    (copy,) = copies(plan)
    assert (copy.source.segment, copy.target.segment) == ("work", "state")
    assert plan.steps[-1] == copy


def test_state_is_not_overwritten_by_a_kernel_that_does_not_allow_it() -> None:
    new = kernel_node("new", [S], [16])
    graph = Graph("g", (), (S,), (new,), (), ((S, new.output),))
    plan = make_plan(graph, {"new": opaque_kernel("new")}, device="cpu")
    assert [c.target.segment for c in copies(plan)] == ["state"]


def test_swapped_states_go_through_the_arena() -> None:
    graph = Graph("g", (), (S, T), (), (), ((S, T), (T, S)))
    plan = make_plan(graph, {}, device="cpu")
    plan.verify()
    swapped = {"s": given("t", 64).tobytes(), "t": given("s", 64).tobytes()}
    assert plan_meaning(plan, random.Random(0))[1] == swapped


def test_output_is_written_where_the_caller_gets_it() -> None:
    node = kernel_node("y", [X], [16])
    flat = Value("flat", Type((4, 4)))
    alias = Node(Reshape((4, 4)), (node.output,), (flat,))
    graph = Graph("g", (X,), (), (node, alias), (flat,))
    plan = make_plan(graph, {"y": opaque_kernel("y")}, device="cpu")
    (launch,) = plan.steps
    assert isinstance(launch, Launch)
    assert launch.writes == (plan.outputs[0].place,)
    assert plan.outputs[0].value == flat
    assert plan.peak_bytes == 0


def test_second_use_of_an_output_and_inputs_and_state_as_outputs_are_copies() -> None:
    node = kernel_node("y", [X], [16])
    graph = Graph("g", (X,), (S,), (node,), (node.output, node.output, X, S))
    plan = make_plan(graph, {"y": opaque_kernel("y")}, device="cpu")
    plan.verify()
    first, *others = plan.outputs
    assert {c.target for c in copies(plan)} == {b.place for b in others}
    assert sorted(c.source.segment for c in copies(plan)) == ["io", "io", "state"]
    assert not [c for c in copies(plan) if c.target == first.place]


def test_old_contents_as_output_are_copied_before_the_update() -> None:
    new = kernel_node("new", [S], [16])
    graph = Graph("g", (), (S,), (new,), (S, new.output), ((S, new.output),))
    kernels = {"new": opaque_kernel("new", inplace=((0, 0),))}
    plan = make_plan(graph, kernels, device="cpu", streams=2)
    assert [type(s) for s in plan.steps if isinstance(s, Launch | Copy)] == [Copy, Launch, Copy]
    assert plan_meaning(plan, random.Random(0)) == graph_meaning(graph, kernels)


def test_node_without_a_kernel_is_an_error() -> None:
    graph = Graph("g", (X,), (), (kernel_node("y", [X], [16]),), ())
    with pytest.raises(PlanError) as error:
        make_plan(graph, {}, device="cpu")
    assert str(error.value) == "plan g: no kernel for  %y"


def test_two_kernels_of_one_name_are_an_error() -> None:
    nodes = (kernel_node("y", [X], [16]), kernel_node("z", [X], [16]))
    kernels = {"y": opaque_kernel("k"), "z": opaque_kernel("k", flops=1)}
    with pytest.raises(PlanError) as error:
        make_plan(Graph("g", (X,), (), nodes, ()), kernels, device="cpu")
    assert str(error.value) == "plan g: two kernels are called k"


def test_plan_text_has_one_line_per_step_with_its_fields() -> None:
    graph, kernels = training_graph(2)
    notes = ("streams: auto chose 2", "measured: 2 streams 1.20 ms")
    plan = make_plan(graph, kernels, device="cpu", streams=2, notes=notes)
    lines = plan.text().splitlines()
    assert lines[0].startswith("plan training  cpu  2 streams  9 launches  ")
    assert lines[1].split()[-2:] == ["verified", plan.verify().digest]
    assert lines[2] == "streams: auto chose 2"
    assert len(lines) == 3 + len(plan.steps)
    for index, (line, step) in enumerate(zip(lines[3:], plan.steps, strict=True)):
        fields = line.split()
        subject = step.kernel if isinstance(step, Launch) else None
        assert fields[:3] == [str(index), f"s{step.stream}", type(step).__name__.lower()]
        assert subject in (None, fields[3])
    first = next(s for s in plan.steps if isinstance(s, Launch))
    line = next(line for line in lines if f" {first.kernel} " in line)
    reads = " ".join(f"{r.value}={r.segment}+{r.start}..{r.stop}" for r in first.reads)
    assert f"reads {reads}  writes " in line
    assert "measured: 2 streams 1.20 ms" in plan.text(measured=True)
