"""Work bound by memory, over 4096 rows of 1024 numbers. A training step is the backward pass too,
from a given gradient of the outputs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from benchmarks.workload import Data, Draws, Tensors, Workload


@dataclass(frozen=True)
class Pointwise(Workload):
    kind: str = "chain"
    features: int = 1024

    rule: ClassVar[str | None] = None

    @property
    def gflop(self) -> float:
        return 0.0

    def data(self) -> Data:
        draws, n = Draws(self.name), self.features
        scale = draws.generator.rand(n).astype(np.float32) + np.float32(0.5)
        shift = draws.generator.randn(n).astype(np.float32)
        x, y = (draws.generator.randn(self.batch, n).astype(np.float32) for _ in "xy")
        used = self.kind in ("chain", "layernorm", "batchnorm")
        return Data({"scale": scale, "shift": shift} if used else {}, x, y)

    def forward(self, lib: Any, p: Tensors, x: Any, training: bool) -> Any:
        if self.kind == "softmax":
            return lib.softmax(x, -1)
        if self.kind == "gelu":
            return lib.gelu(x)
        scale, shift = p["scale"], p["shift"]
        if self.kind == "layernorm":
            return lib.layer_norm(x, (self.features,), scale, shift)
        if self.kind == "batchnorm":
            return lib.batch_norm(x, None, None, scale, shift, True)
        gate = lib.sigmoid(x * scale + shift)
        return gate * lib.tanh(x) + lib.relu(x + shift) * (x * x)


WORKLOADS = tuple(
    Pointwise(f"pw-{kind}", 4096, kind=kind)
    for kind in ("chain", "layernorm", "batchnorm", "softmax", "gelu")
)
