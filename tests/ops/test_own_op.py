"""An op of the user's own: what is wrong with it is said by its name."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import graphc
from graphc import nn, optim
from graphc.base.errors import GraphError
from graphc.ir import Type
from graphc.ops.base import REGISTRY, Affine, Contraction, Op, Pointwise, Reduction, View
from graphc.ops.view import PermuteDims
from graphc.trace import emit


@pytest.fixture
def own_op() -> Iterator[Callable[..., Any]]:
    """Makes ops named `cube`, which are forgotten after the test."""

    def make(family: type[Op] = Pointwise, **members: Any) -> Any:
        members = {"name": "cube", "meaning": lambda x: x**3, **members}
        settings = {name: members.pop(name) for name in ("axes", "keepdims") if name in members}
        return type("Cube", (family,), members)(**settings)

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


def test_a_gradient_is_written_in_any_function_of_graphc(own_op: Callable[..., Any]) -> None:
    def grad(self: Any, f: Any, inputs: Any, outputs: Any, grads: Any) -> Any:
        return (f.clip(f.multiply(grads[0], 3.0), -1.0, 1.0),)

    op = own_op(grad=grad)
    program = graphc.compile(
        graphc.grad(lambda x: graphc.sum(emit(op, x) * x)), graphc.spec((3,)), device="reference"
    )
    x = np.array([-2, 0.1, 3], np.float32)
    np.testing.assert_allclose(program(x), np.clip(3 * x, -1, 1) + x**3, rtol=1e-6)


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


def test_an_attribute_by_the_name_of_a_fact_is_refused() -> None:
    with pytest.raises(
        GraphError,
        match=r"^Split: every op says 'sections' of itself \(graphc/ir/facts\.py\): give the "
        r"attribute another name \(test_own_op\.py:\d+\)$",
    ):
        type("Split", (Op,), {"__annotations__": {"axis": "int", "sections": "int"}})


def test_a_reference_that_gives_no_tuple_is_named(own_op: Callable[..., Any]) -> None:
    op = own_op(reference=lambda self, x: x**3)
    with pytest.raises(
        GraphError,
        match=r"^cube: reference expected to return a tuple of arrays, got ndarray$",
    ):
        run(op)


def fail(*_: Any) -> Any:
    raise ZeroDivisionError("division by zero")


# fmt: off
LACKS: list[tuple[type[Op], dict[str, Any], str, str]] = [
    (Pointwise, {"meaning": None}, "cpu", "cube: a kernel needs its expression, got none"),
    (Pointwise, {"gives": "f99"}, "cpu",
     "cube: infer expected a dtype of bool, u8, i8, i32, i64, f16, bf16, f32, f64, got 'f99'"),
    (Pointwise, {"infer": fail}, "cpu",
     "cube does not take f32[4,2]: ZeroDivisionError: division by zero"),
    (Pointwise, {"infer": lambda self, x: x}, "cpu",
     "cube: infer expected to return a tuple of types, got Type"),
    (Op, {}, "cpu", "cube has no type rule: write infer"),
    (Op, {"infer": lambda self, x: (x,)}, "sim",
     "cube: kernels compute own ops that are Pointwise, View, Reduction or Contraction, got Op; "
     "device='reference' computes any"),
    (View, {"infer": lambda self, x: (x,)}, "cpu",
     "cube: a kernel needs its index, one Affine per axis of f32[4,2], got none"),
    (Reduction, {"axes": (0, 1), "keepdims": True}, "sim",
     "cube: a kernel needs its combine, one of sum, prod, max, min, got ''"),
    (Contraction, {"infer": lambda self, x, y: (x,)}, "cpu",
     "cube has no loop nest: write iteration"),
    (Contraction, {"infer": lambda self, x, y: (x,), "iteration": fail}, "cpu",
     "cube: its rule for kernels raised ZeroDivisionError: division by zero"),
    (Pointwise, {"expression": "{a:d}"}, "cpu",
     "cube: expression '{a:d}' is no format: ValueError: "
     "Unknown format code 'd' for object of type 'str'"),
    (Op, {"infer": lambda self, x: (x,)}, "reference",
     "cube has no meaning in NumPy: write reference"),
    (Pointwise, {"reference": fail}, "reference",
     "cube: reference raised ZeroDivisionError: division by zero"),
    (Pointwise, {"meaning": lambda x: x[:1]}, "reference",
     "cube: reference expected to return arrays of shapes [4, 2], got [1, 2]"),
]
# fmt: on


@pytest.mark.parametrize(("family", "members", "device", "message"), LACKS)
def test_what_an_own_op_lacks_is_named(
    family: type[Op],
    members: dict[str, Any],
    device: str,
    message: str,
    own_op: Callable[..., Any],
) -> None:
    def fn(x: Any) -> Any:
        return emit(op, *[x] * operands)

    operands = 2 if family is Contraction else 1
    op = own_op(family=family, **members)
    with pytest.raises(GraphError, match=rf"^{re.escape(message)}( \(test_own_op\.py:\d+\))?$"):
        graphc.compile(fn, graphc.spec((4, 2)), device=device)(np.ones((4, 2), np.float32))


def test_a_pointwise_op_without_meaning_is_named(own_op: Callable[..., Any]) -> None:
    op = own_op(expression="{a}")
    del type(op).meaning
    message = "cube has no meaning in NumPy: write meaning or reference"
    with pytest.raises(GraphError, match=f"^{re.escape(message)}$"):
        run(op)


def test_a_gradient_that_fails_is_named(own_op: Callable[..., Any]) -> None:
    op = own_op(grad=fail)
    message = "cube: grad raised ZeroDivisionError: division by zero"
    with pytest.raises(GraphError, match=rf"^{re.escape(message)} \(test_own_op\.py:\d+\)$"):
        run(op, optim.SGD(lr=0.1))


def test_an_own_op_has_a_name_of_its_own() -> None:
    message = (
        "an op named 'relu' exists, graphc.ops.pointwise.elementary.Relu: "
        r"give Mine another name \(test_own_op\.py:\d+\)"
    )
    with pytest.raises(GraphError, match=f"^{message}$"):
        type("Mine", (Pointwise,), {"name": "relu"})
    with pytest.raises(GraphError, match=r"give Relu another name"):
        type("Relu", (Pointwise,), {"name": "relu"})
    assert REGISTRY["relu"].__module__ == "graphc.ops.pointwise.elementary"


def test_an_op_is_made_of_its_class_and_of_attributes_that_fit(own_op: Callable[..., Any]) -> None:
    own = own_op()
    # fmt: off
    wrong = [
        (type(own), "expected an op, got the class Cube: make one of it"),
        (PermuteDims((0, 0)),
         "permute_dims axes=(0, 0) does not take f32[4,2]: AssertionError: ((0, 0), Type(shape="
         "(4, 2), dtype='f32', layout=Layout(axis=None, width=1)))"),
    ]
    # fmt: on
    for op, message in wrong:
        whole = rf"^{re.escape(message)} \(test_own_op\.py:\d+\)$"
        with pytest.raises(GraphError, match=whole):
            graphc.trace(lambda x, op=op: emit(op, x), graphc.spec((4, 2)))


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
