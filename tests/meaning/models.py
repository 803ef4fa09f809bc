"""Small models and the graphs that passes make of them, without a compiler."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import graphc
from graphc import nn, optim
from graphc.ir import Graph
from graphc.program import making
from graphc.runtime.reference import ReferenceExecutable

Stages = dict[str, Graph]


class Pooled(nn.Module):
    """A strided and a plain convolution, pooling, a dense layer."""

    def __init__(self) -> None:
        self.first = nn.Conv2d(1, 3, 3, padding=1)
        self.second = nn.Conv2d(3, 4, 3, stride=2, padding=1)
        self.dense = nn.Linear(16, 3)

    def forward(self, x: Any) -> Any:
        x = graphc.max_pool2d(graphc.relu(self.first(x)), 2)
        return self.dense(graphc.flatten(graphc.relu(self.second(x))))


class Recurrent(nn.Module):
    """A layer that remembers, and what is read of its last step."""

    def __init__(self, layer: Any, size: int = 4, features: int = 5) -> None:
        self.layer, self.dense = layer(features, size), nn.Linear(size, 3)

    def forward(self, x: Any) -> Any:
        y, _ = self.layer(x)
        return self.dense(y[-1])


class Normalised(nn.Module):
    """Layer norm, softmax, slices that meet again."""

    def __init__(self) -> None:
        self.norm, self.dense = nn.LayerNorm(6), nn.Linear(6, 6)

    def forward(self, x: Any) -> Any:
        a, b = graphc.chunk(self.dense(self.norm(x)), 2, 1)
        return graphc.softmax(graphc.concat([b, graphc.tanh(a) * b], 1) - x, axis=1)


def loss(model: Any, x: Any, y: Any) -> Any:
    return graphc.cross_entropy(model(x), y)


MODELS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], int]] = {
    "pooled": (Pooled, (4, 1, 8, 8), 4),
    "lstm": (lambda: Recurrent(nn.LSTM), (3, 4, 5), 4),
    "gru": (lambda: Recurrent(nn.GRU), (3, 4, 5), 4),
    "normalised": (Normalised, (5, 6), 5),
}
ONE_EXTENT = {"lstm of one extent": (lambda: Recurrent(nn.LSTM, 4, 4), (4, 4, 4), 4)}
"""Times, samples, features and units are as many: no extent tells variables apart."""


def stages_of(name: str, rule: Any = None) -> Stages:
    """The graph after each pass of a training step."""
    make, shape, labels = (MODELS | ONE_EXTENT)[name]
    specs = graphc.spec(shape), graphc.spec((labels,), "int32")
    with without_kernels():
        step = graphc.compile(
            loss, make(), *specs, update=rule or optim.SGD(lr=0.1), device="cpu", streams=1
        )
    return step.stages


@contextmanager
def without_kernels() -> Iterator[None]:
    """Programs end with their graphs, which NumPy plays."""
    load = making.load
    making.load = lambda graph, device, target, state, *rest: (
        ReferenceExecutable(graph, state),
        None,
        None,
    )
    try:
        yield
    finally:
        making.load = load
