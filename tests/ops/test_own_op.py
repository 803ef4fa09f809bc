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
from graphc.ir import Type
from graphc.ops.base import REGISTRY, Affine, Pointwise, View
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
    op = own_op(grad=lambda self, f, inputs, outputs, grads: (grads[0] * 3 * inputs[0] ** 2,))
    assert np.isfinite(run(op, optim.SGD(lr=0.1)))


# fmt: off
MISTAKES: list[tuple[dict[str, Any], str]] = [
    ({}, "cube has no gradient"),
    ({"grad": lambda self, f, inputs, outputs, grads: grads[0]},
     "cube: grad expected to return a tuple of 1 gradients, got Tensor"),
    ({"grad": lambda self, f, inputs, outputs, grads: (grads[0], None)},
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


@pytest.fixture
def fold_rows() -> Iterator[View]:
    """y[n, c, h, w] = x[n, c, 4 * h + w]: an index of the input from two of the output."""

    class FoldRows(View):
        name = "fold_rows"

        def infer(self, *inputs: Type) -> tuple[Type, ...]:
            n, c, size = inputs[0].shape
            return (Type((n, c, size // 4, 4), inputs[0].dtype),)

        def reference(self, *inputs: Any) -> tuple[Any, ...]:
            return (inputs[0].reshape(*inputs[0].shape[:2], -1, 4),)

        def index(self, source: Type) -> tuple[Affine, ...]:
            return Affine((1, 0, 0, 0)), Affine((0, 1, 0, 0)), Affine((0, 0, 4, 1))

    yield FoldRows()
    REGISTRY.pop("fold_rows")


@pytest.mark.parametrize("device", ["cpu", "sim"])
@pytest.mark.parametrize("stride", [(1, 2), (2, 3)])
def test_an_own_view_may_mix_indices_that_a_stride_divides(
    fold_rows: View, stride: tuple[int, int], device: str
) -> None:
    def fn(x: Any, weight: Any) -> Any:
        return graphc.conv_transpose2d(emit(fold_rows, x), weight, stride=stride, padding=1)

    random = np.random.default_rng(0)
    arrays = [random.random(s, np.float32) for s in ((2, 4, 12), (4, 3, 3, 2))]
    specs = [graphc.spec(a.shape) for a in arrays]
    got = graphc.compile(fn, *specs, device=device, disable=("split_strides",))(*arrays)
    want = graphc.compile(fn, *specs, device="reference")(*arrays)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
