"""Kernels of many outputs: what they are made of, and in whose memory they may lie."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

import graphc
from graphc import nn, optim
from graphc.kernels.program import inplace, pointwise_nest


class Weights(nn.Module):
    """Parameters that all have one gradient, so that their updates read one array."""

    def __init__(self, count: int) -> None:
        self.weights = [nn.Parameter(np.full((4, 4), i, np.float32)) for i in range(count)]

    def forward(self, x: Any) -> Any:
        total = graphc.sum(self.weights[0] * x)
        for weight in self.weights[1:]:
            total = total + graphc.sum(weight * x)
        return total


def trained(count: int) -> tuple[Any, Any]:
    model = Weights(count)
    program = graphc.compile(
        lambda model, x: model(x), model, graphc.spec((4, 4)), update=optim.SGD(lr=0.5)
    )
    program(np.ones((4, 4), np.float32))
    return model, program


def test_outputs_of_one_array_are_computed_in_parts() -> None:
    model, program = trained(100)
    for i, weight in enumerate(model.weights):
        np.testing.assert_array_equal(weight.numpy(), np.full((4, 4), i - 0.5, np.float32))
    (update,) = (k for k in program.plan.kernels.values() if k.name == "sgd_update")
    assert (
        max(text.count("store(") for text in update.source.split("static")) <= pointwise_nest.MOST
    )


def test_every_parameter_is_updated_where_it_lies() -> None:
    """Of a kernel with so many inputs and outputs that not all pairs of them are looked at."""
    count = 100
    assert 2 * count * count > inplace.MOST
    _, program = trained(count)
    (update,) = (k for k in program.plan.kernels.values() if k.name == "sgd_update")
    assert count <= len(update.inplace) < 4 * count
    assert not [step for step in program.plan.steps if type(step).__name__ == "Copy"]


def test_compiling_takes_as_long_for_each_of_many_parameters() -> None:
    def spent(count: int) -> float:
        begin = time.process_time()
        trained(count)
        return time.process_time() - begin

    spent(20)
    assert spent(1000) < 8 * spent(250)
