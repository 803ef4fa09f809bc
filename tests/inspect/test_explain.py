"""What `program.explain` and `program.memory` say, and that they have an answer for everything."""

from __future__ import annotations

import functools
from typing import Any

import pytest

import graphc
from graphc import nn, optim
from graphc.base.errors import GraphError
from graphc.inspect.explanation import TOPICS, Explanation, Reason
from graphc.ops.fused import KernelNode, kernels_in
from graphc.ops.loops.scan import bodies
from graphc.passes.rewriting.reasons import reasons, record_join
from graphc.runtime.plan.lives import at_peak, lives
from graphc.runtime.plan.plan import Launch, Range, Record, Wait, all_steps
from tests.small_models import MODELS, loss_fn


class Block(nn.Module):
    def __init__(self) -> None:
        self.norm1, self.norm2 = nn.LayerNorm(16), nn.LayerNorm(16)
        self.attention = nn.MultiheadAttention(16, 2, batch_first=True)
        self.up, self.down = nn.Linear(16, 32), nn.Linear(32, 16)

    def forward(self, x: graphc.Tensor) -> graphc.Tensor:
        h = self.norm1(x)
        x = x + self.attention(h, h, h, need_weights=False)[0]
        return x + self.down(graphc.gelu(self.up(self.norm2(x))))


class Gpt(nn.Module):
    def __init__(self) -> None:
        self.token, self.blocks = nn.Embedding(10, 16), nn.Sequential(Block(), Block())
        self.head = nn.Linear(16, 10)

    def forward(self, x: graphc.Tensor) -> graphc.Tensor:
        h = self.blocks(self.token(graphc.astype(x, "int32")))
        return self.head(graphc.mean(h, axis=1))


KINDS = {**MODELS, "gpt": (Gpt, (4, 8))}


@functools.cache
def program(name: str, device: str = "cuda", streams: int = 2, **options: Any) -> graphc.Program:
    kind, shape = KINDS[name]
    specs = graphc.spec(shape), graphc.spec((shape[0],), "int32")
    update = optim.SGD(lr=0.1, momentum=0.9)
    options |= {"device": device, "streams": streams}
    return graphc.compile(loss_fn, kind(), *specs, update=update, **options)


def check(explanation: Explanation) -> None:
    """It says something, about known topics, in sentences that end well."""
    assert explanation.reasons, explanation.subject
    for reason in explanation.reasons:
        assert reason.topic in TOPICS
        assert len(reason.text) > 10, reason
    assert str(explanation).startswith(explanation.subject)


@pytest.mark.parametrize("name", KINDS)
def test_explain_answers_for_every_node_value_step_and_byte(name: str) -> None:
    subject = program(name)
    for graph in (subject.graph, *bodies(subject.graph)):
        for node in graph.nodes:
            check(subject.explain(node))
        for value in (*graph.inputs, *graph.state, *(v for n in graph.nodes for v in n.outputs)):
            check(subject.explain(value))
        for kernel in kernels_in(graph):
            for part in kernel.body.nodes:
                check(subject.explain(part))
    for step in all_steps(subject.plan.steps):
        check(subject.explain(step))
        for place in (*getattr(step, "reads", ()), *getattr(step, "writes", ())):
            check(subject.explain(place))
    for node in subject.stages["trace"].nodes:
        check(subject.explain(node))
        check(subject.explain(node.where.lines[0]))


@pytest.mark.parametrize("name", KINDS)
def test_a_kernel_says_of_each_node_and_neighbour_why(name: str) -> None:
    subject = program(name)
    for graph in (subject.graph, *bodies(subject.graph)):
        kernels = kernels_in(graph)
        makers = {v: n for n in kernels for v in n.outputs}
        for kernel in kernels:
            found = subject.explain(kernel)
            assert len(found.of("fused")) == len({*kernel.body.nodes})
            sources = {makers[v].op.kernel for v in kernel.inputs if v in makers}
            assert sources <= {reason.about for reason in found.of("apart")}
            assert found.of("tile")
            assert found.of("stream")


def test_every_kernel_but_an_update_has_a_line_of_the_model() -> None:
    for name in KINDS:
        launches = [s for s in all_steps(program(name).plan.steps) if isinstance(s, Launch)]
        for launch in launches:
            known = launch.where.of_update_rule or launch.where.lines
            assert known, launch.kernel
            files = {line.partition(":")[0] for line in launch.where.lines}
            assert files <= {"small_models.py", "test_explain.py"}
        assert any(launch.where.of_update_rule for launch in launches)


def test_an_event_says_who_waits_for_whom_and_why() -> None:
    subject = program("lenet")
    steps = subject.plan.steps
    launched = [i for i, s in enumerate(steps) if isinstance(s, Launch)]
    record = next(
        s
        for i, s in enumerate(steps)
        if isinstance(s, Record) and any(j < i and steps[j].stream == s.stream for j in launched)
    )
    wait = next(s for s in steps if isinstance(s, Wait) and s.event == record.event)
    found = subject.explain(record)
    assert found == subject.explain(wait) == subject.explain(f"e{record.event}")
    order, price = found.of("event")
    before, after = steps[: steps.index(record)], steps[steps.index(wait) :]
    source = [s for s in before if isinstance(s, Launch) and s.stream == record.stream][-1]
    target = next(s for s in after if isinstance(s, Launch) and s.stream == wait.stream)
    assert f"{target.kernel} (step {steps.index(target)}) on s{wait.stream} waits for" in order.text
    assert f"{source.kernel} (step {steps.index(source)}) on s{record.stream}:" in order.text
    assert "it reads %" in order.text
    assert "which" in order.text
    assert price.text == "about 0.5 µs until the other stream sees it, by the model of the device"


