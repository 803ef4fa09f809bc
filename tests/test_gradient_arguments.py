"""What `grad` takes the gradient by: its argument alone, whatever else reads the same tensor."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import graphc
from graphc import nn
from graphc.base.errors import GraphError
from tests.functions.tracing import run

X = np.array([1.0, 2.0], np.float32)


def product(a: Any, b: Any) -> Any:
    return graphc.sum(a * b * b)


# fmt: off
CASES: list[tuple[Callable[..., Any], list[Any]]] = [
    (lambda x: graphc.grad(product, (0, 1))(x, x), [X**2, 2 * X**2]),
    (lambda x: graphc.grad(product)(x, x), [X**2]),
    (lambda x: graphc.grad(product, 1)(x, x), [2 * X**2]),
    (lambda x: graphc.grad(lambda d: product(*d))([x, x]), [X**2, 2 * X**2]),
    (lambda x: graphc.grad(lambda a: product(a, b=x))(x), [X**2]),
    (lambda x: graphc.grad(lambda a: product(a, x * 2))(x), [4 * X**2]),
    (lambda x: graphc.grad(lambda a: graphc.sum(graphc.grad(product)(x, a)))(x), [2 * X]),
    (lambda x: graphc.grad(lambda a: graphc.sum(graphc.grad(product)(a, a)))(x), [2 * X]),
    (lambda x: graphc.grad(lambda a: graphc.sum(a * x))(np.ones(2, np.float32)), [X]),
    (lambda x: graphc.grad(lambda a: graphc.sum(a * x))(3.0), [X.sum()]),
]
# fmt: on


@pytest.mark.parametrize(("fn", "expected"), CASES)
def test_the_gradient_is_that_of_the_argument_alone(
    fn: Callable[..., Any], expected: list[Any]
) -> None:
    for got, want in zip(run(fn, X), expected, strict=True):
        np.testing.assert_allclose(got, want)


def test_inside_a_loop_it_is_the_same() -> None:
    def slopes(x: Any) -> Any:
        return graphc.scan(lambda c, t: (c, graphc.grad(product, (0, 1))(x, x)), 0.0, x)[1]

    for got, want in zip(run(slopes, X), (X**2, 2 * X**2), strict=True):
        np.testing.assert_allclose(got, [want, want])


def test_a_parameter_is_the_same_wherever_it_is_read() -> None:
    layer = nn.Linear(2, 1, bias=False)

    def loss(model: Any, x: Any) -> Any:
        return graphc.sum(model(x) * layer.weight)

    slopes = graphc.compile(
        lambda m, x: graphc.grad(loss)(m, x), layer, graphc.spec((2,)), device="reference"
    )(X)
    weight = layer.weight.numpy()[0]
    np.testing.assert_allclose(slopes["weight"][0], X * weight.sum() + weight @ X, rtol=1e-6)


def test_argnums_are_numbers() -> None:
    with pytest.raises(GraphError) as caught:
        run(lambda x: graphc.grad(graphc.sum, "x")(x), X)
    said = re.sub(r":\d+\)", ":N)", str(caught.value))
    assert said == "argnums: expected 0 to 0, got 'x' (test_gradient_arguments.py:N)"
