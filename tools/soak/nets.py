"""Small networks whose training steps take some microseconds, and the state of their runs."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np

import graphc
from graphc import nn, optim
from graphc.program import Program

BATCH, FEATURES, CLASSES, TIME = 8, 8, 4, 4


class Sequences(nn.Module):
    """An LSTM over f32 [TIME, BATCH, FEATURES] and a linear layer on its last state."""

    def __init__(self) -> None:
        self.lstm, self.last = nn.LSTM(FEATURES, 8), nn.Linear(8, CLASSES)

    def forward(self, x: graphc.Tensor) -> graphc.Tensor:
        """Return scores f32 [BATCH, CLASSES]."""
        found, _ = self.lstm(x)
        scores: graphc.Tensor = self.last(found[TIME - 1])
        return scores


def loss_fn(model: nn.Module, x: graphc.Tensor, y: graphc.Tensor) -> graphc.Tensor:
    """Return the cross-entropy of a batch."""
    return graphc.cross_entropy(model(x), y)


def trainer(kind: str = "mlp", device: str = "cpu", width: int = 16, **options: Any) -> Program:
    """Return the training program of a network, `mlp` or `lstm`, whose weights a seed decides."""
    graphc.seed(0)
    shape: tuple[int, ...] = (BATCH, FEATURES)
    if kind == "lstm":
        model: nn.Module = Sequences()
        shape = (TIME, *shape)
    else:
        model = nn.Sequential(nn.Linear(FEATURES, width), nn.ReLU(), nn.Linear(width, CLASSES))
    specs = graphc.spec(shape), graphc.spec((BATCH,), "int32")
    rule = optim.Adam(lr=0.01)
    program: Program = graphc.compile(loss_fn, model, *specs, update=rule, device=device, **options)
    return program


def batch(number: int, kind: str = "mlp") -> tuple[Any, Any]:
    """Return the arrays of a step, of which there are 16 in turn."""
    draw = np.random.default_rng(number % 16)
    shape = (BATCH, FEATURES) if kind == "mlp" else (TIME, BATCH, FEATURES)
    x = draw.standard_normal(shape).astype(np.float32)
    return x, draw.integers(0, CLASSES, BATCH).astype(np.int32)


def digest(state: Mapping[str, Any]) -> str:
    """Return the digest of arrays by name."""
    found = hashlib.sha256()
    for name in sorted(state):
        found.update(name.encode() + np.ascontiguousarray(state[name]).tobytes())
    return found.hexdigest()


def trajectory(program: Program, steps: int, kind: str = "mlp") -> list[str]:
    """Return the digests of a program's state before and after each of its next steps."""
    found = [digest(program.state_dict())]
    for number in range(steps):
        program(*batch(number, kind))
        found.append(digest(program.state_dict()))
    return found
