"""What a report shows is what the program's own objects say."""

from __future__ import annotations

import sys
import types
from collections import Counter
from itertools import pairwise

import pytest

from graphc.inspect.profile import Profile, ProfileRow, gradients_of
from graphc.inspect.trace_events import Span
from graphc.report.data import program_data, summary
from graphc.report.sources import source_files
from graphc.report.stages import body_of, phase
from graphc.runtime.plan.plan import Launch, Loop, Plan, Record, Wait, all_steps
from graphc.runtime.plan.unroll import unrolled
from graphc.runtime.tuning.device_limits import DeviceLimits
from graphc.text import graph_text
from tests.report.programs import training

MODELS = ["lenet", "recurrent"]


@pytest.mark.parametrize("model", MODELS)
def test_kernels_are_those_of_the_plan(model: str) -> None:
    program = training(model)
    plan, data = plan_of(program), program_data(program)
    assert {k.name: k.source for k in data.kernels} == program.kernels
    launches = Counter(u.step.kernel for u in unrolled(plan) if isinstance(u.step, Launch))
    assert {k.name: k.launches for k in data.kernels} == launches
    assert data.summary.launches == sum(launches.values())
    first = {s.kernel: s for s in reversed(all_steps(plan.steps)) if isinstance(s, Launch)}
    for kernel in data.kernels:
        assert kernel.lines == first[kernel.name].where.lines
        assert kernel.phase == phase(first[kernel.name].where)
        assert kernel.bytes == plan.kernels[kernel.name].bytes
        assert kernel.predicted > 0
        assert set(data.nodes[kernel.node].outputs) & {w.value for w in first[kernel.name].writes}


def test_backward_kernels_name_what_they_differentiate_by() -> None:
    program = training("lenet")
    named = {k.name: k.gradient for k in program_data(program).kernels if k.gradient}
    assert named == gradients_of(program)
    assert "conv2.weight" in named.values()


def test_reasons_are_those_that_explain_gives() -> None:
    program = training("lenet", streams=2)
    data = program_data(program)
    for kernel in data.kernels:
        said = str(program.explain(kernel.name)).splitlines()[1:]
        assert kernel.reasons == tuple(line.strip() for line in said) != ()
    assert all(b.reasons for b in data.buffers if not b.value.endswith("workspace"))
    assert all(s.reasons for s in data.steps if s.kind in ("record", "wait"))
    assert data.advice == program.memory().advice
    assert set(data.became) == {v.name for n in program.stages["trace"].nodes for v in n.outputs}


def test_only_the_update_has_no_line() -> None:
    data = program_data(training("lenet"))
    assert {k.phase for k in data.kernels} == {"forward", "backward", "update"}
    assert all((k.phase == "update") == (not k.lines) for k in data.kernels)


@pytest.mark.parametrize("model", MODELS)
def test_stages_hold_every_node_of_every_graph(model: str) -> None:
    program = training(model)
    data = program_data(program)
    assert [s.name for s in data.stages] == list(program.stages)
    for stage, graph in zip(data.stages, program.stages.values(), strict=True):
        text = " ".join(graph_text(graph).split())
        assert len(stage.nodes) == len(graph.nodes)
        for number, node in zip(stage.nodes, graph.nodes, strict=True):
            shown = data.nodes[number]
            assert " ".join(shown.text.split()) in text
            assert (shown.module, shown.lines) == (node.where.module, node.where.lines)
            body = body_of(node)
            assert (shown.body is None) == (body is None)
            if shown.body is not None and body is not None:
                assert len(shown.body.nodes) == len(body.nodes)
                assert len(shown.body.inputs) == len(node.inputs)
                assert len(shown.body.outputs) == len(node.outputs)


