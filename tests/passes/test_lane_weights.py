"""Large weights of loops: read by whole cache lines."""

import sys

import numpy as np

import graphc
from graphc import optim
from graphc.nn import LSTM
from graphc.ops.loops.scan import Scan
from tests.passes.meaning import assert_same_meaning


def program(size, steps=2, layers=1):
    def loss(model, x):
        return graphc.sum(model(x)[0] ** 2)

    graphc.seed(0)
    return graphc.compile(
        loss,
        LSTM(size, size, num_layers=layers),
        graphc.spec((steps, 16, size)),
        update=optim.SGD(lr=0.1),
        device="cpu",
    )


def weight_layouts(graph):
    """Those of the constants of the backward loop."""
    backward = [n.op for n in graph.nodes if isinstance(n.op, Scan) and n.op.reverse]
    return [v.type.layout.axis for op in backward for v in op.constants]


def test_the_weight_of_a_backward_step_lies_in_lanes_only_if_it_is_large(monkeypatch, unbuilt):
    small = program(16).stages["lane_weights"]
    assert 0 not in weight_layouts(small)
    monkeypatch.setattr(sys.modules["graphc.passes.layout.lane_weights"], "LEAST_CACHES", 0)
    large = program(16).stages
    assert 0 in weight_layouts(large["lane_weights"])
    assert_same_meaning(large["layout"], large["lane_weights"])


def test_a_large_batch_reads_its_weight_in_lanes_too(monkeypatch, unbuilt):
    """The gradient of what enters the second layer: 16 steps of 16."""
    monkeypatch.setattr(sys.modules["graphc.passes.layout.lane_weights"], "LEAST_CACHES", 0)
    lanes = {}
    for steps in (8, 16):
        graph = program(16, steps, layers=2).stages["lane_weights"]
        products = [n for n in graph.nodes if getattr(n.op, "template", "") == "contract"]
        dx = [n for n in products if n.output.type.shape == (16 * steps, 16)]
        lanes[steps] = [n.inputs[1].type.layout.axis for n in dx]
    assert lanes == {8: [None], 16: [0]}


def test_training_is_the_same_either_way(monkeypatch):
    x = np.random.default_rng(0).standard_normal((2, 16, 16)).astype(np.float32)
    losses = []
    for least in (0, 2**30):
        monkeypatch.setattr(sys.modules["graphc.passes.layout.lane_weights"], "LEAST_CACHES", least)
        train = program(16)
        losses.append([float(train(x)) for _ in range(3)])
    np.testing.assert_allclose(*losses, rtol=1e-5)
