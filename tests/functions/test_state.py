"""Functions that read and update state: batch norm's running statistics, dropout's counter."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import numpy as np
import pytest

import graphc
from graphc import functions as f
from graphc import nn
from graphc.ir import Type
from graphc.ir.interpret import evaluate
from graphc.ir.state import StateBuffer
from graphc.trace import Builder, Tensor
from tests.tools import need_module


def parameter(*elements: float) -> SimpleNamespace:
    return SimpleNamespace(state=StateBuffer(np.array(elements, np.float32)))


def state_of(builder: Builder) -> dict[str, np.ndarray]:
    return {name: buffer.numpy() for name, buffer in builder.buffers.items()}


X = np.random.default_rng(0).normal(1, 2, (6, 2, 3, 3)).astype(np.float32)


@pytest.mark.parametrize("calls", [1, 2])
def test_training_moves_the_running_statistics_as_pytorch_does(calls: int) -> None:
    torch = need_module("torch")
    mean, variance = parameter(0.5, -1), parameter(2, 3)
    builder = Builder("train")
    builder.training = True
    with builder.building():
        x = builder.input("x", Type(X.shape))
        for _ in range(calls):
            y = f.batch_norm(x, mean, variance, momentum=0.3)
    graph = builder.graph([y])
    (got,), after = evaluate(graph, [X], state_of(builder))

    running = torch.tensor([0.5, -1.0]), torch.tensor([2.0, 3.0])
    for _ in range(calls):
        expected = torch.nn.functional.batch_norm(
            torch.from_numpy(X), *running, training=True, momentum=0.3
        )
    np.testing.assert_allclose(got, expected.numpy(), rtol=1e-5, atol=1e-6)
    for array, theirs in zip(after.values(), running, strict=True):
        np.testing.assert_allclose(array, theirs.numpy(), rtol=1e-6)


def test_inference_leaves_the_running_statistics_alone() -> None:
    builder = Builder("infer")
    with builder.building():
        f.batch_norm(builder.input("x", Type(X.shape)), parameter(0, 0), parameter(1, 1))
    assert builder.updates == {}


def dropped(p: float, training: bool, seed: int = 0) -> tuple[Builder, Tensor]:
    builder = Builder("dropout")
    builder.training, builder.seed = training, seed
    with builder.building():
        x = builder.input("x", Type((50, 40)))
        return builder, f.dropout(x, p)


def test_dropout_zeroes_its_share_and_scales_the_rest() -> None:
    builder, y = dropped(0.25, training=True)
    x = np.ones((50, 40), np.float32)
    graph = builder.graph([y])
    (first,), after = evaluate(graph, [x], state_of(builder))
    assert set(np.unique(first)) == {np.float32(0), np.float32(1 / 0.75)}
    # 2000 draws: six standard deviations of the share are 6 * sqrt(0.25 * 0.75 / 2000) = 0.058.
    assert abs((first == 0).mean() - 0.25) < 0.058
    assert after["random.step"] == 1
    (second,), _ = evaluate(graph, [x], after)
    assert ((first == 0) != (second == 0)).any()


def test_dropout_depends_on_the_seed_and_on_the_place_in_the_program() -> None:
    x = np.ones((50, 40), np.float32)
    results = []
    for seed in (0, 0, 1):
        builder, y = dropped(0.5, training=True, seed=seed)
        with builder.building():
            again = f.dropout(Tensor(builder.inputs[0], builder), 0.5)
        outputs, _ = evaluate(builder.graph([y, again]), [x], state_of(builder))
        results.append(outputs)
    np.testing.assert_array_equal(results[0], results[1])
    assert (results[0][0] != results[0][1]).any()
    assert (results[0][0] != results[2][0]).any()


@pytest.mark.parametrize(("p", "training"), [(0.5, False), (0.0, True)])
def test_dropout_that_drops_nothing_is_its_input(p: float, training: bool) -> None:
    builder, y = dropped(p, training)
    assert y.value == builder.inputs[0] and not builder.nodes


def test_dropout_of_everything_gives_zeros() -> None:
    builder, y = dropped(1.0, training=True)
    (result,), _ = evaluate(builder.graph([y]), [np.full((50, 40), np.nan, np.float32)])
    np.testing.assert_array_equal(result, np.zeros((50, 40)))


def test_a_parameter_is_read_as_one_state_value() -> None:
    weight = parameter(1, 2)
    builder = Builder("share")
    with builder.building():
        y = f.add(weight, f.multiply(weight, 2))
    assert [str(v.type) for v in builder.state] == ["f32[2]"]
    (result,), _ = evaluate(builder.graph([y]), [], state_of(builder))
    np.testing.assert_array_equal(result, [3, 6])


def test_two_threads_trace_at_once() -> None:
    both, graphs = threading.Barrier(2, timeout=20), {}

    class Scale(nn.Module):
        def __init__(self, factor: float) -> None:
            self.factor = nn.Parameter(np.array(factor, np.float32))

        def forward(self, x: Tensor) -> Tensor:
            both.wait()
            product = x * self.factor
            both.wait()
            return f.exp(product)

    def trace(name: str) -> None:
        model = nn.Sequential(Scale(2.0), Scale(3.0))
        graphs[name] = graphc.trace(model, graphc.spec((3,)))

    threads = [threading.Thread(target=trace, args=(name,)) for name in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert str(graphs["a"]) == str(graphs["b"])
    assert [n.op.name for n in graphs["a"].nodes] == ["multiply", "exp"] * 2
    assert [n.where.module for n in graphs["a"].nodes] == ["0", "0", "1", "1"]
