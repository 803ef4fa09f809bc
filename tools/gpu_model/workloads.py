"""The modelled workloads: those of the benchmarks at the sizes in the docs, and some more."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from benchmarks.families.gpt import GPT
from benchmarks.families.pointwise import Pointwise
from benchmarks.families.recurrent import Recurrent
from benchmarks.families.resnet import ResNet
from benchmarks.families.stack import FLUX, LENET, WIDE_MLP, Stack
from benchmarks.workload import Data, Draws, Tensors, Workload


@dataclass(frozen=True)
class BatchNorm(Workload):
    """A batch norm over rows with its gradients, given the gradient of the result."""

    features: int = 1024

    rule: ClassVar[str | None] = None
    gflop: ClassVar[float] = 0.0

    def data(self) -> Data:
        draws = Draws(self.name)
        draws.norm("norm", self.features)
        x, y = (np.zeros((self.batch, self.features), np.float32) for _ in "xy")
        return Data(draws.parameters, x, y)

    def forward(self, lib: Any, p: Tensors, x: Any, training: bool) -> Any:
        apart = x - lib.mean(x, 0)
        root = lib.rsqrt(lib.mean(lib.square(apart), 0) + 1e-5)
        return apart * root * p["norm.weight"] + p["norm.bias"]


@dataclass(frozen=True)
class Convolutions(Workload):
    """Four convolutions, like the second stage of a ResNet, with their gradients, given the
    gradient of the result."""

    channels: int = 128
    pixels: int = 28

    rule: ClassVar[str | None] = None
    gflop: ClassVar[float] = 0.0

    def data(self) -> Data:
        draws, c = Draws(self.name), self.channels
        for i in range(4):
            draws.layer(f"c{i}", (c, c, 3, 3), bias=False)
        x, y = (np.zeros((self.batch, c, self.pixels, self.pixels), np.float32) for _ in "xy")
        return Data(draws.parameters, x, y)

    def forward(self, lib: Any, p: Tensors, x: Any, training: bool) -> Any:
        for i in range(4):
            x = lib.relu(lib.conv2d(x, p[f"c{i}.weight"], None, 1, 1))
        return x


@dataclass(frozen=True)
class Inception(Workload):
    """Two blocks of four branches on images of 14 x 14."""

    gflop: ClassVar[float] = 0.0

    def data(self) -> Data:
        draws = Draws(self.name)
        for i, inputs in enumerate((192, 256)):
            for name, (outputs, size) in {"a": (64, 1), "b0": (96, 1), "c0": (16, 1)}.items():
                draws.layer(f"{i}.{name}", (outputs, inputs, size, size))
            draws.layer(f"{i}.b1", (128, 96, 3, 3))
            draws.layer(f"{i}.c1", (32, 16, 5, 5))
            draws.layer(f"{i}.d", (32, inputs, 1, 1))
        draws.layer("head", (10, 256))
        x = np.zeros((self.batch, 192, 14, 14), np.float32)
        return Data(draws.parameters, x, np.zeros(self.batch, np.int32))

    def forward(self, lib: Any, p: Tensors, x: Any, training: bool) -> Any:
        def convolved(name: str, x: Any, padding: int = 0) -> Any:
            return lib.relu(lib.conv2d(x, p[f"{name}.weight"], p[f"{name}.bias"], 1, padding))

        for i in range(2):
            b = convolved(f"{i}.b1", convolved(f"{i}.b0", x), 1)
            c = convolved(f"{i}.c1", convolved(f"{i}.c0", x), 2)
            d = convolved(f"{i}.d", lib.max_pool2d(x, 3, 1, 1))
            x = lib.concat([convolved(f"{i}.a", x), b, c, d], 1)
        return lib.linear(lib.mean(x, (2, 3)), p["head.weight"], p["head.bias"])


WORKLOADS: Mapping[str, Workload] = {
    w.name: w
    for w in (
        Stack("mlp4x256-b16", 16, model=WIDE_MLP),
        Stack("lenet-b100", 100, model=LENET),
        Stack("mnist-cnn-b1000", 1000, model=LENET),
        Stack("flux-conv-b100", 100, model=FLUX),
        Stack("flux-conv-b1000", 1000, model=FLUX),
        Recurrent("lstm-2x64-b256-t30", 256, cell="lstm"),
        Recurrent("lstm-2x512-b64-t64", 64, cell="lstm", hidden=512, steps=64),
        Recurrent("lstm-2x1024-b32-t50", 32, cell="lstm", hidden=1024, steps=50),
        Recurrent("gru-2x64-b256-t30", 256, cell="gru"),
        ResNet("resnet18-b8", 8, depth=18),
        ResNet("resnet18-b32", 32, depth=18),
        ResNet("resnet50-b32", 32, depth=50),
        GPT("gpt-d256", 8, layers=2),
        GPT("gpt-d768", 8, layers=2, features=768, heads=12, positions=1024, symbols=50304),
        Pointwise("pointwise-4096x1024", 4096),
        Pointwise("softmax-4096x1024", 4096, kind="softmax"),
        Pointwise("layernorm-4096x1024", 4096, kind="layernorm"),
        BatchNorm("batchnorm-4096x1024", 4096),
        Convolutions("conv-backward-b8", 8),
        Convolutions("conv-backward-b16", 16),
        Convolutions("conv-backward-b32", 32),
        Inception("inception-b8", 8),
    )
}
BRANCHED = ("conv-backward-b8", "conv-backward-b16", "conv-backward-b32", "inception-b8")
"""Workloads that are modelled on 1, 2 and 4 streams by default."""


def find(name: str) -> Workload:
    """The workload of that name. Raises SystemExit with the known names."""
    if name not in WORKLOADS:
        raise SystemExit(f"workload: expected one of {', '.join(WORKLOADS)}, got {name!r}")
    return WORKLOADS[name]


def streams_of(name: str) -> tuple[int, ...]:
    """The numbers of streams that a workload is modelled with."""
    return (1, 2, 4) if name in BRANCHED else (1,)
