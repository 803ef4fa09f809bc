"""Training runs that tests stop and continue: every kind of state that a run has."""

from __future__ import annotations

from typing import Any

import numpy as np

import graphc
from graphc import nn, optim
from graphc.program import Program

BATCH = 6


def cosine(step: int) -> float:
    return 0.02 * (1 + np.cos(step / 10))


RULES: dict[str, Any] = {
    "momentum": lambda: optim.SGD(lr=0.1, momentum=0.9, nesterov=True),
    "adam": lambda: optim.Adam(lr=0.01, amsgrad=True),
    "schedule": lambda: optim.Adam(lr=cosine, clip_grad_norm=0.5),
    "averages": lambda: optim.SGD(lr=0.1, momentum=0.5, ema=0.8),
    "groups": lambda: optim.AdamW(
        [{"params": lambda name: "bias" in name, "lr": 0.5}, {"params": lambda name: True}], lr=0.01
    ),
}


class Net(nn.Module):
    """Dropout, running statistics, a counter of its own, and weights of two dtypes."""

    def __init__(self) -> None:
        self.first = nn.Linear(4, 8)
        self.norm = nn.BatchNorm1d(8)
        self.drop = nn.Dropout(0.3)
        self.last = nn.Linear(8, 2).to("bfloat16")
        self.calls = nn.Buffer(np.int64(0))

    def forward(self, x: graphc.Tensor) -> graphc.Tensor:
        self.calls = self.calls + 1
        hidden = self.drop(graphc.relu(self.norm(self.first(x))))
        return graphc.astype(self.last(graphc.astype(hidden, "bfloat16")), "float32")


def loss_fn(model: nn.Module, x: graphc.Tensor, y: graphc.Tensor) -> graphc.Tensor:
    return graphc.mse_loss(model(x), y)


def data(step: int) -> tuple[Any, Any]:
    """x f32[6,4] and y f32[6,2] of a step."""
    draw = np.random.default_rng(step)
    x, y = draw.standard_normal((BATCH, 4)), draw.standard_normal((BATCH, 2))
    return x.astype(np.float32), y.astype(np.float32)


def trainer(rule: str, seed: int = 0, device: str = "cpu") -> Program:
    """A training step, of a model that depends on the seed."""
    graphc.seed(seed)
    specs = graphc.spec((BATCH, 4)), graphc.spec((BATCH, 2))
    return graphc.compile(loss_fn, Net(), *specs, update=RULES[rule](), device=device)


def train(step: Program, first: int, stop: int) -> list[bytes]:
    """The bits of the losses of the steps from `first` up to `stop`."""
    return [step(*data(number)).tobytes() for number in range(first, stop)]


def bits(program: Program) -> dict[str, bytes]:
    """The bits of all state."""
    return {name: array.tobytes() for name, array in program.state_dict().items()}
