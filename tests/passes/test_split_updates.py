"""One launch for all parameters, split: each large one updated by itself, to the same bits."""

from __future__ import annotations

from typing import Any

import numpy as np

import graphc
from graphc import nn, optim
from graphc.ir import Graph, verify
from graphc.ir.interpret import evaluate
from graphc.passes.fuse.split_updates import split_updates


def updates_of(graph: Graph) -> list[Any]:
    new = {value for _, value in graph.updates}
    return [n for n in graph.nodes if new.intersection(n.outputs)]


def trained(rule: Any) -> Graph:
    def loss_fn(model: Any, x: Any, y: Any) -> Any:
        return graphc.cross_entropy(model(x), y)

    model = nn.Sequential(nn.Linear(400, 60), nn.ReLU(), nn.Linear(60, 40))
    x, y = graphc.spec((20, 400)), graphc.spec((20,), "int32")
    return graphc.compile(loss_fn, model, x, y, update=rule, device="cuda").graph


def test_large_parameters_get_launches_of_their_own_and_the_rest_stays_together() -> None:
    graph = trained(optim.Adam(lr=0.01))
    split = split_updates(graph)
    verify(split)
    weights = [n for n in updates_of(split) if len(n.outputs) == 3 and n.outputs[0].type.size > 1]
    assert sorted(n.outputs[0].type.size for n in weights) == [2400, 24000]
    assert [len(n.outputs) for n in updates_of(graph) if len(n.outputs) > 3] == [12]
    assert sum(len(n.outputs) for n in updates_of(split)) == sum(
        len(n.outputs) for n in updates_of(graph)
    )


def test_the_new_state_is_the_same() -> None:
    graph = trained(optim.SGD(lr=0.01, momentum=0.9, clip_grad_norm=0.5))
    split = split_updates(graph)
    assert len(split.nodes) > len(graph.nodes)
    dice = np.random.RandomState(0)
    x = dice.standard_normal((20, 400)).astype(np.float32)
    inputs = [x, dice.randint(0, 40, 20).astype(np.int32)]
    state = {
        v.name: dice.uniform(0.1, 1, v.type.shape).astype(v.type.numpy_dtype) for v in graph.state
    }
    for a, b in zip(
        evaluate(graph, inputs, state)[1].values(),
        evaluate(split, inputs, state)[1].values(),
        strict=True,
    ):
        np.testing.assert_array_equal(a, b)


def test_one_parameter_is_left_alone() -> None:
    def loss_fn(model: Any, x: Any) -> Any:
        return graphc.mean(model(x))

    rule, x = optim.SGD(lr=0.1), graphc.spec((4, 300))
    model = nn.Linear(300, 50, bias=False)
    graph = graphc.compile(loss_fn, model, x, update=rule, device="cuda").graph
    assert split_updates(graph) is graph
