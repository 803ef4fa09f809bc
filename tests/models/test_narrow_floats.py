"""Models with parameters and inputs in f16 and bf16: they train as in PyTorch on the CPU, and as
the reference on the simulated GPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import graphc
from graphc import nn, optim
from tests.tools import first_quick, need_module

EPSILON = {"float16": 2.0**-10, "bfloat16": 2.0**-7}
STEPS = 4
BATCH = 12


def mlp(nn: Any, lib: Any) -> Any:
    return nn.Sequential(nn.Linear(30, 50), nn.ReLU(), nn.Linear(50, 10))


def lenet(nn: Any, lib: Any) -> Any:
    return nn.Sequential(
        nn.Conv2d(1, 6, 5), nn.MaxPool2d(2), nn.ReLU(),
        nn.Conv2d(6, 10, 3), nn.BatchNorm2d(10), nn.ReLU(), nn.AvgPool2d(2),
        nn.Flatten(), nn.Linear(90, 10),
    )  # fmt: skip


def attention(nn: Any, lib: Any) -> Any:
    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.LayerNorm(16)
            self.attention = nn.MultiheadAttention(16, 4, batch_first=True)
            self.gelu = nn.GELU()
            self.out = nn.Linear(16, 10)

        def forward(self, x: Any) -> Any:
            h = self.norm(x)
            h = self.gelu(self.attention(h, h, h, need_weights=False)[0]) + x
            return self.out(lib.mean(h, 1))

    return Block()


def lstm(nn: Any, lib: Any) -> Any:
    class Last(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lstm = nn.LSTM(5, 8, batch_first=True)
            self.out = nn.Linear(8, 10)

        def forward(self, x: Any) -> Any:
            return self.out(self.lstm(x)[0][:, -1])

    return Last()


MODELS: dict[str, tuple[Callable[[Any, Any], Any], tuple[int, ...], str, dict[str, float]]] = {
    "mlp": (mlp, (30,), "SGD", {"lr": 0.05, "momentum": 0.9}),
    "lenet": (lenet, (1, 20, 20), "SGD", {"lr": 0.05, "momentum": 0.9}),
    "lstm": (lstm, (7, 5), "SGD", {"lr": 0.3}),
    "attention": (attention, (9, 16), "AdamW", {"lr": 0.01, "eps": 1e-3}),
}


ON_THE_GPU = [(which, dtype) for dtype in EPSILON for which in MODELS]
ON_THE_CPU = [(which, dtype) for dtype in reversed(EPSILON) for which in MODELS]
"""Of the second dtype only the first model is quick: every op is, in both, in test_dtypes.py."""


def batch(shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(0)
    return random.normal(size=(BATCH, *shape)).astype(np.float32), random.integers(0, 10, BATCH)


def losses(which: str, dtype: str, device: str, weights: Any) -> list[float]:
    """Of a few steps from `weights`, which are what PyTorch's model gives."""
    make, shape, rule, options = MODELS[which]
    model = make(nn, graphc).to(dtype)
    model.load_state_dict(weights, strict=False)  # PyTorch counts the batches of a norm

    def loss(model: Any, x: Any, y: Any) -> Any:
        return graphc.cross_entropy(model(x), y)

    step = graphc.compile(
        loss,
        model,
        graphc.spec((BATCH, *shape), dtype),
        graphc.spec((BATCH,), "int64"),
        update=getattr(optim, rule)(**options),
        device=device,
    )
    x, y = batch(shape)
    x = x.astype(np.float16) if dtype == "float16" else x
    found = [float(step(x, y)) for _ in range(STEPS)]
    assert all(p.dtype in ("f16", "bf16") for p in model.parameters() if p.trainable)
    return found


def assert_equal_losses(got: list[float], want: list[float], dtype: str) -> None:
    """Each step may differ by roundings of its own and those of the steps before it."""
    for step, (a, b) in enumerate(zip(got, want, strict=True)):
        assert abs(a - b) <= (2 + step) * EPSILON[dtype] * abs(b), (got, want)
    assert got[-1] < got[0]


@pytest.mark.parametrize("case", first_quick(5, ON_THE_CPU), ids="-".join)
def test_a_model_of_floats_of_two_bytes_trains_as_in_torch(case: tuple[str, str]) -> None:
    torch = need_module("torch")
    which, dtype = case
    make, shape, rule, options = MODELS[which]
    torch.manual_seed(0)
    theirs = make(torch.nn, torch).to(getattr(torch, dtype))
    weights = {name: tensor.clone() for name, tensor in theirs.state_dict().items()}
    # PyTorch's plain Adam rounds several times, so that in f16 its squares come to nothing; its
    # fused SGD gives other losses than the plain one, which has those of f32.
    fused = rule == "AdamW"
    optimizer = getattr(torch.optim, rule)(theirs.parameters(), **options, fused=fused)
    x, y = map(torch.from_numpy, batch(shape))
    expected = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(theirs(x.to(getattr(torch, dtype))), y)
        loss.backward()
        optimizer.step()
        expected.append(float(loss.detach()))
    assert_equal_losses(losses(which, dtype, "cpu", weights), expected, dtype)


@pytest.mark.parametrize("case", first_quick(5, ON_THE_GPU), ids="-".join)
def test_a_model_of_floats_of_two_bytes_trains_on_the_simulated_device(
    case: tuple[str, str],
) -> None:
    which, dtype = case
    make = MODELS[which][0]
    graphc.seed(0)
    weights = make(nn, graphc).to(dtype).state_dict()
    expected = losses(which, dtype, "reference", weights)
    assert_equal_losses(losses(which, dtype, "sim", weights), expected, dtype)
