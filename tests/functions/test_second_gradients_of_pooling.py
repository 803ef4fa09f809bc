"""A gradient penalty through pooling is PyTorch's, as a critic with max pooling is trained."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import pytest

import graphc
from graphc import functions as f
from tests.functions.comparison import normal
from tests.tools import need_command, need_module


@pytest.fixture(scope="module")
def torch() -> ModuleType:
    return need_module("torch")


CASES: dict[str, tuple[tuple[int, ...], str, dict[str, Any]]] = {
    "tiles": ((2, 3, 8, 6), "max_pool2d", {"kernel_size": 2}),
    "windows overlap": ((2, 3, 9, 7), "max_pool2d", {"kernel_size": 3, "stride": 2, "padding": 1}),
    "pixels that no window has": ((1, 2, 9, 11), "max_pool2d", {"kernel_size": 2, "stride": 3}),
    "dilated": ((1, 2, 9, 9), "max_pool2d", {"kernel_size": 2, "dilation": 2}),
    "one axis": ((2, 3, 11), "max_pool1d", {"kernel_size": 3, "stride": 2}),
    "three axes": ((1, 2, 5, 6, 7), "max_pool3d", {"kernel_size": 2}),
    "means": ((2, 3, 8, 6), "avg_pool2d", {"kernel_size": 2}),
}


@pytest.mark.parametrize("device", ["reference", "cpu", "sim"])
@pytest.mark.parametrize("name", CASES)
def test_a_gradient_penalty_through_pooling(torch: ModuleType, name: str, device: str) -> None:
    if device != "reference":
        need_command("g++", "clang++")
    shape, pool, settings = CASES[name]
    x = normal(*shape).astype(np.float32)

    def penalty(x: Any) -> Any:
        slope = graphc.grad(lambda x: f.sum(f.tanh(getattr(f, pool)(f.square(x), **settings))))(x)
        return f.sum(f.square(slope))

    program = graphc.compile(graphc.value_and_grad(penalty), graphc.spec(shape), device=device)
    value, slope = program(x)
    theirs = torch.from_numpy(x.copy()).requires_grad_()
    pooled = getattr(torch.nn.functional, pool)(theirs.square(), **settings)
    (first,) = torch.autograd.grad(pooled.tanh().sum(), theirs, create_graph=True)
    expected = first.square().sum()
    expected.backward()
    np.testing.assert_allclose(value, expected.item(), rtol=1e-4)
    np.testing.assert_allclose(slope, theirs.grad.numpy(), rtol=2e-4, atol=2e-5)