def test_nodes_that_a_pass_leaves_alone_are_the_same_in_both_stages() -> None:
    data = program_data(training("lenet"))
    before, after = (next(s for s in data.stages if s.name == n) for n in ("trace", "simplify"))
    assert before.nodes == after.nodes
    fused = next(s for s in data.stages if s.name == "fuse_contract")
    earlier = data.stages[data.stages.index(fused) - 1]
    assert set(earlier.nodes) & set(fused.nodes)
    assert any(data.nodes[n].kernel for n in set(fused.nodes) - set(earlier.nodes))


def test_values_have_the_types_of_the_graph() -> None:
    program = training("recurrent")
    data = program_data(program)
    for node in program.graph.nodes:
        assert all(data.types[v.name] == str(v.type) for v in node.outputs)


@pytest.mark.parametrize(("model", "streams"), [("lenet", 1), ("lenet", 2), ("recurrent", 1)])
def test_every_byte_of_work_memory_that_a_step_touches_is_in_a_buffer(
    model: str, streams: int
) -> None:
    program = training(model, streams=streams)
    plan, data = plan_of(program), program_data(program)
    for number, step in enumerate(plan_steps(plan)):
        if not isinstance(step, Launch):
            continue
        for place in (*step.reads, *step.writes):
            if place.segment == "work":
                assert any(
                    b.start <= place.start and place.stop <= b.stop and b.first <= number <= b.last
                    for b in data.buffers
                ), (number, place)
    assert max(b.stop for b in data.buffers) <= plan.peak_bytes
    assert max(data.live) <= plan.peak_bytes


def test_the_peak_of_one_stream_is_the_lower_bound() -> None:
    program = training("lenet")
    data = program_data(program)
    assert 0.97 * plan_of(program).lower_bound_bytes < max(data.live) <= plan_of(program).peak_bytes


def test_a_buffer_names_its_producer_line_and_last_use() -> None:
    program = training("lenet")
    steps, data = plan_steps(plan_of(program)), program_data(program)
    for buffer in data.buffers:
        made, last = steps[buffer.first], steps[buffer.last]
        assert isinstance(made, Launch)
        assert isinstance(last, Launch)
        assert buffer.producer == made.kernel
        assert buffer.lines == made.where.lines
        assert buffer.value in {r.value for r in (*last.reads, *last.writes)}
    over = next(b for b in data.buffers if b.over)
    under = next(b for b in data.buffers if b.value == over.over)
    assert under.last == over.first
    assert under.start < over.stop and over.start < under.stop


def test_steps_are_those_of_the_plan_and_know_their_loop() -> None:
    program = training("recurrent")
    plan, data = plan_of(program), program_data(program)
    steps = plan_steps(plan)
    assert [s.kind for s in data.steps] == [type(s).__name__.lower() for s in steps]
    assert [s.stream for s in data.steps] == [s.stream for s in steps]
    loops = [n for n, s in enumerate(steps) if isinstance(s, Loop)]
    assert loops
    for number in loops:
        loop = steps[number]
        assert isinstance(loop, Loop)
        assert data.steps[number].count == loop.count
        inside = [n for n, s in enumerate(data.steps) if s.inside == number]
        assert len(inside) == len(loop.steps)


def test_the_modelled_timeline_keeps_to_streams_and_events() -> None:
    program = training("lenet", streams=2)
    plan = plan_of(program)
    times = {name: 10.0 + len(name) for name in plan.kernels}
    data = program_data(program, profile(times))
    spans = {s.step: s for s in data.modelled}
    last: dict[int, float] = {}
    events: dict[int, float] = {}
    waits = 0
    for number, step in enumerate(plan.steps):
        if isinstance(step, Record):
            events[step.event] = last.get(step.stream, 0.0)
        elif isinstance(step, Wait):
            waits += 1
            last[step.stream] = max(last.get(step.stream, 0.0), events[step.event])
        elif isinstance(step, Launch):
            span = spans[number]
            assert span.start >= last.get(step.stream, 0.0)
            assert span.stop - span.start == pytest.approx(times[step.kernel])
            last[step.stream] = span.stop
    assert waits


