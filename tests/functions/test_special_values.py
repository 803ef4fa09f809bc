"""NaN, infinities, signed zeros and masks of -inf give what they give in PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import graphc
from graphc import functions as f
from tests.tools import need_module

NAN, INF = float("nan"), float("inf")
X = np.array([NAN, INF, -INF, 0.0, -0.0, 1.0, -1.0, 89.0, -104.0, 3e38, 1e-30], np.float32)
A, B = (np.ascontiguousarray(g) for g in np.meshgrid(X, X))
ROWS = np.array(
    [
        [1, 2, 3, 4],
        [1, -INF, 3, -INF],
        [-INF, -INF, -INF, -INF],
        [1, NAN, 3, 4],
        [INF, 1, 2, INF],
        [1000, 1000, -1000, 0],
    ],
    np.float32,
)

Function = Callable[..., Any]
ONE: dict[str, tuple[Function, Function]] = {
    name: (getattr(f, name), lambda t, x, n=name: getattr(t, n)(x))
    for name in (
        "relu exp expm1 log log1p sqrt rsqrt tanh sigmoid erf abs negative floor isnan isfinite "
        "reciprocal square"
    ).split()
}
ONE |= {
    name: (getattr(f, name), lambda t, x, n=name: getattr(t.nn.functional, n)(x))
    for name in ("silu", "elu", "leaky_relu", "softplus")
}
ONE["clip"] = (lambda x: f.clip(x, -1, 2), lambda t, x: t.clip(x, -1, 2))
TWO: dict[str, tuple[Function, Function]] = {
    ours: (getattr(f, ours), lambda t, a, b, n=theirs: getattr(t, n)(a, b))
    for ours, theirs in {
        "add": "add",
        "multiply": "mul",
        "divide": "div",
        "maximum": "maximum",
        "minimum": "minimum",
        "less": "lt",
        "less_equal": "le",
        "greater": "gt",
        "greater_equal": "ge",
        "equal": "eq",
        "not_equal": "ne",
    }.items()
}
TWO["where"] = (lambda a, b: f.where(a > b, a, b), lambda t, a, b: t.where(a > b, a, b))
BY_ROW: dict[str, tuple[Function, Function]] = {
    "max": (lambda x: f.max(x, 1), lambda t, x: t.amax(x, 1)),
    "min": (lambda x: f.min(x, 1), lambda t, x: t.amin(x, 1)),
    "sum": (lambda x: f.sum(x, 1), lambda t, x: t.sum(x, 1)),
    "softmax": (f.softmax, lambda t, x: t.softmax(x, -1)),
    "log_softmax": (f.log_softmax, lambda t, x: t.log_softmax(x, -1)),
    "logsumexp": (f.logsumexp, lambda t, x: t.logsumexp(x, -1)),
    "argmax": (lambda x: f.argmax(x, 1), lambda t, x: t.argmax(x, 1)),
    "max_pool2d": (
        lambda x: f.max_pool2d(f.reshape(x, (1, 1, 6, 4)), 2, padding=1),
        lambda t, x: t.nn.functional.max_pool2d(x.reshape(1, 1, 6, 4), 2, padding=1),
    ),
}
TABLES = {"one": (ONE, (X,)), "two": (TWO, (A, B)), "row": (BY_ROW, (ROWS,))}


@pytest.fixture(scope="module")
def torch() -> ModuleType:
    return need_module("torch")


@pytest.mark.parametrize("device", ["reference", "cpu"])
@pytest.mark.parametrize("table", TABLES)
def test_special_values_are_those_of_torch(torch: ModuleType, device: str, table: str) -> None:
    functions, arrays = TABLES[table]

    def every(*tensors: Any) -> dict[str, Any]:
        return {name: ours(*tensors) for name, (ours, _) in functions.items()}

    program = graphc.compile(every, *(graphc.spec(a.shape) for a in arrays), device=device)
    results = program(*arrays)
    tensors = [torch.from_numpy(a) for a in arrays]
    for name, (_, theirs) in functions.items():
        expected = theirs(torch, *tensors).numpy()
        np.testing.assert_allclose(
            results[name], expected, rtol=2e-6, atol=1e-37, err_msg=name, strict=True
        )
