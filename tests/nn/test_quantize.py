"""`nn.quantize`: copies whose Linear layers multiply 8-bit integers."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import graphc
from graphc import nn
from tests.nn.running import random
from tests.tools import need_command

DEVICES = ("reference", "cpu", "sim")


class Net(nn.Module):
    def __init__(self) -> None:
        self.embed = nn.Embedding(7, 32)
        self.body = [nn.Linear(32, 48), nn.ReLU(), nn.Linear(48, 32, bias=False)]
        self.odd, self.head = nn.Linear(33, 6), nn.Linear(32, 5)
        self.again = self.head

    def forward(self, x: Any) -> Any:
        y = self.embed(x)
        for layer in self.body:
            y = layer(y)
        odd = self.odd(graphc.concat([y, y[..., :1]], -1))
        return self.again(y) + self.head(y), odd


def rounded(x: np.ndarray) -> np.ndarray:
    """Rows in 127ths of their largest magnitude, in double precision."""
    scale = np.maximum(np.abs(x).max(-1, keepdims=True), 1e-30) / 127
    return np.rint(x / scale) * scale


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("shape", [(64,), (1, 64), (30, 64), (3, 7, 64)])
def test_a_layer_is_off_by_its_bound_at_most(shape: tuple[int, ...], device: str) -> None:
    need_command("g++", "clang++")
    linear = nn.Linear(64, 40)
    x = random(*shape, seed=1)
    program = graphc.compile(nn.quantize(linear), graphc.spec(x.shape), device=device)
    y, w, b = program(x), linear.weight.numpy(), linear.bias.numpy()
    exact = x.astype(np.float64) @ w.T.astype(np.float64) + b
    largest = np.abs(x).max(-1)[..., None] * np.abs(w).max(1)
    assert (np.abs(y - exact) <= 64 / 126 * largest).all()
    assert np.abs(y - exact).max() > 1e-5, "it is rounded"
    np.testing.assert_allclose(y, rounded(x) @ rounded(w).T + b, rtol=0, atol=1e-2)


def test_other_layers_are_shared_and_the_model_stays_as_it_is() -> None:
    model = Net()
    before = {n: p.numpy() for n, p in model.named_parameters()}
    copy = nn.quantize(model)
    assert isinstance(copy, Net) and isinstance(copy.head, nn.Int8Linear)
    assert copy.again is copy.head and copy.embed.weight is model.embed.weight
    assert [type(m).__name__ for m in copy.body] == ["Int8Linear", "ReLU", "Int8Linear"]
    assert type(copy.odd) is nn.Linear, "33 features"
    assert type(model.head) is nn.Linear and type(model.body[0]) is nn.Linear
    assert all((before[n] == p.numpy()).all() for n, p in model.named_parameters())
    weight = copy.body[0].weight
    assert (weight.dtype, weight.shape) == ("i8", (48, 32))
    assert np.abs(weight.numpy()).max(1).tolist() == [127] * 48
    assert copy.head.describe() == "32, 5, bias=True"


@pytest.mark.parametrize("device", DEVICES)
def test_a_model_computes_much_the_same(device: str) -> None:
    need_command("g++", "clang++")
    model = Net()
    x = np.arange(21, dtype=np.int32).reshape(3, 7) % 7
    specs = (graphc.spec(x.shape, "i32"),)
    want = graphc.compile(model, *specs, device="reference")(x)
    got = graphc.compile(nn.quantize(model), *specs, device=device)(x)
    for one, other in zip(got, want, strict=True):
        assert 0 < np.abs(one - other).max() < 0.05 * np.abs(other).max()


def test_rows_of_zeros_and_rows_that_are_not_finite() -> None:
    linear = nn.Linear(16, 8)
    linear.weight.assign(linear.weight.numpy() * (np.arange(8) != 3)[:, None])
    x = random(6, 16, seed=2)
    x[1], x[2, 3], x[4, 5] = 0, np.nan, np.inf
    y = graphc.compile(nn.quantize(linear), graphc.spec(x.shape), device="cpu")(x)
    np.testing.assert_allclose(y[1], linear.bias.numpy(), rtol=1e-6)
    np.testing.assert_allclose(y[[0, 3, 5], 3], linear.bias.numpy()[3], rtol=1e-6)
    assert np.isfinite(y[[0, 1, 3, 5]]).all() and not np.isfinite(y[[2, 4]]).any()


def test_its_state_is_saved_and_loaded() -> None:
    one, other = nn.quantize(nn.Linear(16, 8)), nn.quantize(nn.Linear(16, 8))
    other.load_state_dict(one.state_dict())
    x = random(5, 16, seed=3)
    a, b = (graphc.compile(m, graphc.spec(x.shape), device="reference")(x) for m in (one, other))
    np.testing.assert_array_equal(a, b)
    assert set(one.state_dict()) == {"weight", "scale", "offset", "bias"}


def test_mistakes() -> None:
    with pytest.raises(graphc.GraphError, match=r"^quantize: expected a module, got int \(.*\)$"):
        nn.quantize(3)  # type: ignore[type-var]
    layer = nn.quantize(nn.Linear(16, 8))
    expected = "Int8Linear: expected f32[..., 16], got f32[2,15]"
    with pytest.raises(graphc.GraphError, match="^" + re.escape(expected)):
        graphc.compile(layer, graphc.spec((2, 15)), device="reference")
    wide = nn.Linear(4, 1)
    wide.in_features = 2**16 + 4
    expected = r"^Int8Linear: in_features at most 65536, got 65540 \(.*\)$"
    with pytest.raises(graphc.GraphError, match=expected):
        nn.quantize(wide)
