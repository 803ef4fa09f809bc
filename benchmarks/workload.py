"""What a workload is: a model with fixed weights and inputs, the same for every framework."""

from __future__ import annotations

import math
import zlib
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]
Tensors = Mapping[str, Any]
"""Parameters and running statistics by name, as one framework's tensors."""

MODES = ("train", "forward")
RATES = {"SGD": {"lr": 0.01, "momentum": 0.9}, "Adam": {"lr": 0.001}}
"""Arguments of the update rules, which PyTorch and graphc name alike."""


@dataclass(frozen=True)
class Data:
    """Parameters and running statistics by name, the inputs x and what they are compared with: the
    labels y, or for a workload without a loss the gradient of its outputs."""

    parameters: dict[str, Array]
    x: Array
    y: Array
    statistics: dict[str, Array] = field(default_factory=dict)


@dataclass(frozen=True)
class Workload(ABC):
    """One model at one batch size."""

    name: str
    batch: int
    modes: tuple[str, ...] = MODES

    rule: ClassVar[str | None] = "SGD"
    """The update rule of a training step; None where a step gives the gradients of x and of the
    parameters, for a given gradient of the outputs."""

    @abstractmethod
    def data(self) -> Data:
        """Everything the workload computes with."""

    @abstractmethod
    def forward(self, lib: Any, p: Tensors, x: Any, training: bool) -> Any:
        """The outputs. `lib` holds the framework's functions, by the names that graphc and PyTorch
        share."""

    @property
    @abstractmethod
    def gflop(self) -> float:
        """Multiplications and additions of a forward pass in products and convolutions, in 1e9."""

    def loss(self, lib: Any, outputs: Any, y: Any) -> Any:
        """The scalar that training makes small."""
        return lib.cross_entropy(outputs, y)


class Draws:
    """The numbers of a workload, from one generator whose seed is the CRC of the workload's name.

    Weights are uniform within 1 / sqrt(fan in), as PyTorch's layers begin, in PyTorch's shapes.
    """

    def __init__(self, name: str) -> None:
        self.generator = np.random.RandomState(zlib.crc32(name.encode()) % 2**31)
        self.parameters: dict[str, Array] = {}
        self.statistics: dict[str, Array] = {}

    def uniform(self, name: str, shape: tuple[int, ...], fan_in: int) -> None:
        bound = 1 / np.sqrt(fan_in)
        self.parameters[name] = self.generator.uniform(-bound, bound, shape).astype(np.float32)

    def layer(self, name: str, shape: tuple[int, ...], bias: bool = True) -> None:
        """A dense layer (weight [out, in]) or convolution (weight [k, c, r, s])."""
        fan_in = math.prod(shape[1:])
        self.uniform(f"{name}.weight", shape, fan_in)
        if bias:
            self.uniform(f"{name}.bias", shape[:1], fan_in)

    def norm(self, name: str, features: int, running: bool = False) -> None:
        """A normalisation that changes nothing yet."""
        self.parameters[f"{name}.weight"] = np.ones(features, np.float32)
        self.parameters[f"{name}.bias"] = np.zeros(features, np.float32)
        if running:
            self.statistics[f"{name}.running_mean"] = np.zeros(features, np.float32)
            self.statistics[f"{name}.running_var"] = np.ones(features, np.float32)
