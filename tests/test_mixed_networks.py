"""Random networks of odd extents, trained in mixed precision and by micro-batches."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import graphc
from graphc import nn, optim
from graphc.optim import loss_scale
from tests.tools import first_quick

Layer = Callable[[Any], Any]


class Network(nn.Module):
    """Layers on sequences [n, time, features], drawn from a seed."""

    def __init__(self, seed: int, norms: bool) -> None:
        self.draw = random.Random(seed)
        self.time, self.width = self.draw.randint(1, 7), self.draw.choice((3, 8, 13))
        self.first, self.last = nn.Linear(5, self.width), nn.Linear(self.width, 4)
        self.layers = [self.layer(norms) for _ in range(self.draw.randint(2, 5))]
        self.residual = [self.draw.random() < 0.4 for _ in self.layers]

    def layer(self, norms: bool) -> Any:
        width = self.width
        kinds: list[Callable[[], Any]] = [
            lambda: nn.Sequential(nn.Linear(width, width), self.draw.choice(ACTIVATIONS)()),
            lambda: nn.LayerNorm(width),
            lambda: Run(nn.GRU(width, width, batch_first=True)),
            lambda: Run(nn.LSTM(width, width, batch_first=True)),
            lambda: Mixing(width),
            lambda: Convolved(width),
        ]
        if norms:
            kinds.append(lambda: Convolved(width, nn.BatchNorm1d(width)))
        return self.draw.choice(kinds)()

    def forward(self, x: Any) -> Any:
        x = self.first(x)
        for layer, adds in zip(self.layers, self.residual, strict=True):
            x = x + layer(x) if adds else layer(x)
        return self.last(x[:, -1])


ACTIVATIONS = (nn.ReLU, nn.GELU, nn.Tanh, nn.Sigmoid, nn.SiLU)


class Run(nn.Module):
    """A recurrent layer's results for all steps."""

    def __init__(self, layer: Any) -> None:
        self.layer = layer

    def forward(self, x: Any) -> Any:
        return self.layer(x)[0]


class Mixing(nn.Module):
    """Attention written out, and as one function."""

    def __init__(self, width: int) -> None:
        self.made = nn.Linear(width, 3 * width)

    def forward(self, x: Any) -> Any:
        query, key, value = graphc.split(self.made(x), x.shape[-1], axis=-1)
        weights = graphc.softmax(query @ key.mT / 3)
        return weights @ value + graphc.scaled_dot_product_attention(query, key, value)


class Convolved(nn.Module):
    """A convolution along time."""

    def __init__(self, width: int, norm: Any = None) -> None:
        self.conv, self.norm = nn.Conv1d(width, width, 3, padding=1), norm

    def forward(self, x: Any) -> Any:
        y = self.conv(graphc.swapaxes(x, 1, 2))
        y = y if self.norm is None else self.norm(y)
        return graphc.swapaxes(y, 1, 2)


@pytest.fixture(autouse=True)
def small_scale(monkeypatch: pytest.MonkeyPatch) -> None:
    """A scale by which no gradient overflows, since a skipped step compares with no other."""
    monkeypatch.setattr(loss_scale, "FIRST", 64.0)


def loss_fn(model: Any, x: Any, y: Any) -> Any:
    return graphc.cross_entropy(model(x), y)


def losses(seed: int, norms: bool, device: str, **options: Any) -> list[float]:
    graphc.seed(seed)
    model = Network(seed, norms)
    numbers = np.random.default_rng(seed)
    x = numbers.standard_normal((6, model.time, 5)).astype(np.float32)
    y = numbers.integers(0, 4, 6)
    specs = graphc.spec(x.shape), graphc.spec(6, "int64")
    rule = optim.AdamW(lr=0.01)
    step = graphc.compile(loss_fn, model, *specs, update=rule, device=device, **options)
    return [float(step(x, y)) for _ in range(3)]


@pytest.mark.parametrize("seed", first_quick(3, range(60)))
def test_mixed_training_is_near_float32(seed: int) -> None:
    exact = losses(seed, True, "reference")
    for mixed, width in (("bfloat16", 0.06), ("float16", 0.02)):
        narrow = losses(seed, True, "reference", mixed=mixed)
        np.testing.assert_allclose(narrow, exact, rtol=width)
        np.testing.assert_allclose(losses(seed, True, "cpu", mixed=mixed), narrow, rtol=width)


@pytest.mark.parametrize("seed", first_quick(3, range(40)))
def test_micro_batches_are_the_batch(seed: int) -> None:
    whole = losses(seed, False, "cpu")
    np.testing.assert_allclose(losses(seed, False, "cpu", accumulate=3), whole, rtol=1e-4)
    cut = losses(seed, False, "reference", accumulate=2, mixed="float16")
    np.testing.assert_allclose(cut, whole, rtol=0.02)


@pytest.mark.parametrize("seed", first_quick(2, range(30)))
def test_a_simulated_gpu_computes_the_same(seed: int) -> None:
    options = {"mixed": "bfloat16", "accumulate": 2}
    expected = losses(seed, False, "reference", **options)
    np.testing.assert_allclose(losses(seed, False, "sim", **options), expected, rtol=0.03)
