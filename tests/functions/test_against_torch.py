"""Array functions against PyTorch's: values, gradients, gradients of gradients, in float64."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import pytest

from graphc import functions as f
from graphc.gradients.reverse import gradients
from graphc.trace import current_builder
from tests.functions.comparison import (
    Case,
    Function,
    compare,
    labels,
    normal,
    positive,
)
from tests.functions.tracing import run
from tests.tools import need_module


@pytest.fixture(scope="module")
def torch() -> ModuleType:
    return need_module("torch")


CASES: list[Case] = []


def case(name: str, ours: Function, theirs: Function, *inputs: np.ndarray) -> None:
    CASES.append(Case(name, ours, theirs, inputs))


X, A, B = normal(3, 5), normal(4, 1, 5, seed=1), normal(3, 1, seed=2)
IMAGE, SIGNED = normal(2, 4, 7, 6), normal(3, 9, seed=5) * 30

for name in ("exp", "expm1", "tanh", "sigmoid", "relu", "erf", "sin", "cos", "abs", "square"):
    case(name, getattr(f, name), lambda t, x, n=name: getattr(t, n)(x), X)
for name in ("log", "log1p", "sqrt", "rsqrt", "reciprocal"):
    case(name, getattr(f, name), lambda t, x, n=name: getattr(t, n)(x), positive(3, 5))
for name in ("add", "subtract", "multiply", "divide", "maximum", "minimum", "remainder"):
    case(name, getattr(f, name), lambda t, a, b, n=name: getattr(t, n)(a, b), A, B)
case("pow", f.pow, lambda t, a, b: a**b, positive(4, 1, 5), B)
for exponent in (-1, -0.5, 0.5, 0, 1, 2, 3, 4, 2.5, -2):
    case(
        f"pow {exponent}", lambda x, e=exponent: x**e, lambda t, x, e=exponent: x**e, positive(3, 4)
    )
case(
    "pow of zero",
    lambda a, b: f.pow(a, b),
    lambda t, a, b: a**b,
    np.array([0.0, 0.0, 0.0, 0.0, 2.0]),
    np.array([-1.0, 0.0, 0.5, 2.0, 0.0]),
)
case(
    "trapezoid at distances",
    lambda x: f.trapezoid(x, dx=0.3),
    lambda t, x: t.trapezoid(x, dx=0.3),
    X,
)
case("number to the power", lambda x: 2.5**x, lambda t, x: 2.5**x, X)
case("where", lambda a, b: f.where(a > b, a, b * 2), lambda t, a, b: t.where(a > b, a, b * 2), A, B)
case("clip", lambda x: f.clip(x, -0.5, 0.7), lambda t, x: t.clip(x, -0.5, 0.7), X)
case("clip above", lambda x: f.clip(x, max=0.2), lambda t, x: t.clip(x, max=0.2), X)
case(
    "clip at its limits",
    lambda x: f.clip(x, 1, 2),
    lambda t, x: t.clip(x, 1, 2),
    np.array([0.0, 1.0, 1.5, 2.0, 3.0]),
)
case("sign", lambda x: f.sign(x) * x, lambda t, x: t.sign(x) * x, X)
case(
    "maximum of equals",
    lambda a, b: f.maximum(a, b) + 2 * f.minimum(a, b),
    lambda t, a, b: t.maximum(a, b) + 2 * t.minimum(a, b),
    np.array([1.0, 2.0, 3.0]),
    np.array([2.0, 2.0, 1.0]),
)
case(
    "relu and abs at zero", lambda x: f.relu(x) + f.abs(x), lambda t, x: t.relu(x) + x.abs(), X * 0
)

for axis in (None, 0, -1, (0, 2)):
    keep = axis != 0
    for name, theirs in (("sum", "sum"), ("mean", "mean"), ("max", "amax"), ("min", "amin")):
        case(
            f"{name} {axis}",
            lambda x, n=name, a=axis, k=keep: getattr(f, n)(x, axis=a, keepdims=k),
            lambda t, x, n=theirs, a=axis, k=keep: getattr(t, n)(
                x, dim=(0, 1, 2) if a is None else a, keepdim=k
            ),
            normal(2, 3, 4),
        )
    case(
        f"var {axis}",
        lambda x, a=axis: f.var(x, a, correction=1),
        lambda t, x, a=axis: t.var(x, (0, 1, 2) if a is None else a, correction=1),
        normal(2, 3, 4),
    )
case("std", lambda x: f.std(x, 1), lambda t, x: t.std(x, 1, correction=0), X)
case(
    "max of equals",
    lambda x: f.max(x, axis=1),
    lambda t, x: t.amax(x, 1),
    np.array([[1.0, 3.0, 3.0], [2.0, 2.0, 2.0]]),
)
case("argmax", lambda x: (f.argmax(x, 1), f.sum(x)), lambda t, x: (t.argmax(x, 1), t.sum(x)), X)
case("argmin", lambda x: (f.argmin(x, 0, True), x), lambda t, x: (t.argmin(x, 0, True), x), X)

case("matmul", f.matmul, lambda t, a, b: a @ b, normal(3, 4), normal(4, 5))
case("batched", f.matmul, lambda t, a, b: a @ b, normal(2, 1, 3, 4), normal(5, 4, 2))
case("batch times matrix", f.matmul, lambda t, a, b: a @ b, normal(2, 3, 5, 4), normal(4, 2))
case("matrix times batch", f.matmul, lambda t, a, b: a @ b, normal(5, 4), normal(3, 4, 2))
case("vector times matrix", f.matmul, lambda t, a, b: a @ b, normal(4), normal(3, 4, 2))
case("batch times vector", f.matmul, lambda t, a, b: a @ b, normal(2, 3, 4), normal(4))
case("dot", f.matmul, lambda t, a, b: a @ b, normal(4), normal(4, seed=1))
case("reshape", lambda x: f.reshape(x, (5, -1)) ** 2, lambda t, x: x.reshape(5, -1) ** 2, X)
case("flatten", lambda x: f.flatten(x) ** 2, lambda t, x: x.flatten(1) ** 2, IMAGE)
case("permute", lambda x: x.permute_dims((2, 0, 1)) ** 2, lambda t, x: x.permute(2, 0, 1) ** 2, A)
case("transpose", lambda x: x.T @ x, lambda t, x: x.T @ x, X)
case("squeeze", lambda x: f.squeeze(x, 1) ** 2, lambda t, x: x.squeeze(1) ** 2, A)
case("expand", lambda x: f.expand_dims(x, -1) ** 2, lambda t, x: x[..., None] ** 2, X)
case(
    "broadcast", lambda x: f.broadcast_to(x, (4, 3, 5)) ** 2, lambda t, x: x.expand(4, 3, 5) ** 2, X
)
case("flip", lambda x: f.flip(x, (0, 2)) * x, lambda t, x: x.flip(0, 2) * x, A)
case(
    "concat",
    lambda a, b: f.concat([a, b, a], 1) ** 2,
    lambda t, a, b: t.cat([a, b, a], 1) ** 2,
    normal(2, 3),
    normal(2, 1),
)
case(
    "stack",
    lambda a, b: f.stack([a, b], -1) ** 2,
    lambda t, a, b: t.stack([a, b], -1) ** 2,
    X,
    X + 1,
)
case(
    "pad",
    lambda x: f.pad(x, [(1, 2), (0, 3)], 2.0) ** 2,
    lambda t, x: t.nn.functional.pad(x, (0, 3, 1, 2), value=2.0) ** 2,
    X,
)
case("tril", lambda x: f.tril(x, 1) * f.triu(x, -1), lambda t, x: t.tril(x, 1) * t.triu(x, -1), X)
case(
    "take",
    lambda x, i: f.take(x, i, 1) ** 2,
    lambda t, x, i: x[:, i.long()] ** 2,
    X,
    labels(5, 2, 4),
)
case(
    "embedding",
    lambda i, w: f.embedding(i, w) ** 2,
    lambda t, i, w: t.nn.functional.embedding(i.long(), w) ** 2,
    labels(3, 2, 4, dtype="i4"),
    X,
)
case(
    "embedding, padding",
    lambda i, w: f.embedding(i, w, -2) ** 2,
    lambda t, i, w: t.nn.functional.embedding(i.long(), w, -2) ** 2,
    labels(3, 2, 4, dtype="i4"),
    X,
)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_values_and_gradients_equal_torchs(torch: ModuleType, case: Case) -> None:
    compare(torch, case)


SECOND_ORDER: list[tuple[str, Function, Function]] = [
    (
        "variance",
        lambda x: f.var(x**3, (0, 2)),
        lambda t, x: t.var(x**3, (0, 2), correction=0),
    ),
    (
        "layer_norm",
        lambda x: f.layer_norm(x**3, 4) ** 3,
        lambda t, x: t.nn.functional.layer_norm(x**3, (4,)) ** 3,
    ),
    ("softmax", lambda x: f.softmax(x, 1) ** 2, lambda t, x: t.softmax(x, 1) ** 2),
    ("gelu", f.gelu, lambda t, x: t.nn.functional.gelu(x)),
    (
        "conv2d",
        lambda x: f.conv2d(x, x[:, :, 1:, 1:] * x[:, :, 1:, :-1], padding=1) ** 2,
        lambda t, x: t.nn.functional.conv2d(x, x[:, :, 1:, 1:] * x[:, :, 1:, :-1], padding=1) ** 2,
    ),
    (
        "avg_pool2d",
        lambda x: f.square(f.avg_pool2d(f.square(x), 2)),
        lambda t, x: t.nn.functional.avg_pool2d(x**2, 2) ** 2,
    ),
]


@pytest.mark.parametrize(("name", "ours", "theirs"), SECOND_ORDER, ids=[c[0] for c in SECOND_ORDER])
def test_gradients_of_gradients_equal_torchs(
    torch: ModuleType, name: str, ours: Function, theirs: Function
) -> None:
    x = normal(2, 3, 4) if name not in ("conv2d", "avg_pool2d") else normal(2, 3, 4, 4)

    def penalty(x: Any) -> Any:
        y = ours(x)
        (slope,) = gradients([y], [f.ones_like(y)], [x], current_builder())
        return slope * slope

    value, second = run(penalty, x, slopes=True)
    tensor = torch.tensor(x, requires_grad=True)
    (slope,) = torch.autograd.grad(theirs(torch, tensor).sum(), tensor, create_graph=True)
    (expected,) = torch.autograd.grad((slope * slope).sum(), tensor)
    np.testing.assert_allclose(value, (slope * slope).detach().numpy(), rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(second, expected.numpy(), rtol=1e-8, atol=1e-8)
