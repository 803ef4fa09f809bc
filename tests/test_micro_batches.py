"""accumulate=: gradients of micro-batches, added up in one program."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import graphc
from graphc import nn, optim
from graphc.base.errors import GraphError
from graphc.ir import Array
from graphc.runtime.plan.plan import Loop, all_steps

DEVICES = ("reference", "cpu", "sim")
RNG = np.random.default_rng(0)
X, Y = (RNG.standard_normal((12, 8)).astype(np.float32) for _ in range(2))
SPECS = graphc.spec((12, 8)), graphc.spec((12, 8))


def net(*middle: Any) -> Any:
    graphc.seed(0)
    return nn.Sequential(nn.Linear(8, 16), *middle, nn.Tanh(), nn.Linear(16, 8))


def error_of(model: Any, x: Any, y: Any) -> Any:
    return graphc.mse_loss(model(x), y)


def trained(make: Callable[[], Any], steps: int = 3, **options: Any) -> tuple[list[float], Any]:
    """The losses of some steps, and the trained model."""
    model = make()
    step = graphc.compile(error_of, model, *SPECS, update=optim.Adam(lr=0.01), **options)
    return [float(step(X, Y)) for _ in range(steps)], model


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("parts", [3, 12])
def test_micro_batches_give_the_step_of_the_batch(device: str, parts: int) -> None:
    whole, model = trained(net, device=device)
    cut, other = trained(net, device=device, accumulate=parts)
    np.testing.assert_allclose(cut, whole, rtol=1e-5)
    for name, array in model.state_dict().items():
        np.testing.assert_allclose(other.state_dict()[name], array, atol=2e-5, err_msg=name)


def test_gradients_are_added_in_the_order_of_the_micro_batches() -> None:
    """Bit for bit: 0 + g0 + g1 + g2, each of a loss divided by their number."""
    model = nn.Linear(8, 8)
    summed = graphc.compile(
        error_of, model, *SPECS, gradients=True, accumulate=4, device="reference"
    )
    part = graphc.spec((3, 8)), graphc.spec((3, 8))
    quarter = graphc.compile(
        lambda m, x, y: error_of(m, x, y) * 0.25, model, *part, gradients=True, device="reference"
    )
    loss, found = summed(X, Y)
    pieces = [quarter(X[i : i + 3], Y[i : i + 3]) for i in range(0, 12, 3)]
    for name in found:
        total = np.zeros_like(found[name])
        for _, slopes in pieces:
            total = total + slopes[name]
        np.testing.assert_array_equal(found[name], total)
    np.testing.assert_allclose(loss, sum(4 * p for p, _ in pieces) / 4, rtol=1e-6)


@pytest.mark.parametrize("device", DEVICES)
def test_batch_norm_sees_each_micro_batch(device: str) -> None:
    """Its statistics are those of calls with the micro-batches, one after the other."""
    model = net(nn.BatchNorm1d(16))
    step = graphc.compile(
        error_of, model, *SPECS, update=optim.SGD(lr=0.1), accumulate=3, device=device
    )
    step(X, Y)
    other = net(nn.BatchNorm1d(16))
    call = graphc.compile(other, graphc.spec((4, 8)), training=True, device=device)
    for i in range(0, 12, 4):
        call(X[i : i + 4])
    for name in ("running_mean", "running_var", "num_batches_tracked"):
        expected = other.state_dict()[f"1.{name}"]
        np.testing.assert_allclose(model.state_dict()[f"1.{name}"], expected, rtol=1e-5)


def test_random_ops_draw_for_each_micro_batch() -> None:
    def dropped(model: Any, x: Any) -> Any:
        y = graphc.dropout(x, 0.5, training=True)
        return graphc.sum(model.weight) + graphc.mean(y), y

    step = graphc.compile(
        dropped,
        nn.Linear(8, 8),
        SPECS[0],
        update=optim.SGD(lr=0.1),
        accumulate=4,
        seed=3,
        device="reference",
    )
    first, second = (step(np.ones_like(X))[1] for _ in range(2))
    masks = [p > 0 for p in (*first.reshape(4, 3, 8), *second.reshape(4, 3, 8))]
    assert all((a != b).any() for i, a in enumerate(masks) for b in masks[:i])


def test_results_are_those_of_the_batch() -> None:
    def all_kinds(model: Any, x: Any, y: Any) -> Any:
        predicted = model(x)
        right = predicted > y
        loss = graphc.mse_loss(predicted, y)
        return loss, {"y": predicted, "right": graphc.sum(right), "any": graphc.any(right)}

    whole, cut = (
        graphc.compile(
            all_kinds, net(), *SPECS, update=optim.SGD(lr=0.1), accumulate=n, device="reference"
        )(X, Y)
        for n in (1, 3)
    )
    np.testing.assert_allclose(cut[0], whole[0], rtol=1e-6)
    np.testing.assert_allclose(cut[1]["y"], whole[1]["y"], atol=1e-6)
    assert cut[1]["right"] == whole[1]["right"] and cut[1]["any"] == whole[1]["any"]


class Averaged(nn.Module):
    """A buffer that forward assigns, and reads again."""

    def __init__(self) -> None:
        self.fc, self.mean = nn.Linear(8, 8), nn.Buffer(np.zeros(8, np.float32))

    def forward(self, x: Any) -> Any:
        self.mean = 0.5 * self.mean + graphc.mean(x, 0)
        return self.fc(x) - self.mean


@pytest.mark.parametrize("device", DEVICES)
def test_buffers_are_carried_from_one_micro_batch_to_the_next(device: str) -> None:
    model = Averaged()
    step = graphc.compile(
        error_of, model, *SPECS, update=optim.SGD(lr=0.1), accumulate=3, device=device
    )
    step(X, Y)
    mean: Array = np.zeros(8, np.float32)
    for i in range(0, 12, 4):
        mean = 0.5 * mean + X[i : i + 4].mean(0)
    np.testing.assert_allclose(model.mean.numpy(), mean, atol=1e-6)


def test_loops_and_samples_work_in_a_micro_batch() -> None:
    def loss(model: Any, x: Any, y: Any) -> Any:
        each = graphc.vmap(lambda a, b: error_of(model, a, b))(x, y)
        h, _ = graphc.scan(lambda h, e: (graphc.tanh(model(h)) + e, None), x * 0, x[None])
        return graphc.mean(each) + graphc.mean(h**2)

    found = []
    for parts in (1, 4):
        graphc.seed(0)
        step = graphc.compile(
            loss, nn.Linear(8, 8), *SPECS, update=optim.SGD(lr=0.1), accumulate=parts, device="cpu"
        )
        found.append([float(step(X, Y)) for _ in range(3)])
    np.testing.assert_allclose(found[1], found[0], rtol=1e-5)


def test_work_memory_is_that_of_a_micro_batch() -> None:
    """A deep narrow net of many samples: nothing but sums of gradients is kept."""
    layers = [layer for _ in range(8) for layer in (nn.Linear(32, 32), nn.Tanh())]
    specs = graphc.spec((512, 32)), graphc.spec((512, 32))
    plans = [
        graphc.compile(
            error_of,
            nn.Sequential(*layers),
            *specs,
            update=optim.SGD(lr=0.1),
            accumulate=parts,
            streams=1,
            device="cpu",
        ).plan
        for parts in (1, 8)
    ]
    assert plans[1].peak_bytes < 0.45 * plans[0].peak_bytes
    loops = [s for s in all_steps(plans[1].steps) if isinstance(s, Loop)]
    assert len(loops) == 1 and loops[0].count == 8


def test_bits_depend_on_neither_streams_nor_threads() -> None:
    found = []
    for streams, threads in ((1, 1), (3, 2)):
        losses, model = trained(
            lambda: net(nn.BatchNorm1d(16)),
            accumulate=3,
            mixed="bfloat16",
            device="cpu",
            streams=streams,
            threads=threads,
        )
        found.append((losses, model.state_dict()))
    assert found[0][0] == found[1][0]
    for name, array in found[0][1].items():
        np.testing.assert_array_equal(array, found[1][1][name], err_msg=name)


def message(**options: Any) -> str:
    with pytest.raises(GraphError) as caught:
        graphc.compile(error_of, nn.Linear(8, 8), *SPECS, **options)
    return str(caught.value).partition(" (test_")[0]


def test_what_does_not_fit_is_named() -> None:
    rule = optim.SGD(lr=0.1)
    assert message(accumulate=5, update=rule) == (
        "accumulate=5: expected a batch of 5 equal parts, got x 12, y 12"
    )
    assert message(accumulate=0, update=rule) == (
        "accumulate: expected a number of micro-batches from 1 up, got 0"
    )
    assert message(accumulate=2) == (
        "accumulate: is of use with update= or gradients=, neither is given"
    )
    with pytest.raises(GraphError) as caught:
        graphc.compile(
            lambda m, x, mask: error_of(m, x, x) + graphc.sum(mask),
            nn.Linear(8, 8),
            SPECS[0],
            graphc.spec((8, 8)),
            update=rule,
            accumulate=2,
        )
    assert str(caught.value).startswith(
        "accumulate=2: expected one size of first axes, the batch, got x 12, mask 8"
    )
    with pytest.raises(GraphError) as caught:
        graphc.compile(lambda m: graphc.sum(m.weight), nn.Linear(8, 8), update=rule, accumulate=2)
    assert str(caught.value).startswith(
        "accumulate=2: expected arrays whose first axis is the batch, got none"
    )
    with pytest.raises(GraphError) as caught:
        graphc.compile(lambda m, x: graphc.sum(x), nn.Linear(8, 8), SPECS[0], gradients=True)
    assert str(caught.value).startswith(
        "the loss depends on none of the trainable parameters of the arguments"
    )
