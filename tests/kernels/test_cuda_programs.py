"""Whole training steps as CUDA text, played on the host kernel by kernel."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import graphc
from graphc import nn, optim
from graphc.ir import Graph, Value
from graphc.kernels.lower import lower
from graphc.ops.base import Array
from graphc.ops.fused import Fused
from graphc.program import Program
from tests.kernels.cuda_harness import TARGET, assert_close
from tests.sim.playing import Played, simulator
from tests.tools import need_command


class LeNet(nn.Module):
    def __init__(self) -> None:
        self.conv1, self.conv2 = nn.Conv2d(1, 6, 5), nn.Conv2d(6, 10, 3)
        self.fc1, self.fc2 = nn.Linear(160, 50), nn.Linear(50, 10)

    def forward(self, x: Any) -> Any:
        x = graphc.max_pool2d(graphc.relu(self.conv1(x)), 2)
        x = graphc.max_pool2d(graphc.relu(self.conv2(x)), 2)
        return self.fc2(graphc.relu(self.fc1(graphc.flatten(x))))


class NormalisedCnn(nn.Module):
    def __init__(self) -> None:
        self.conv1, self.norm = nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8)
        self.conv2, self.drop = nn.Conv2d(8, 6, 3, stride=2), nn.Dropout(0.3)
        self.fc = nn.Linear(96, 10)

    def forward(self, x: Any) -> Any:
        x = graphc.relu(self.norm(self.conv1(x)))
        x = graphc.avg_pool2d(graphc.relu(self.conv2(x)), 1)
        return self.fc(self.drop(graphc.flatten(x)))


class Mlp(nn.Module):
    def __init__(self) -> None:
        self.fc1, self.fc2 = nn.Linear(40, 50), nn.Linear(50, 10)

    def forward(self, x: Any) -> Any:
        return self.fc2(graphc.gelu(self.fc1(x)))


def loss_fn(model: nn.Module, x: Any, y: Any) -> Any:
    return graphc.cross_entropy(model(x), y)


MODELS = {
    "lenet": (LeNet, (6, 1, 24, 24), optim.SGD(lr=0.1, momentum=0.9)),
    "normalised_cnn": (NormalisedCnn, (4, 3, 9, 9), optim.SGD(lr=0.1, weight_decay=0.01)),
    "mlp": (Mlp, (8, 40), optim.Adam(lr=0.01)),
}


@pytest.fixture(params=MODELS)
def program(request: pytest.FixtureRequest) -> Program:
    model, shape, rule = MODELS[request.param]
    graphc.seed(0)
    labels = graphc.spec(shape[:1], "int32")
    return graphc.compile(loss_fn, model(), graphc.spec(shape), labels, update=rule, device="cuda")


def values(graph: Graph) -> dict[Value, Array]:
    """Inputs and state: small, and positive where a moment or a variance must be."""
    random = np.random.default_rng(0)
    return {
        v: np.abs(random.standard_normal(v.type.shape) * 0.3).astype(v.type.numpy_dtype)
        if v.type.dtype == "f32"
        else random.integers(0, 10, v.type.shape).astype(v.type.numpy_dtype)
        for v in (*graph.inputs, *graph.state)
    }


def test_every_kernel_of_a_training_step_means_what_its_body_means(program):
    graph = program.graph
    nodes = [n for n in graph.nodes if isinstance(n.op, Fused)]
    need_command("g++", "clang++")
    target = replace(TARGET, draws_tickets=True)
    played = Played(simulator(check=True), nodes, make=lambda node: lower(node, target))
    assert {n: k.source for n, k in played.kernels.items()} == program.kernels
    known = values(graph)
    for node in graph.nodes:
        arrays = [known[v] for v in node.inputs]
        expected = node.op.reference(*arrays)
        results = played.run(node, arrays) if isinstance(node.op, Fused) else expected
        length = max(a.size for a in arrays)
        for got, want in zip(results, expected, strict=True):
            assert_close(got, want, length)
        known.update(zip(node.outputs, results, strict=True))
    assert all(np.isfinite(known[new]).all() for _, new in graph.updates)


def test_all_parameters_are_updated_by_one_functor_in_one_launch(program):
    (text,) = (s for name, s in program.kernels.items() if name.endswith("_update"))
    functors = re.findall(r"^struct Part\d+ {\n(.*?)^  }", text, re.MULTILINE | re.DOTALL)
    assert sum("weight_data" in functor for functor in functors) == 1
    assert text.count("__global__") == 1
