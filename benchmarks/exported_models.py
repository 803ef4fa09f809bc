"""Training steps whose export is compared with Python: LeNet, a recurrent and a small GPT."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

import graphc
from graphc import nn, optim
from graphc.base.dtypes import Array

Batches = list[tuple[Array, Array]]
STEPS = 10
WORDS, LENGTH = 40, 12


class LeNet(nn.Module):
    """The LeNet of Caffe: 431,080 parameters."""

    def __init__(self) -> None:
        self.conv1, self.conv2 = nn.Conv2d(1, 20, 5), nn.Conv2d(20, 50, 5)
        self.fc1, self.fc2 = nn.Linear(800, 500), nn.Linear(500, 10)

    def forward(self, x: Any) -> Any:
        x = graphc.max_pool2d(self.conv1(x), 2)
        x = graphc.max_pool2d(self.conv2(x), 2)
        return self.fc2(graphc.relu(self.fc1(graphc.flatten(x))))


class Lstm(nn.Module):
    """Two layers, time first."""

    def __init__(self) -> None:
        self.embedding, self.lstm = nn.Embedding(WORDS, 24), nn.LSTM(24, 40, num_layers=2)
        self.out = nn.Linear(40, WORDS)

    def forward(self, x: Any) -> Any:
        return self.out(self.lstm(self.embedding(x))[0])


class Block(nn.Module):
    """Attention of four heads and two layers behind it, with dropout."""

    def __init__(self) -> None:
        self.norm1, self.norm2 = nn.LayerNorm(32), nn.LayerNorm(32)
        self.qkv, self.out = nn.Linear(32, 96), nn.Linear(32, 32)
        self.up, self.down, self.dropout = nn.Linear(32, 128), nn.Linear(128, 32), nn.Dropout(0.1)

    def forward(self, x: Any) -> Any:
        b, t, d = x.shape
        parts = graphc.split(self.qkv(self.norm1(x)), d, -1)
        q, k, v = (p.reshape(b, t, 4, d // 4).transpose((0, 2, 1, 3)) for p in parts)
        y = graphc.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.dropout(self.out(y.transpose((0, 2, 1, 3)).reshape(b, t, d)))
        return x + self.down(graphc.gelu(self.up(self.norm2(x))))


class Gpt(nn.Module):
    """Two blocks of 32 features."""

    def __init__(self) -> None:
        self.words, self.places = nn.Embedding(WORDS, 32), nn.Embedding(LENGTH, 32)
        self.blocks, self.norm = [Block(), Block()], nn.LayerNorm(32)
        self.out = nn.Linear(32, WORDS, bias=False)

    def forward(self, x: Any) -> Any:
        y = self.words(x) + self.places.weight
        for block in self.blocks:
            y = block(y)
        return self.out(self.norm(y))


def loss(model: Any, x: Any, y: Any) -> Any:
    """The mean cross entropy."""
    scores = model(x)
    return graphc.cross_entropy(scores.reshape(-1, scores.shape[-1]), y.reshape(-1))


def _words(batch: int, *, time_first: bool) -> Batches:
    shape = (LENGTH, batch) if time_first else (batch, LENGTH)
    draw = np.random.default_rng(1)
    return [
        (draw.integers(0, WORDS, shape, np.int32), draw.integers(0, WORDS, shape, np.int32))
        for _ in range(STEPS)
    ]


def _images(batch: int) -> Batches:
    draw = np.random.default_rng(1)
    return [
        (
            draw.normal(size=(batch, 1, 28, 28)).astype(np.float32),
            draw.integers(0, 10, batch, np.int32),
        )
        for _ in range(STEPS)
    ]


@dataclass(frozen=True)
class Model:
    """A model, and what it is trained by."""

    make: Callable[[], nn.Module]
    """Makes it, with random parameters."""
    rule: Any
    """The optimizer's class."""
    batches: Callable[[int], Batches]
    """Makes the arrays of ten calls, for a batch of this size."""
    batch: int
    """The size by default."""


MODELS = {
    "lenet": Model(LeNet, optim.SGD, _images, 16),
    "lstm": Model(Lstm, optim.Adam, partial(_words, time_first=True), 8),
    "gpt": Model(Gpt, optim.AdamW, partial(_words, time_first=False), 4),
}


def training_step(name: str, batch: int | None = None, **options: Any) -> tuple[Any, Batches]:
    """The compiled training step of a model, not called yet, and the arrays of ten calls.

    It is compiled for the CPU, or by the `options` of `graphc.compile`.
    """
    model = MODELS[name]
    graphc.seed(0)
    arrays = model.batches(batch or model.batch)
    specs = [graphc.spec(array.shape, array.dtype) for array in arrays[0]]
    options = {"update": model.rule(lr=0.02), "device": "cpu", **options}
    return graphc.compile(loss, model.make(), *specs, **options), arrays
