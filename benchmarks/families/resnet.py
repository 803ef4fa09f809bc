"""ResNet-18 and ResNet-50 (He et al., 2015) on images of 224 x 224, 1000 classes. Training
normalises by the batch, the forward pass by the running statistics."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.workload import Data, Draws, Tensors, Workload

BLOCKS = {18: (2, 2, 2, 2), 50: (3, 4, 6, 3)}
CLASSES, PIXELS = 1000, 224


@dataclass(frozen=True)
class Block:
    """A residual block: convolutions of (outputs, size, stride), and the one beside them."""

    name: str
    inputs: int
    convolutions: tuple[tuple[int, int, int], ...]
    projected: bool

    @property
    def outputs(self) -> int:
        return self.convolutions[-1][0]

    @property
    def stride(self) -> int:
        return math.prod(stride for _, _, stride in self.convolutions)


@dataclass(frozen=True)
class ResNet(Workload):
    depth: int = 18
    pixels: int = PIXELS
    classes: int = CLASSES

    def blocks(self) -> Iterator[Block]:
        inputs = 64
        for stage, count in enumerate(BLOCKS[self.depth]):
            inner = 64 << stage
            for i in range(count):
                stride = 2 if i == 0 and stage > 0 else 1
                convolutions: tuple[tuple[int, int, int], ...]
                convolutions = ((inner, 3, stride), (inner, 3, 1))
                if self.depth == 50:
                    convolutions = ((inner, 1, 1), (inner, 3, stride), (4 * inner, 1, 1))
                outputs = convolutions[-1][0]
                yield Block(f"s{stage}b{i}", inputs, convolutions, stride != 1 or inputs != outputs)
                inputs = outputs

    @property
    def gflop(self) -> float:
        extent = self.pixels // 2
        terms = extent**2 * 64 * 3 * 7 * 7
        extent //= 2
        inputs = 64
        for block in self.blocks():
            before, inputs = extent, block.inputs
            for outputs, size, stride in block.convolutions:
                extent //= stride
                terms += extent**2 * outputs * inputs * size**2
                inputs = outputs
            if block.projected:
                terms += (before // block.stride) ** 2 * block.outputs * block.inputs
        return 2e-9 * self.batch * (terms + inputs * self.classes)

    def data(self) -> Data:
        draws = Draws(self.name)

        def normalised(name: str, weight: tuple[int, ...]) -> None:
            draws.layer(name, weight, bias=False)
            draws.norm(f"{name}.norm", weight[0], running=True)

        normalised("stem", (64, 3, 7, 7))
        inputs = 64
        for block in self.blocks():
            inputs = block.inputs
            for i, (outputs, size, _) in enumerate(block.convolutions, 1):
                normalised(f"{block.name}.c{i}", (outputs, inputs, size, size))
                inputs = outputs
            if block.projected:
                normalised(f"{block.name}.projection", (inputs, block.inputs, 1, 1))
        draws.layer("fc", (self.classes, inputs))
        x = draws.generator.randn(self.batch, 3, self.pixels, self.pixels).astype(np.float32)
        y = draws.generator.randint(0, self.classes, self.batch).astype(np.int32)
        return Data(draws.parameters, x, y, draws.statistics)

    def forward(self, lib: Any, p: Tensors, x: Any, training: bool) -> Any:
        def normalised(name: str, x: Any, size: int, stride: int) -> Any:
            x = lib.conv2d(x, p[f"{name}.weight"], None, stride, size // 2)
            names = ("running_mean", "running_var", "weight", "bias")
            return lib.batch_norm(x, *(p[f"{name}.norm.{n}"] for n in names), training)

        x = lib.max_pool2d(lib.relu(normalised("stem", x, 7, 2)), 3, 2, 1)
        for block in self.blocks():
            y = x
            for i, (_, size, stride) in enumerate(block.convolutions, 1):
                y = lib.relu(y) if i > 1 else y
                y = normalised(f"{block.name}.c{i}", y, size, stride)
            if block.projected:
                x = normalised(f"{block.name}.projection", x, 1, block.stride)
            x = lib.relu(y + x)
        return lib.linear(x.mean((2, 3)), p["fc.weight"], p["fc.bias"])


WORKLOADS = (
    ResNet("resnet18-b1", 1, ("forward",), 18),
    ResNet("resnet18-b8", 8, depth=18),
    ResNet("resnet50-b1", 1, ("forward",), 50),
    ResNet("resnet50-b8", 8, ("forward",), 50),
)
LARGER = (
    ResNet("resnet18-b32", 32, depth=18),
    ResNet("resnet50-b32", 32, depth=50),
    ResNet("resnet50-b256", 256, depth=50),
)
