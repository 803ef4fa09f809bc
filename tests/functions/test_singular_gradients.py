"""Gradients at points where a function has none, or a formula divides by 0: PyTorch's."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import pytest

import graphc
from graphc import functions as f
from tests.tools import need_command, need_module

INF = float("inf")


@pytest.fixture(scope="module")
def torch() -> ModuleType:
    return need_module("torch")


ORIGIN = np.array([0, -0.0, 0, 1, -1, 0], np.float32), np.array([0, 0, -0.0, 0, 0, 2], np.float32)
ROWS = np.array([[0, 0, 0], [3, 0, 4], [0, -2, 0]], np.float32)
INFINITE = np.array([[-INF, -INF], [-INF, 1], [0, 0]], np.float32)
ROOTS = np.array([0, -1, 4], np.float32)
CASES: dict[str, tuple[Any, Any, tuple[np.ndarray, ...]]] = {
    "atan2": (f.atan2, lambda t, y, x: t.atan2(y, x), ORIGIN),
    "norm": (
        lambda x: f.norm(x, axis=1),
        lambda t, x: t.linalg.vector_norm(x, dim=1),
        (ROWS,),
    ),
    "pow 0": (lambda x: f.pow(x, 0.0), lambda t, x: x.pow(0.0), (ROWS,)),
    "pow 1": (lambda x: f.pow(x, 1.0), lambda t, x: x.pow(1.0), (ROWS,)),
    "pow 2": (lambda x: f.pow(x, 2.0), lambda t, x: x.pow(2.0), (ROWS,)),
    "0 to a power": (f.pow, lambda t, x, y: t.pow(x, y), (ROWS[:2] * 0, np.abs(ROWS[1:]))),
    "a root under where": (
        lambda x: f.where(x > 0, f.sqrt(f.where(x > 0, x, 1.0)), 0.0),
        lambda t, x: t.where(x > 0, t.where(x > 0, x, 1.0).sqrt(), 0.0),
        (ROOTS,),
    ),
    "cumprod": (
        lambda x: f.cumulative_prod(x, axis=1),
        lambda t, x: x.cumprod(1),
        (np.array([[0, 2, 3], [2, 0, 3], [0, 5, 0]], np.float32),),
    ),
    "prod": (lambda x: f.prod(x, axis=1), lambda t, x: x.prod(1), (ROWS,)),
    "logsumexp": (lambda x: f.logsumexp(x, axis=1), lambda t, x: x.logsumexp(1), (INFINITE,)),
    "abs": (f.abs, lambda t, x: x.abs(), (ROWS,)),
    "sign": (f.sign, lambda t, x: x.sign(), (ROWS,)),
}


@pytest.mark.parametrize("device", ["reference", "cpu", "sim"])
@pytest.mark.parametrize("name", CASES)
def test_a_singular_gradient_is_that_of_pytorch(torch: ModuleType, name: str, device: str) -> None:
    if device != "reference":
        need_command("g++", "clang++")
    ours, theirs, arrays = CASES[name]
    weights = np.linspace(1, 2, 8, dtype=np.float32)

    def gradients(*xs: Any) -> Any:
        def loss(*xs: Any) -> Any:
            y = f.flatten(ours(*xs), start_axis=0)
            return f.sum(y * weights[: y.shape[0]]) if y.shape[0] <= 8 else f.sum(y)

        return graphc.grad(loss, tuple(range(len(xs))))(*xs)

    got = graphc.compile(gradients, *(graphc.spec(a.shape) for a in arrays), device=device)(*arrays)
    tensors = [torch.from_numpy(a.copy()).requires_grad_() for a in arrays]
    y = theirs(torch, *tensors).flatten()
    (y * torch.from_numpy(weights)[: len(y)] if len(y) <= 8 else y).sum().backward()
    for one, tensor in zip(got, tensors, strict=True):
        np.testing.assert_allclose(one, tensor.grad.numpy(), rtol=1e-5, atol=1e-6)
