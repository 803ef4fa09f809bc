"""Two recurrent layers and a dense layer at every step, on sequences of 30 steps or 64."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from benchmarks.workload import Data, Draws, Tensors, Workload

GATES = {"lstm": 4, "gru": 3}


@dataclass(frozen=True)
class Recurrent(Workload):
    cell: str = "lstm"
    hidden: int = 64
    layers: int = 2
    steps: int = 30

    rule: ClassVar[str | None] = "Adam"

    @property
    def gflop(self) -> float:
        rows = GATES[self.cell] * self.hidden
        per_step = self.layers * rows * 2 * self.hidden + self.hidden
        return 2e-9 * self.batch * self.steps * per_step

    def data(self) -> Data:
        draws, h = Draws(self.name), self.hidden
        rows = GATES[self.cell] * h
        for i in range(self.layers):
            draws.uniform(f"weight_ih_l{i}", (rows, h), h)
            draws.uniform(f"weight_hh_l{i}", (rows, h), h)
            draws.uniform(f"bias_ih_l{i}", (rows,), h)
            draws.uniform(f"bias_hh_l{i}", (rows,), h)
        draws.layer("head", (1, h))
        x = draws.generator.randn(self.steps, self.batch, h).astype(np.float32)
        y = draws.generator.randn(self.steps, self.batch, 1).astype(np.float32)
        return Data(draws.parameters, x, y)

    def forward(self, lib: Any, p: Tensors, x: Any, training: bool) -> Any:
        names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        weights = [[p[f"{name}_l{i}"] for name in names] for i in range(self.layers)]
        run = self._scanned if hasattr(lib, "scan") else self._layers
        return lib.linear(run(lib, weights, x, training), p["head.weight"], p["head.bias"])

    def _scanned(self, lib: Any, weights: list[list[Any]], x: Any, training: bool) -> Any:
        """The layers as graphc's nn.LSTM and nn.GRU write them."""
        for layer in weights:
            zeros = lib.zeros((self.batch, self.hidden))

            def lstm(state: Any, element: Any, layer: list[Any] = layer) -> Any:
                state = lib.lstm_cell(element, state, *layer)
                return state, state[0]

            def gru(state: Any, element: Any, layer: list[Any] = layer) -> Any:
                state = lib.gru_cell(element, state, *layer)
                return state, state

            step, initial = (lstm, (zeros, zeros)) if self.cell == "lstm" else (gru, zeros)
            _, x = lib.scan(step, initial, x)
        return x

    def _layers(self, lib: Any, weights: list[list[Any]], x: Any, training: bool) -> Any:
        """PyTorch's own loops, those of torch.nn.LSTM and torch.nn.GRU."""
        zeros = lib.zeros((self.layers, self.batch, self.hidden), device=getattr(x, "device", None))
        flat = [weight for layer in weights for weight in layer]
        settings = (flat, True, self.layers, 0.0, training, False, False)
        if self.cell == "lstm":
            return lib.lstm(x, (zeros, zeros), *settings)[0]
        return lib.gru(x, zeros, *settings)[0]

    def loss(self, lib: Any, outputs: Any, y: Any) -> Any:
        return lib.mse_loss(outputs, y)


WORKLOADS = tuple(
    Recurrent(f"{cell}-h{hidden}-b{batch}", batch, cell=cell, hidden=hidden)
    for cell in GATES
    for hidden, batch in ((128, 1), (64, 256), (256, 32), (1024, 32))
)
LARGER = tuple(Recurrent(f"{cell}-h512-b64", 64, cell=cell, hidden=512, steps=64) for cell in GATES)
