"""Weights in lanes: those of products that would transpose them, and large ones of loops."""

import sys

import numpy as np
import pytest

import graphc
from graphc import nn, optim
from graphc.ir.interpret import evaluate
from graphc.nn import LSTM
from graphc.ops.loops.scan import Scan, bodies
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


def layouts_read(graph):
    """The layouts of the weights that products read, loops included."""
    nodes = [n for g in (graph, *bodies(graph)) for n in g.nodes]
    products = [n for n in nodes if getattr(n.op, "template", "") == "contract"]
    return [n.inputs[1].type.layout.axis for n in products]


def test_a_weight_that_no_call_changes_is_laid_out_once(unbuilt):
    model = nn.Linear(20, 37)
    forward = graphc.compile(model, graphc.spec((5, 20)), device="cpu")
    assert layouts_read(forward.graph) == [0]
    assert len(forward.plan.steps) == 1
    specs = graphc.spec((5, 20)), graphc.spec((5, 37))
    update = optim.SGD(lr=0.1)
    step = graphc.compile(lambda m, x, y: graphc.mse_loss(m(x), y), model, *specs, update=update)
    assert 0 not in layouts_read(step.graph)


def test_few_features_do_not_fill_a_register(unbuilt):
    forward = graphc.compile(nn.Linear(20, 7), graphc.spec((5, 20)), device="cpu")
    assert layouts_read(forward.graph) == [None]


def test_a_loop_reads_its_weights_in_lanes_if_gates_are_whole_blocks(unbuilt):
    layouts = {}
    for hidden in (20, 32):
        forward = graphc.compile(LSTM(8, hidden), graphc.spec((3, 2, 8)), device="cpu")
        (loop,) = (n.op.body for n in forward.graph.nodes if isinstance(n.op, Scan))
        layouts[hidden] = layouts_read(loop)
    assert layouts == {20: [None], 32: [0]}


@pytest.mark.parametrize("isa", ["sse2", "avx2", "avx512"])
def test_products_of_laid_out_weights_are_those_of_the_reference(isa, monkeypatch):
    monkeypatch.setenv("GRAPHC_ISA", isa)
    graphc.seed(0)
    model = nn.Sequential(nn.Linear(17, 37), nn.ReLU(), nn.Linear(37, 10))
    x = np.random.default_rng(0).standard_normal((5, 17)).astype(np.float32)
    forward = graphc.compile(model, x, device="cpu", training=False)
    meaning = graphc.compile(model, x, device="reference", training=False)
    for _ in range(2):
        (want,), _ = evaluate(forward.graph, [x], forward.state_dict())
        assert np.array_equal(forward(x), want)
        np.testing.assert_allclose(want, meaning(x), rtol=1e-4, atol=1e-5)
        weights = {name: 2 * array for name, array in model.state_dict().items()}
        model.load_state_dict(weights)  # changes what is laid out
