"""Parameters as kernels want them: converted once for each change, by whoever makes it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import graphc
from graphc import nn, optim
from graphc.ir.state import PackedBuffer
from graphc.ir.sum_order import LANES
from graphc.passes.layout import channels

WIDTH = LANES
X = np.random.default_rng(0).standard_normal((1, 3, 8, 8)).astype(np.float32)


class Net(nn.Module):
    def __init__(self) -> None:
        self.first = nn.Conv2d(3, WIDTH, 3, padding=1)
        self.second = nn.Conv2d(WIDTH, 2 * WIDTH, 3, padding=1)

    def forward(self, x: Any) -> Any:
        return self.second(graphc.relu(self.first(x)))


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> Net:
    """One whose channels lie in the lanes, though its images are small."""
    monkeypatch.setattr(channels, "ROW_SHARE", 1e-6)
    graphc.seed(0)
    return Net()


def program(model: Net, device: str = "cpu", **options: Any) -> Any:
    return graphc.compile(model, graphc.spec(X.shape), device=device, **options)


def packed(infer: Any) -> list[PackedBuffer]:
    """The packed state of a program on the CPU."""
    return [b for b in infer._executable._state if isinstance(b, PackedBuffer)]


def assert_up_to_date(model: Net, infer: Any) -> None:
    np.testing.assert_allclose(infer(X), program(model, "reference")(X), rtol=1e-5, atol=1e-5)


def test_no_call_converts_weights(model: Net) -> None:
    infer = program(model)
    before = len(infer.graph.nodes)
    assert len(packed(infer)) == 2 and len(infer.kernels) == before - 2
    assert sorted(infer.state_dict()) == sorted(model.state_dict())
    assert_up_to_date(model, infer)


def test_changed_weights_are_converted_before_the_next_call(model: Net) -> None:
    infer = program(model)

    def loss(model: Net, x: Any) -> Any:
        return graphc.mean(model(x) ** 2)

    rule = optim.SGD(lr=0.5)
    train = graphc.compile(loss, model, graphc.spec(X.shape), update=rule, device="cpu")
    first = infer(X)
    train(X)
    assert np.abs(infer(X) - first).max() > 1e-3
    assert_up_to_date(model, infer)
    model.load_state_dict({name: -2 * a for name, a in model.state_dict().items()})
    assert_up_to_date(model, infer)
    model.second.weight.assign(np.ones_like(model.second.weight.numpy()))
    assert_up_to_date(model, infer)


def test_unchanged_weights_are_not_converted_again(
    model: Net, monkeypatch: pytest.MonkeyPatch
) -> None:
    infer = program(model)
    infer(X)
    versions = [b.version for b in packed(infer)]
    monkeypatch.setattr(np, "moveaxis", None)
    infer(X)
    assert [b.version for b in packed(infer)] == versions


def test_programs_share_one_packed_form(model: Net) -> None:
    one, other = program(model), program(model, streams=2)
    assert packed(one) == packed(other)


def test_a_program_that_updates_a_weight_converts_it_itself(model: Net) -> None:
    def loss(model: Net, x: Any) -> Any:
        return graphc.mean(model(x) ** 2)

    def train(what: Any) -> Any:
        rule = optim.SGD(lr=0.5)
        spec = graphc.spec(X.shape)
        return graphc.compile(loss, model, spec, update=rule, train=what, device="cpu")

    assert not packed(train(model))
    assert [b.source for b in packed(train(model.second))] == [model.first.weight.state]
