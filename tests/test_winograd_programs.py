"""compile(precision="winograd"): where a program takes it, what it says of that, and how near it is
to direct sums."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import graphc
from graphc import nn, optim
from graphc.ir.sum_order import LANES
from tests.models.images import resnet
from tests.tools import first_quick


class Net(nn.Module):
    """Convolutions with and without whole registers of channels, with stride 1 and 2."""

    def __init__(self) -> None:
        self.first = nn.Conv2d(3, 2 * LANES, 3, padding=1)
        self.second = nn.Conv2d(2 * LANES, 4 * LANES, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(4 * LANES)
        self.third = nn.Conv2d(4 * LANES, 4 * LANES, 3, padding=1)
        self.odd = nn.Conv2d(4 * LANES, 2 * LANES + 3, 3, padding=1)
        self.strided = nn.Conv2d(4 * LANES, 2 * LANES, 3, stride=2)

    def forward(self, x: Any) -> Any:
        y = self.norm(self.second(graphc.relu(self.first(x))))
        y = graphc.relu(y)
        y = graphc.relu(self.third(y) + y)
        means = [graphc.mean(z, (2, 3)) for z in (self.odd(y), self.strided(y))]
        return graphc.concat(means, 1)


def loss_fn(model: Any, x: Any, y: Any) -> Any:
    return graphc.cross_entropy(model(x), y)


def kernels(program: Any) -> list[str]:
    return [n for n in program.plan.notes if "Winograd" in n]


def compiled(model: Any, batch: int, size: int, precision: str, **options: Any) -> Any:
    """The program of a training step."""
    specs = graphc.spec((batch, 3, size, size)), graphc.spec((batch,), "int32")
    settings = {"device": "cpu", "precision": precision, "streams": 1, **options}
    return graphc.compile(loss_fn, model, *specs, update=optim.SGD(lr=0.05), **settings)


def train(
    model: Any, batch: int, size: int, precision: str, **options: Any
) -> tuple[list[float], dict[str, Any], Any]:
    """Three losses, the state behind them, and the program."""
    random = np.random.default_rng(0)
    x = random.standard_normal((batch, 3, size, size)).astype(np.float32)
    y = random.integers(0, 10, batch).astype(np.int32)
    step = compiled(model, batch, size, precision, **options)
    return [float(step(x, y)) for _ in range(3)], step.state_dict(), step


SIZES = [(3, 14), (7 * LANES // 16, 11), (1, 29)]
"""Images of a batch, too few to fill registers, and their rows and columns."""


@pytest.mark.parametrize(("batch", "size"), SIZES)
def test_it_is_a_choice_of_kernels(batch: int, size: int, unbuilt: None) -> None:
    direct, fast = (compiled(Net(), batch, size, p) for p in ("float32", "winograd"))
    assert not kernels(direct)
    assert len(kernels(fast)) >= 3, "two forward, and gradients of data"
    bound = r"\w+: Winograd's F\((2 x 2|4 x 4), 3 x 3\), error at most (64|564) \* \d+ \* .*"
    assert all(re.fullmatch(bound, note) for note in kernels(fast))
    # Whose sums have an order of their own, which the graph does not state.
    stated = re.sub(r" order='[ck],r,s'", "", str(direct.graph))
    assert re.sub(r" order='[ck],r,s'", "", str(fast.graph)) == stated


@pytest.mark.parametrize("sizes", first_quick(2, SIZES), ids=str)
def test_training_is_as_with_direct_sums(sizes: tuple[int, int]) -> None:
    """The reference's sums, so that only one program is built for each size."""

    def one(precision: str, device: str) -> tuple[list[float], dict[str, Any], Any]:
        graphc.seed(0)
        return train(Net(), *sizes, precision, device=device)

    (want, exact, _), (got, state, fast) = one("float32", "reference"), one("winograd", "cpu")
    assert kernels(fast)
    np.testing.assert_allclose(got, want, rtol=1e-4)
    for name, value in exact.items():
        np.testing.assert_allclose(state[name], value, rtol=1e-3, atol=1e-4, err_msg=name)


def test_results_have_the_same_bits_for_all_threads_and_streams() -> None:
    def one(**options: int) -> tuple[list[float], dict[str, Any], Any]:
        graphc.seed(0)
        return train(Net(), 3, 14, "winograd", **options)

    losses, state, program = one(threads=1)
    assert kernels(program)
    for options in ({"threads": 2}, {"threads": 2, "streams": 3}):
        other, values, _ = one(**options)
        assert other == losses
        for name, value in state.items():
            np.testing.assert_array_equal(values[name], value, err_msg=name)


@pytest.mark.slow
def test_a_small_resnet_trains_as_with_direct_sums() -> None:
    def one(precision: str) -> tuple[list[float], dict[str, Any], Any]:
        graphc.seed(0)
        return train(resnet(nn, graphc, width=2 * LANES), 4, 64, precision)

    (want, _, _), (got, _, fast) = one("float32"), one("winograd")
    assert len(kernels(fast)) >= 4
    np.testing.assert_allclose(got, want, rtol=1e-3, atol=2e-4)


@pytest.mark.parametrize("device", ["sim", "reference"])
def test_other_devices_compute_as_with_float32(device: str) -> None:
    x = np.random.default_rng(0).standard_normal((2, LANES, 5, 5)).astype(np.float32)
    results = []
    for precision in ("float32", "winograd"):
        graphc.seed(0)
        model = nn.Conv2d(LANES, LANES, 3)
        program = graphc.compile(model, graphc.spec(x.shape), device=device, precision=precision)
        results.append(program(x))
    np.testing.assert_array_equal(*results)
