"""An op of the user's own: what is wrong with it is said by its name."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import graphc
from graphc import nn, optim
from graphc.errors import GraphError
from graphc.ops.base import REGISTRY, Pointwise
from graphc.trace import emit


@pytest.fixture
def own_op() -> Iterator[Callable[..., Any]]:
    """Makes ops named `cube`, which are forgotten after the test."""

    def make(**members: Any) -> Any:
        members = {"name": "cube", "meaning": lambda x: x**3, **members}
        return type("Cube", (Pointwise,), members)()

    yield make
    REGISTRY.pop("cube", None)


def run(op: Any, update: Any = None, device: str = "reference") -> Any:
    def loss(layer: Any, x: Any) -> Any:
        return graphc.sum(emit(op, layer(x)))

    program = graphc.compile(
        loss, nn.Linear(3, 2), graphc.spec((4, 3)), update=update, device=device
    )
    return program(np.ones((4, 3), np.float32))


def test_an_own_op_trains(own_op: Callable[..., Any]) -> None:
    op = own_op(grad=lambda self, inputs, outputs, grads: (grads[0] * 3 * inputs[0] ** 2,))
    assert np.isfinite(run(op, optim.SGD(lr=0.1)))


# fmt: off
MISTAKES: list[tuple[dict[str, Any], str]] = [
    ({}, "cube has no gradient"),
    ({"grad": lambda self, inputs, outputs, grads: grads[0]},
     "cube: grad expected to return a tuple of 1 gradients, got Tensor"),
    ({"grad": lambda self, inputs, outputs, grads: (grads[0], None)},
     "cube: grad expected to return a tuple of 1 gradients, got tuple of 2"),
]
# fmt: on


@pytest.mark.parametrize(("members", "message"), MISTAKES, ids=[m for _, m in MISTAKES])
def test_a_wrong_gradient_is_named(
    own_op: Callable[..., Any], members: dict[str, Any], message: str
) -> None:
    op = own_op(**members)
    with pytest.raises(GraphError, match=rf"^{re.escape(message)} \(test_own_op\.py:\d+\)$"):
        run(op, optim.SGD(lr=0.1))


def test_a_reference_that_gives_no_tuple_is_named(own_op: Callable[..., Any]) -> None:
    op = own_op(reference=lambda self, x: x**3)
    with pytest.raises(
        GraphError,
        match=r"^cube: reference expected to return a tuple of arrays, got ndarray$",
    ):
        run(op)


def test_an_expression_of_a_missing_input_is_named(own_op: Callable[..., Any]) -> None:
    op = own_op(expression="{a} * {x}")
    message = "cube: expression '{a} * {x}' names 'x', expected one of a"
    with pytest.raises(GraphError, match=f"^{re.escape(message)}$"):
        run(op, device="cpu")