@pytest.mark.parametrize(("model", "streams"), [("lenet", 2), ("recurrent", 1)])
def test_the_critical_path_ends_with_the_call_and_has_no_gap(model: str, streams: int) -> None:
    data = program_data(training(model, streams=streams))
    spans = {s.step: s for s in data.modelled}
    path = [spans[number] for number in data.critical]
    assert path[0].start == 0
    assert path[-1].stop == max(s.stop for s in data.modelled)
    for before, after in pairwise(path):
        assert after.cause == before.step
        assert 0 <= after.start - before.stop < 5  # an event takes a microsecond


def test_a_loop_takes_as_long_as_its_iterations() -> None:
    data = program_data(training("recurrent"))
    spans = {s.step: s for s in data.modelled}
    for number, step in enumerate(data.steps):
        if step.kind == "loop":
            inner = [spans[n] for n, s in enumerate(data.steps) if s.inside == number]
            once = max(s.stop for s in inner) - min(s.start for s in inner)
            length = spans[number].stop - spans[number].start
            assert length == pytest.approx(step.count * once)


def test_what_was_measured_stands_beside_what_is_predicted() -> None:
    program = training("lenet")
    name = next(iter(program.kernels))
    spans = Span(0, 0.0, 40.0), Span(0, 40.0, 50.0)
    data = program_data(program, profile({name: 123.0}, 60.0, spans))
    measured = {k.name: k.measured for k in data.kernels}
    assert measured.pop(name) == 123.0
    assert set(measured.values()) == {None}
    assert [(s.step, s.start, s.stop) for s in data.timeline] == [(0, 0.0, 50.0)]
    assert data.summary.measured == 60.0
    assert data.limits is not None
    assert (data.limits.flops, data.limits.bytes) == (3e11, 2e10)
    assert "measured" in data.limits.title
    assert program_data(program).summary.measured is None


def test_the_summary_counts_what_fusion_saved() -> None:
    program = training("recurrent")
    figures, plan = summary(program), plan_of(program)
    assert figures.kernels == len(plan.kernels) < figures.ops < figures.op_launches
    assert (figures.peak, figures.bound) == (plan.peak_bytes, plan.lower_bound_bytes)
    assert figures.bytes < figures.op_bytes
    assert figures.verified == str(plan.verify())


def test_a_program_of_the_reference_has_stages_alone() -> None:
    data = program_data(training("mlp", "reference"))
    assert data.stages
    assert (data.kernels, data.steps, data.buffers, data.limits) == ((), (), (), None)
    assert data.summary.kernels > 0


def test_equal_programs_give_equal_data() -> None:
    program = training("lenet")
    again = training.__wrapped__("lenet")
    assert program_data(program) == program_data(again)


def test_files_of_the_user_are_found_by_their_names() -> None:
    found = source_files(["small_models.py:20", "nowhere.py:3"])
    assert list(found) == ["small_models.py"]
    assert "class LeNet" in found["small_models.py"]
    assert source_files(["small_models.py:100000"]) == {}


def test_a_name_that_two_files_have_is_left_out(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number, text in enumerate(("a = 1\n", "a = 2\n")):
        path = tmp_path / str(number) / "twice.py"
        path.parent.mkdir()
        path.write_text(text)
        module = types.ModuleType(f"twice{number}")
        module.__file__ = str(path)
        monkeypatch.setitem(sys.modules, module.__name__, module)
    assert source_files(["twice.py:1"]) == {}


def profile(times: dict[str, float], step: float = 0.0, spans: tuple[Span, ...] = ()) -> Profile:
    """Of two calls in which each kernel took so many microseconds."""
    rows = tuple(ProfileRow(name, "", 2, 2 * t, 0, 0) for name, t in times.items())
    return Profile("p", 2, rows, step, DeviceLimits(300e3, 20e3, "measured"), spans)


def plan_of(program: object) -> Plan:
    plan = program.plan
    assert plan is not None
    return plan


def plan_steps(plan: Plan) -> list:
    return all_steps(plan.steps)
