"""Helpers of test_recurrent_loops.py and of tests beside it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import graphc
from graphc import nn, optim
from graphc.program import Program


class Model(nn.Module):  # type: ignore[misc]
    """A recurrent layer or more, with a head."""

    def __init__(self, cells: Any, width: int) -> None:
        self.cells, self.head = cells, nn.Linear(width, 1)

    def forward(self, x: graphc.Tensor) -> graphc.Tensor:
        return self.head(self.cells(x)[0])


class Peephole(nn.Module):  # type: ignore[misc]
    """An LSTM whose gates look at the cell (Gers, Schraudolph and Schmidhuber, 2002), by weights of
    one parameter."""

    def __init__(self, features: int, width: int, layers: int) -> None:
        self.of_x, self.of_h = nn.Linear(features, 4 * width), nn.Linear(width, 4 * width)
        draw = np.random.default_rng(0).standard_normal
        self.peeps = nn.Parameter(draw((3, width)).astype(np.float32))

    def forward(self, x: graphc.Tensor) -> tuple[graphc.Tensor, Any]:
        def step(state: Any, element: graphc.Tensor) -> Any:
            h, c = state
            i, f, g, o = graphc.chunk(self.of_x(element) + self.of_h(h), 4, 1)
            i, f = graphc.sigmoid(i + self.peeps[0] * c), graphc.sigmoid(f + self.peeps[1] * c)
            c = f * c + i * graphc.tanh(g)
            h = graphc.sigmoid(o + self.peeps[2] * c) * graphc.tanh(c)
            return (h, c), h

        zeros = graphc.zeros((x.shape[1], self.peeps.shape[1]))
        last, y = graphc.scan(step, (zeros, zeros), x)
        return y, last


class Gated(nn.Module):  # type: ignore[misc]
    """A minimal GRU: one gate, and a candidate that sees the whole state."""

    def __init__(self, features: int, width: int, layers: int) -> None:
        self.of_x, self.of_h = nn.Linear(features, 2 * width), nn.Linear(width, 2 * width)
        self.width = width

    def forward(self, x: graphc.Tensor) -> tuple[graphc.Tensor, Any]:
        def step(h: graphc.Tensor, element: graphc.Tensor) -> Any:
            z, n = graphc.chunk(self.of_x(element) + self.of_h(h), 2, 1)
            z = graphc.sigmoid(z)
            return (h := z * h + (1 - z) * graphc.tanh(n)), h

        last, y = graphc.scan(step, graphc.zeros((x.shape[1], self.width)), x)
        return y, last


class Cut(Gated):
    """As `Gated`, but its gates are cut by a reshape."""

    def forward(self, x: graphc.Tensor) -> tuple[graphc.Tensor, Any]:
        def step(h: graphc.Tensor, element: graphc.Tensor) -> Any:
            gates = graphc.reshape(self.of_x(element) + self.of_h(h), (-1, 2, self.width))
            z, n = graphc.sigmoid(gates[:, 0]), graphc.tanh(gates[:, 1])
            return (h := z * h + (1 - z) * n), h

        last, y = graphc.scan(step, graphc.zeros((x.shape[1], self.width)), x)
        return y, last


class Whole(Gated):
    """As `Gated`, but its gates are one product of the element and the state side by side."""

    def __init__(self, features: int, width: int, layers: int) -> None:
        self.whole, self.width = nn.Linear(features + width, 2 * width), width

    def forward(self, x: graphc.Tensor) -> tuple[graphc.Tensor, Any]:
        def step(h: graphc.Tensor, element: graphc.Tensor) -> Any:
            z, n = graphc.chunk(self.whole(graphc.concat([element, h], 1)), 2, 1)
            z = graphc.sigmoid(z)
            return (h := z * h + (1 - z) * graphc.tanh(n)), h

        last, y = graphc.scan(step, graphc.zeros((x.shape[1], self.width)), x)
        return y, last


class Normed(nn.Module):  # type: ignore[misc]
    """A layer whose products of the state are normalised (Ba, Kiros and Hinton, 2016), and whose
    gates lie in turns."""

    def __init__(self, features: int, width: int, layers: int) -> None:
        self.of_x, self.of_h = nn.Linear(features, 2 * width), nn.Linear(width, 2 * width)
        self.norm, self.width = nn.LayerNorm(2 * width), width

    def forward(self, x: graphc.Tensor) -> tuple[graphc.Tensor, Any]:
        def step(h: graphc.Tensor, element: graphc.Tensor) -> Any:
            gates = self.of_x(element) + self.norm(self.of_h(h))
            gates = graphc.reshape(gates, (-1, self.width, 2))
            z, n = graphc.sigmoid(gates[..., 0]), graphc.tanh(gates[..., 1])
            return (h := z * h + (1 - z) * n), h

        last, y = graphc.scan(step, graphc.zeros((x.shape[1], self.width)), x)
        return y, last


CELLS: dict[str, Callable[[int, int, int], Any]] = {
    "LSTM": nn.LSTM,
    "GRU": nn.GRU,
    "Peephole": Peephole,
    "Gated": Gated,
    "Cut": Cut,
    "Whole": Whole,
    "Normed": Normed,
}
"""By features, width and layers; all but the first two are a user's, of one layer."""


def step_of(
    cell: str, device: str, width: int, batch: int, steps: int, layers: int = 1, **options: Any
) -> tuple[Program, Any]:
    """The training step of a model, and the model."""
    graphc.seed(0)
    model = Model(CELLS[cell](width, width, layers), width)
    specs = graphc.spec((steps, batch, width)), graphc.spec((steps, batch, 1))

    def loss_of(model: Any, x: graphc.Tensor, y: graphc.Tensor) -> graphc.Tensor:
        return graphc.mse_loss(model(x), y)

    options = {"streams": 1, "update": optim.Adam(lr=0.01), **options}
    return graphc.compile(loss_of, model, *specs, device=device, **options), model
