"""A program refuses to run once the model holds other parameters than those that it reads."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import graphc
from graphc import nn, optim
from graphc.base.errors import GraphError
from tests.nn.running import random

X = random(2, 4, seed=0)


class Model(nn.Module):
    def __init__(self) -> None:
        self.first = nn.Linear(4, 4)
        self.layers = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
        self.listed = [nn.Linear(4, 4)]
        self.named = nn.ModuleDict({"last": nn.Linear(4, 3)})
        self.unused = nn.Linear(4, 3)

    def forward(self, x: Any) -> Any:
        return self.named["last"](self.listed[0](self.layers(self.first(x))))


def loss(model: Any, x: Any) -> Any:
    return graphc.sum(graphc.square(model(x)))


def compiled(model: Model) -> tuple[graphc.Program, graphc.Program]:
    spec = graphc.spec(X.shape)
    step = graphc.compile(loss, model, spec, update=optim.SGD(lr=0.01), device="reference")
    return step, graphc.compile(model, spec, device="reference")


def set_weight(model: Model) -> None:
    model.first.weight = nn.Parameter(np.ones((4, 4), np.float32))


def set_layer(model: Model) -> None:
    model.first = nn.Linear(4, 4)


def set_listed(model: Model) -> None:
    model.listed[0] = nn.Linear(4, 4)


def set_in_dict(model: Model) -> None:
    model.named["last"] = nn.Linear(4, 3)


def convert(model: Model) -> None:
    model.to("float16")


def remove_bias(model: Model) -> None:
    model.first.bias = None


CHANGES: dict[Callable[[Model], None], str] = {
    set_weight: "first.weight was replaced",
    set_layer: "first.weight was replaced",
    set_listed: "listed.0.weight was replaced",
    set_in_dict: "named.last.weight was replaced",
    convert: "first.weight was replaced",
    remove_bias: "first.bias was removed",
}


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_a_changed_model_must_be_compiled_again(change: Callable[[Model], None]) -> None:
    model = Model()
    programs = compiled(model)
    for program in programs:
        program(X)
    change(model)
    for program in programs:
        message = f"{program.name}: {CHANGES[change]} after compile: compile again"
        with pytest.raises(GraphError, match=re.escape(message)):
            program(X)
        with pytest.raises(GraphError, match="compile again"):
            program(X)  # still
    for program in compiled(model):
        program(X)


def test_what_a_program_does_not_read_may_change() -> None:
    model = Model()
    step, infer = compiled(model)
    before = infer(X)
    model.unused = nn.Linear(4, 3)
    model.extra = nn.Linear(2, 2)
    model.first.weight = model.first.weight
    model.first.weight.assign(model.first.weight.numpy())
    model.load_state_dict(model.state_dict())
    nn.Linear(9, 9)  # another model
    np.testing.assert_array_equal(infer(X), before)
    step(X)
    assert not np.array_equal(infer(X), before)


def test_a_change_that_is_taken_back_is_none() -> None:
    model = Model()
    _, infer = compiled(model)
    before, weight = infer(X), model.first.weight
    model.first.weight = nn.Parameter(weight.numpy())
    with pytest.raises(GraphError):
        infer(X)
    model.first.weight = weight
    np.testing.assert_array_equal(infer(X), before)
