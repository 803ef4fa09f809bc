"""What is measured: models with fixed weights and inputs, the same for every framework.

Weights are uniform within 1 / sqrt(fan in), as PyTorch's layers begin, in PyTorch's shapes. All
numbers come from one generator whose seed is the CRC of the workload's name, drawn in the order
weight and bias of each layer, inputs, labels.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

LEARNING_RATE, MOMENTUM = 0.01, 0.9
"""Of the SGD step that every workload trains with."""


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


@dataclass(frozen=True)
class Workload:
    name: str
    model: Model
    batch: int

    @property
    def gflop(self) -> float:
        """Multiplications and additions of a forward pass, in 1e9."""
        terms = (math.prod(layer.weight) * layer.places for layer in self.model.layers)
        return 2e-9 * self.batch * sum(terms)

    def data(self) -> tuple[dict[str, np.ndarray], np.ndarray, np.ndarray]:
        """Parameters by name such as `c1.weight`, inputs f32 [n, ...] and labels i32 [n]."""
        generator = np.random.RandomState(zlib.crc32(self.name.encode()) % 2**31)
        parameters = {}
        for layer in self.model.layers:
            bound = 1 / np.sqrt(math.prod(layer.weight[1:]))
            for kind, shape in (("weight", layer.weight), ("bias", layer.weight[:1])):
                values = generator.uniform(-bound, bound, shape).astype(np.float32)
                parameters[f"{layer.name}.{kind}"] = values
        x = generator.rand(self.batch, *self.model.sample).astype(np.float32)
        y = generator.randint(0, 10, self.batch).astype(np.int32)
        return parameters, x, y


_MLP = Model((Layer("l1", (32, 784)), Layer("l2", (10, 32))), (784,))
_LENET = Model(
    (
        Layer("c1", (20, 1, 5, 5), 24 * 24),
        Layer("c2", (50, 20, 5, 5), 8 * 8),
        Layer("fc1", (500, 800)),
        Layer("fc2", (10, 500)),
    ),
    (1, 28, 28),
)
_FLUX = Model(
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
WORKLOADS: Mapping[str, Workload] = {
    f"{name}-b{batch}": Workload(f"{name}-b{batch}", model, batch)
    for name, model, batches in (
        ("mlp-small", _MLP, (20, 100)),
        ("mnist-cnn", _LENET, (100, 1000)),
        ("flux-conv", _FLUX, (1000,)),
    )
    for batch in batches
}


def find(name: str) -> Workload:
    """The workload of that name, or SystemExit with the names that there are."""
    if name not in WORKLOADS:
        raise SystemExit(f"workload: expected one of {', '.join(WORKLOADS)}, got {name!r}")
    return WORKLOADS[name]
