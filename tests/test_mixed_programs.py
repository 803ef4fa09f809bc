"""Networks of several kinds of layers, trained on the CPU beside what their trace means."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import graphc
from graphc import nn, optim
from tests.before_passes import compile_before_passes


class Lines(nn.Module):
    """A convolution whose rows of pixels are the steps of a recurrent layer."""

    def __init__(self, recurrent: Any) -> None:
        self.conv = nn.Conv2d(3, 4, 3, padding=1)
        self.recurrent = recurrent(24, 8)
        self.head = nn.Linear(8, 2)

    def forward(self, x: graphc.Tensor) -> graphc.Tensor:
        rows = graphc.permute_dims(graphc.relu(self.conv(x)), (2, 0, 1, 3))
        steps = graphc.reshape(rows, (6, x.shape[0], 24))
        return self.head(self.recurrent(steps)[0][-1])


class Running(nn.Module):
    """A scan by hand: the recurrent layer as users write it."""

    def __init__(self, features: int, hidden: int) -> None:
        self.hidden = hidden
        self.of_x, self.of_h = nn.Linear(features, hidden), nn.Linear(hidden, hidden)

    def forward(self, x: graphc.Tensor) -> tuple[graphc.Tensor, graphc.Tensor]:
        def step(h: graphc.Tensor, element: graphc.Tensor) -> tuple[graphc.Tensor, graphc.Tensor]:
            h = graphc.tanh(self.of_x(element) + self.of_h(h))
            return h, h

        last, y = graphc.scan(step, graphc.zeros((x.shape[1], self.hidden)), x)
        return y, last


def losses(compile: Callable[..., Any], recurrent: Any, batch: int) -> list[float]:
    """Of three steps of training."""
    graphc.seed(0)
    program = compile(
        lambda model, x: graphc.mean(graphc.square(model(x))),
        Lines(recurrent),
        graphc.spec((batch, 3, 6, 6)),
        update=optim.SGD(lr=0.1),
    )
    x = np.random.default_rng(0).standard_normal((batch, 3, 6, 6)).astype(np.float32)
    return [float(program(x)) for _ in range(3)]


@pytest.mark.parametrize("batch", [12, 17])
@pytest.mark.parametrize("recurrent", [nn.LSTM, Running], ids=["lstm", "scan"])
def test_a_recurrent_layer_behind_a_convolution_trains_at_any_batch(
    recurrent: Any, batch: int
) -> None:
    """Batches that fill the lanes of the convolution without filling the last register."""
    got = losses(partial(graphc.compile, device="cpu"), recurrent, batch)
    want = losses(compile_before_passes, recurrent, batch)
    np.testing.assert_allclose(got, want, rtol=1e-4)
