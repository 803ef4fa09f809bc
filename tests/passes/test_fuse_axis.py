"""What is fused with running results and sorts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import graphc
from graphc import functions as f

X = np.random.default_rng(0).normal(size=(5, 40)).astype(np.float32)


def templates(function: Callable[..., Any], device: str = "cpu") -> list[str]:
    """Of the kernels of `function`, which gives on X what it means in NumPy."""
    program = graphc.compile(function, graphc.spec(X.shape), device=device)
    expected = graphc.compile(function, graphc.spec(X.shape), device="reference")(X)
    found = program(X)
    pairs = zip(found, expected, strict=True) if isinstance(found, tuple) else [(found, expected)]
    for got, want in pairs:
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5, strict=True)
    return [kernel.template for kernel in program.plan.kernels.values()]


@pytest.mark.parametrize("device", ["cpu", "sim"])
def test_what_only_a_running_result_reads_is_computed_there(device: str) -> None:
    assert templates(lambda x: f.cumsum(x > 0, 1), device) == ["prefix"]
    assert templates(lambda x: f.argsort(f.abs(x) * x - 1, 0), device) == ["sort"]


def test_an_operand_that_is_broadcast_or_read_through_a_view_joins_too() -> None:
    def function(x: Any) -> Any:
        return f.cumprod(x[::-1] * f.exp(x[:, :1]) / 8, 1)

    assert templates(function) == ["pointwise", "prefix"]


def test_what_others_read_too_stays_a_kernel_of_its_own() -> None:
    def function(x: Any) -> Any:
        y = f.exp(x)
        return f.cumsum(y, 1), f.sort(y, 1)

    assert sorted(templates(function)) == ["pointwise", "prefix", "sort"]
    assert sorted(templates(lambda x: (y := f.exp(x), f.cumsum(y, 0)))) == ["pointwise", "prefix"]


def test_a_value_that_is_used_twice_within_is_computed_once() -> None:
    def function(x: Any) -> Any:
        y = f.tanh(x)
        return f.cummax(y * y + y, 0)[0]

    assert templates(function) == ["prefix"]
    program = graphc.compile(function, graphc.spec(X.shape), device="cpu")
    (kernel,) = program.plan.kernels.values()
    assert kernel.source.count("tanh(") == 1
