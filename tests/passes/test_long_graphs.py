"""What compiling takes grows with a graph, not with its square."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

import graphc
from graphc import nn, optim
from graphc.base.target import Target
from tests.meaning.models import without_kernels


class Layers(nn.Module):
    def __init__(self, count: int) -> None:
        self.weights = [nn.Parameter(np.ones((8, 8), np.float32)) for _ in range(count)]

    def forward(self, x: Any) -> Any:
        for weight in self.weights:
            x = graphc.tanh(x @ weight)
        return graphc.mean(x * x)


def unrolled(x: Any) -> Any:
    weight, state, states = np.ones((8, 8), np.float32), x, []
    for _ in range(80):
        gate = graphc.sigmoid(state @ weight + x)
        state = gate * state + (1 - gate) * graphc.tanh(state)
        states.append(state)
    return graphc.sum(graphc.stack(states))


def passes_of(function: Any, *arguments: Any, **options: Any) -> tuple[float, int]:
    """CPU seconds of tracing and all passes, and the nodes of the largest graph."""
    begin = time.process_time()
    with without_kernels():
        program = graphc.compile(function, *arguments, device="cpu", streams=1, **options)
    seconds = time.process_time() - begin
    return seconds, max(len(graph.nodes) for graph in program.stages.values())


@pytest.mark.slow
def test_passes_of_deep_networks_take_a_millisecond_for_each_node() -> None:
    rule = optim.SGD(lr=0.1)
    seconds, nodes = passes_of(
        lambda model, x: model(x), Layers(300), graphc.spec((4, 8)), update=rule
    )
    assert nodes > 3000 and seconds < 0.001 * nodes


@pytest.mark.slow
def test_passes_of_unrolled_loops_take_a_millisecond_for_each_node() -> None:
    seconds, nodes = passes_of(graphc.grad(unrolled), graphc.spec((4, 8)))
    assert nodes > 2500 and seconds < 0.001 * nodes


@pytest.mark.slow
def test_a_kernel_of_many_reductions_is_printed_in_seconds() -> None:
    def chain(x: Any) -> Any:
        for _ in range(40):
            x = graphc.softmax(x * 1.5 + 0.25, axis=1)
        return x

    begin = time.process_time()
    program = graphc.compile(chain, graphc.spec((4, 8)), device="reference")
    graphc.program.make_plan_of(program.graph, Target("cpu", lanes=16), streams=1)
    assert time.process_time() - begin < 4