def test_fused_and_apart_give_the_rule() -> None:
    subject = program("lenet")
    kernel = next(n for n in kernels_in(subject.graph) if n.op.kernel == "fc1_bias_relu")
    found = subject.explain("fc1_bias_relu")
    assert found.subject == "kernel fc1_bias_relu"
    assert found.lines == kernel.where.lines
    relu = next(n for n in kernel.body.nodes if n.op.name == "relu" or n.op.name == "max")
    why = next(r for r in found.of("fused") if f"%{relu.output.name} " in r.about)
    assert why.text == "it is computed from the sums while they are in registers: an epilogue"
    rule = next(r for r in found.of("apart") if r.about == "fc2_bias")
    assert rule == Reason(
        "apart",
        f"which reads %{relu.output.name}: a contraction reads each element of its operands many "
        "times, so they are in memory",
        "fc2_bias",
    )


def test_what_a_pass_removed_is_named_with_the_pass() -> None:
    subject = program("lenet")
    node = next(n for n in subject.stages["trace"].nodes if n.op.name == "stop_gradient")
    found = subject.explain(node.output.name)
    assert [r.topic for r in found.reasons] == ["gone"]
    assert found.reasons[0].text == (
        "the pass clean left it out, which gives the same results from fewer and simpler nodes; "
        'compile(disable="clean") keeps it'
    )
    assert found.lines == node.where.lines


def test_bytes_name_what_lies_there_in_turn() -> None:
    subject = program("lenet")
    life = max(lives(subject.plan), key=lambda life: life.nbytes)
    found = subject.explain(f"work+{life.start}..{life.stop}")
    assert found == subject.explain(Range("work", life.start, life.stop))
    assert f"%{life.value}" in [reason.about for reason in found.reasons]
    assert subject.explain("work+999999999..1000000000").reasons[0].text == "nothing lies there"


def test_modules_and_lines_list_their_kernels() -> None:
    subject = program("lenet")
    of_module = {reason.about for reason in subject.explain("fc2").reasons}
    assert {"fc2_bias", "fc2_wgrad"} <= of_module
    (line,) = subject.explain("fc2_wgrad").lines
    assert "fc2_bias" in {reason.about for reason in subject.explain(line).reasons}


def test_an_unknown_name_is_an_error_with_what_is_near() -> None:
    with pytest.raises(GraphError) as error:
        program("lenet").explain("fc1_bias_rleu")
    assert str(error.value) == (
        "explain: loss_fn has no 'fc1_bias_rleu': expected the name of a kernel, value, op, loop "
        "or module, e3, work+0..64, file.py:3, or a node, value or step; near it: fc1_bias_relu"
    )
    with pytest.raises(GraphError) as error:
        program("lenet").explain(3.0)
    assert str(error.value) == (
        "explain: expected the name of a kernel, value, op, loop or module, e3, work+0..64, "
        "file.py:3, or a node, value or step, got float"
    )
    with pytest.raises(GraphError, match="has no 'e99'"):
        program("lenet").explain("e99")


def test_memory_names_what_is_alive_at_the_peak() -> None:
    subject = program("lenet", streams=1, memory="search")
    report = subject.memory()
    number, held = at_peak(subject.plan)
    assert (report.step, report.tensors) == (number, tuple(held))
    assert report.launch == all_steps(subject.plan.steps)[number].kernel
    assert report.peak == subject.plan.peak_bytes
    alive = sum(life.nbytes for life in report.tensors)
    assert alive <= report.peak < 1.2 * alive
    for life in report.tensors:
        assert life.first <= number <= life.last
        assert life.where.of_update_rule or life.where.lines
    assert report.advice
    text = str(report)
    assert f"at step {number}, {report.launch} (" in text
    assert all(f"%{life.value}" in text for life in report.tensors[:20])
    assert "small_models.py" in text


def test_without_a_plan_reasons_are_those_of_the_graph() -> None:
    kind, shape = KINDS["mlp"]
    specs = graphc.spec(shape), graphc.spec((shape[0],), "int32")
    subject = graphc.compile(loss_fn, kind(), *specs, device="reference")
    for node in subject.graph.nodes:
        if isinstance(node, KernelNode):
            check(subject.explain(node))
    assert subject.memory().advice == (
        "the reference device plays the graph in NumPy, which plans no memory",
    )


def test_a_relayout_says_for_whom_it_converts() -> None:
    subject = program("lenet", "cpu", 1)
    node = next(n for n in subject.graph.nodes if n.op.name == "relayout")
    launch = next(s for s in subject.plan.steps if s.writes[0].value == node.output.name)
    (what,) = subject.explain(launch).of("what")
    assert what.text.startswith(f"converts {node.inputs[0].type} to {node.output.type}, for ")
    assert what.text.endswith('; compile(disable="layout") keeps all row-major')
    tile = subject.explain("fc2_wgrad").of("tile")[0].text
    assert tile.startswith("a tile of ")
    assert "by the model of cycles the cheapest that" in tile


def test_reasons_are_kept_inside_alone() -> None:
    graph = graphc.trace(lambda x: graphc.exp(graphc.exp(x)), graphc.spec((3,)))
    first, second = graph.nodes
    with reasons() as kept:
        record_join(first, "said inside")
    record_join(second, "said behind it")
    assert kept.joined == {first.output.name: "said inside"}
