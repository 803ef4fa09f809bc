"""Every stage of real models, as text and back; what dumps hold."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest

import graphc
from graphc import optim
from graphc.base.target import Target
from graphc.ir import Graph, verify
from graphc.passes.pipeline import AFTER_GRADIENT
from graphc.passes.rewriting.runner import run_passes
from graphc.text import graph_text, large_constants, parse
from tests.small_models import MODELS, loss_fn

RULES = {
    "mlp": optim.Adam(lr=0.01, clip_grad_norm=1.0),
    "lenet": optim.SGD(lr=0.1, momentum=0.9, nesterov=True),
    "norm": optim.AdamW(lr=0.01),
    "recurrent": optim.RMSprop(lr=0.01),
}


def program(name: str) -> graphc.Program:
    """One training step of the model on the reference device, where nothing is built."""
    model, shape = MODELS[name]
    specs = graphc.spec(shape), graphc.spec(shape[:1], "int32")
    return graphc.compile(loss_fn, model(), *specs, update=RULES[name], device="reference")


@pytest.fixture(scope="module", params=MODELS)
def stages(request) -> dict[str, Graph]:
    """The stages of a training step for the reference device, and again for vectors of 16."""
    stages = dict(program(request.param).stages)
    for lanes in (1, 16):
        target = Target("cpu", lanes=lanes)
        run_passes(
            stages["differentiate"],
            target,
            AFTER_GRADIENT,
            lambda name, graph, lanes=lanes: stages.update({f"{name} {lanes}": graph}),
        )
    return stages


def test_every_stage_parses_back(stages):
    assert len(stages) > 12
    for name, graph in stages.items():
        text = graph_text(graph)
        assert parse(text) == graph, name
        assert graph_text(parse(text, large_constants(graph))) == text, name


def test_every_parsed_stage_verifies(stages):
    for graph in stages.values():
        verify(parse(graph_text(graph)))


def test_every_node_says_where_it_comes_from(stages):
    for name, graph in stages.items():
        for node in graph.nodes:
            assert node.where.lines or node.where.derived, (name, str(node.op))


def test_the_traced_text_names_modules_values_and_lines(golden):
    golden("trace_lenet.txt", graph_text(program("lenet").stages["trace"]))


def test_a_dump_holds_stages_and_equal_programs_dump_equal_files(tmp_path):
    for folder in ("a", "b"):
        program("norm").dump(tmp_path / folder)
    names = sorted(p.name for p in (tmp_path / "a").iterdir())
    assert names == sorted(p.name for p in (tmp_path / "b").iterdir())
    assert names[0] == "00-trace.txt"
    assert names[-2:] == ["graph.dot", "graph.json"]
    assert all(re.fullmatch(r"\d\d-\w+\.(txt|diff)", name) for name in names[:-2])
    for name in names:
        text = (tmp_path / "a" / name).read_text()
        assert text == (tmp_path / "b" / name).read_text()
        if name.endswith(".txt"):
            assert graph_text(parse(text)) == text.rstrip("\n")
    fused = next((tmp_path / "a").glob("*-fuse_contract.diff")).read_text()
    assert fused.startswith("--- ")
    assert re.search(r"^\+ +%\S+.* = kernel conv1", fused, re.MULTILINE)
    assert re.search(r"^- +%conv1.conv2d = conv2d\(", fused, re.MULTILINE)
    assert "  =" not in fused  # columns are left out


def test_json_and_dot_have_what_the_graph_and_the_plan_have(tmp_path):
    kind, shape = MODELS["recurrent"]
    specs = graphc.spec(shape), graphc.spec((shape[0],), "int32")
    rule = optim.SGD(lr=0.1)
    step = graphc.compile(loss_fn, kind(), *specs, update=rule, device="cuda", streams=2)
    step.dump(tmp_path)
    graph = json.loads((tmp_path / "graph.json").read_text())
    assert [n["outputs"][0]["name"] for n in graph["nodes"]] == [
        n.outputs[0].name for n in step.graph.nodes
    ]
    kernels = [n for n in graph["nodes"] if n["op"] == "kernel"]
    assert all(n["body"]["nodes"] for n in kernels)
    assert {line.split(":")[0] for n in kernels for line in n["lines"]} == {"small_models.py"}
    plan = json.loads((tmp_path / "plan.json").read_text())
    assert [(s["step"], s["stream"]) for s in plan["steps"]] == [
        (type(s).__name__.lower(), s.stream) for s in step.plan.steps
    ]
    assert any(s["step"] == "loop" and s["steps"] for s in plan["steps"])
    assert plan["kernels"].keys() == step.plan.kernels.keys()
    dot = (tmp_path / "graph.dot").read_text()
    assert dot.startswith('digraph "loss_fn" {') and dot.endswith("}\n")
    assert dot.count("{") == dot.count("}")
    assert all(
        f'"{n.op.kernel}\\n' in dot
        for n in step.graph.nodes
        if n.op.name == "kernel" and n.where.lines
    )


def test_graphc_dump_dumps_every_compile(clean_environment, tmp_path):
    clean_environment.setenv("GRAPHC_DUMP", str(tmp_path))
    program("mlp")
    assert (tmp_path / "loss_fn" / "00-trace.txt").read_text().startswith("graph loss_fn\n")


def test_a_stage_that_was_parsed_computes_the_same():
    from graphc.ir.interpret import evaluate

    step = program("lenet")
    generator = np.random.default_rng(0)
    inputs = [generator.random(v.type.shape).astype(v.type.numpy_dtype) for v in step.graph.inputs]
    state = step.state_dict()
    parsed = parse(graph_text(step.graph), large_constants(step.graph))
    (expected,), _ = evaluate(step.graph, inputs, state)
    (got,), _ = evaluate(parsed, inputs, state)
    assert np.array_equal(expected, got)
