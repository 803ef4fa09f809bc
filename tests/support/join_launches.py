"""Helpers of test_join_launches.py and of tests beside it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest

import graphc
from graphc import nn, optim
from graphc.base import target
from graphc.program import Program
from graphc.runtime.plan.plan import LaunchPart, Plan, RepeatedParts

STEPS, BATCH = 4, 24


LARGE = 512
"""A batch whose sums are cut, so that the last block of some draws a ticket."""


class Recurrent(nn.Module):  # type: ignore[misc]
    def __init__(self, cell: str) -> None:
        self.cells = getattr(nn, cell)(6, 16, 2)
        self.head = nn.Linear(16, 1)

    def forward(self, x: graphc.Tensor) -> graphc.Tensor:
        return self.head(self.cells(x)[0])


def mlp() -> tuple[Any, tuple[Any, ...], Any]:
    layers = [layer for _ in range(2) for layer in (nn.Linear(64, 64), nn.ReLU())]
    model = nn.Sequential(*layers, nn.Linear(64, 10))
    return model, (graphc.spec((16, 64)), graphc.spec((16,), "int32")), graphc.cross_entropy


def recurrent(cell: str, batch: int = BATCH) -> tuple[Any, tuple[Any, ...], Any]:
    specs = graphc.spec((STEPS, batch, 6)), graphc.spec((STEPS, batch, 1))
    return Recurrent(cell), specs, graphc.mse_loss


class Unrolled(nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        self.cell = nn.RNNCell(16, 16)

    def forward(self, x: graphc.Tensor) -> graphc.Tensor:
        state = x[0]
        for step in range(1, x.shape[0]):
            state = self.cell(x[step], state)
        return state


def unrolled(steps: int = STEPS) -> tuple[Any, tuple[Any, ...], Any]:
    """A network whose steps differ by the place of a row, so that they share functions."""
    return Unrolled(), (graphc.spec((steps, 8, 16)), graphc.spec((8, 16))), graphc.mse_loss


MODELS = {
    "unrolled": unrolled,
    "mlp": mlp,
    "LSTM": lambda: recurrent("LSTM"),
    "GRU": lambda: recurrent("GRU"),
    "LSTM that draws": lambda: recurrent("LSTM", LARGE),
    "GRU that draws": lambda: recurrent("GRU", LARGE),
}


def step_of(name: str, device: str = "cuda", **options: Any) -> tuple[Program, Any]:
    """The training step of a model, and the model."""
    graphc.seed(0)
    model, specs, loss = MODELS[name]()
    options = {"streams": 1, "seed": 1, "update": optim.Adam(lr=0.01), **options}

    def loss_of(model: Any, x: graphc.Tensor, y: graphc.Tensor) -> graphc.Tensor:
        return loss(model(x), y)

    return graphc.compile(loss_of, model, *specs, device=device, **options), model


@pytest.fixture
def joins(clean_environment: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """The simulated GPU joins what a GPU would."""
    clean_environment.setitem(target.KINDS, "sim", target.GPU)
    return clean_environment


def parts(found: Sequence[LaunchPart | RepeatedParts]) -> Iterator[LaunchPart]:
    for part in found:
        if isinstance(part, LaunchPart):
            yield part
        else:
            yield from parts(part.parts)


def waiting(plan: Plan) -> list[LaunchPart]:
    (run,) = plan.joined
    return [part for part in parts(run.parts) if part.waits]


def without(plan: Plan, left_out: LaunchPart) -> Plan:
    """`plan` with a wait left out of what it says."""

    def of(found: Sequence[LaunchPart | RepeatedParts]) -> tuple[LaunchPart | RepeatedParts, ...]:
        return tuple(
            replace(part, parts=of(part.parts))
            if isinstance(part, RepeatedParts)
            else replace(part, waits=part.waits and part is not left_out)
            for part in found
        )

    (run,) = plan.joined
    return replace(plan, joined=(replace(run, parts=of(run.parts)),))
