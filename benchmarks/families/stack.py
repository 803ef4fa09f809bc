"""Stacks of convolutions and dense layers: the small models of the frameworks' comparisons."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.workload import Data, Draws, Tensors, Workload


@dataclass(frozen=True)
class Layer:
    """A convolution (weight [k, c, r, s]) or dense layer (weight [out, in]), with a bias [k]."""

    name: str
    weight: tuple[int, ...]
    places: int = 1
    """Output elements per channel and sample."""


@dataclass(frozen=True)
class Model:
    """A stack of layers: relu between them, 2 x 2 max pooling behind convolutions."""

    layers: tuple[Layer, ...]
    sample: tuple[int, ...]
    """Shape of one input."""
    padding: int = 0
    """Of the convolutions."""
    softmax: bool = False
    """Whether the forward pass ends in a softmax (training never does)."""


MLP = Model((Layer("l1", (32, 784)), Layer("l2", (10, 32))), (784,))
WIDE_MLP = Model((*(Layer(f"l{i}", (256, 256)) for i in (1, 2, 3)), Layer("l4", (10, 256))), (256,))
LENET = Model(
    (
        Layer("c1", (20, 1, 5, 5), 24 * 24),
        Layer("c2", (50, 20, 5, 5), 8 * 8),
        Layer("fc1", (500, 800)),
        Layer("fc2", (10, 500)),
    ),
    (1, 28, 28),
)
FLUX = Model(
    (
        Layer("c1", (16, 1, 3, 3), 28 * 28),
        Layer("c2", (32, 16, 3, 3), 14 * 14),
        Layer("c3", (32, 32, 3, 3), 7 * 7),
        Layer("fc", (10, 288)),
    ),
    (1, 28, 28),
    padding=1,
    softmax=True,
)


@dataclass(frozen=True)
class Stack(Workload):
    model: Model = MLP

    @property
    def gflop(self) -> float:
        terms = (math.prod(layer.weight) * layer.places for layer in self.model.layers)
        return 2e-9 * self.batch * sum(terms)

    def data(self) -> Data:
        draws = Draws(self.name)
        for layer in self.model.layers:
            draws.layer(layer.name, layer.weight)
        x = draws.generator.rand(self.batch, *self.model.sample).astype(np.float32)
        y = draws.generator.randint(0, 10, self.batch).astype(np.int32)
        return Data(draws.parameters, x, y)

    def forward(self, lib: Any, p: Tensors, x: Any, training: bool) -> Any:
        last = self.model.layers[-1]
        for layer in self.model.layers:
            weight, bias = p[f"{layer.name}.weight"], p[f"{layer.name}.bias"]
            if len(layer.weight) == 4:
                x = lib.conv2d(x, weight, bias, 1, self.model.padding)
                x = lib.max_pool2d(lib.relu(x), 2)
            else:
                x = lib.linear(lib.flatten(x, 1), weight, bias)
                x = x if layer is last else lib.relu(x)
        return lib.softmax(x, 1) if self.model.softmax and not training else x


WORKLOADS = tuple(
    Stack(f"{name}-b{batch}", batch, model=model)
    for name, model, batches in (
        ("mlp-small", MLP, (20, 100)),
        ("mlp-4x256", WIDE_MLP, (16,)),
        ("mnist-cnn", LENET, (100, 1000)),
        ("flux-conv", FLUX, (100, 1000)),
    )
    for batch in batches
)
