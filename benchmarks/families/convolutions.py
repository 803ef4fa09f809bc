"""The backward pass of four convolutions of 128 channels on 28 x 28, as a ResNet's second stage has
them, from a given gradient of the outputs: dgrads and wgrads that may run beside each other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from benchmarks.workload import Data, Draws, Tensors, Workload

LAYERS, CHANNELS, PIXELS = 4, 128, 28


@dataclass(frozen=True)
class Convolutions(Workload):
    modes: tuple[str, ...] = ("train",)

    rule: ClassVar[str | None] = None

    @property
    def gflop(self) -> float:
        return 2e-9 * self.batch * LAYERS * (PIXELS * CHANNELS * 3) ** 2

    def data(self) -> Data:
        draws = Draws(self.name)
        for i in range(LAYERS):
            draws.layer(f"c{i}", (CHANNELS, CHANNELS, 3, 3), bias=False)
        shape = (self.batch, CHANNELS, PIXELS, PIXELS)
        x, y = (draws.generator.randn(*shape).astype(np.float32) for _ in "xy")
        return Data(draws.parameters, x, y)

    def forward(self, lib: Any, p: Tensors, x: Any, training: bool) -> Any:
        for i in range(LAYERS):
            x = lib.relu(lib.conv2d(x, p[f"c{i}.weight"], None, 1, 1))
        return x


WORKLOADS = (Convolutions("conv-backward-b8", 8),)
LARGER = tuple(Convolutions(f"conv-backward-b{batch}", batch) for batch in (16, 32))
