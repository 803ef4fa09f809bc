"""Numbers below the smallest normal one: zeros on every device, unless they are to be kept."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import graphc
from graphc.base.dtypes import flushed

DEVICES = ("cpu", "reference", "sim")
X = np.array([1e-40, -1e-40, 1.5e-38, -1.5e-38, 1.0, -0.0, np.nan, np.inf] * 3, np.float32)


def play(device: str, function: Any, x: Any = X) -> Any:
    return graphc.compile(function, graphc.spec(x.shape, x.dtype), device=device)(x)


@pytest.mark.parametrize("device", DEVICES)
def test_results_and_operands_that_small_are_zeros(device: str) -> None:
    made = play(device, lambda x: x * 0.5)
    expected = np.array([0.0, -0.0, 0.0, -0.0, 0.5, -0.0, np.nan, np.inf] * 3, np.float32)
    np.testing.assert_array_equal(made, expected)
    np.testing.assert_array_equal(np.signbit(made[:6]), np.signbit(expected[:6]))
    # As an operand 1e-40 is zero: no factor brings it back.
    np.testing.assert_array_equal(play(device, lambda x: x * 1e30)[:2], [0, 0])
    np.testing.assert_array_equal(play(device, lambda x: x > 0.0)[:4], [False, False, True, False])
    np.testing.assert_array_equal(play(device, lambda x: graphc.exp(x * 0.0 - 90.0))[:5], [0] * 5)


@pytest.mark.parametrize("device", DEVICES)
def test_sums_of_products_that_small_are_zeros(device: str) -> None:
    a = np.full((20, 20), 1e-20, np.float32)
    assert (play(device, lambda x: x @ x, a) == 0).all()


@pytest.mark.parametrize("device", DEVICES)
def test_they_are_kept_where_that_is_asked_for(
    device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRAPHC_DENORMALS", "keep")
    np.testing.assert_array_equal(play(device, lambda x: x * 0.5), X * np.float32(0.5))
    np.testing.assert_array_equal(play(device, lambda x: x > 0.0), X > 0)
    a = np.full((20, 20), 1e-20, np.float32)
    product = play(device, lambda x: x @ x, a)
    np.testing.assert_allclose(product, np.full((20, 20), 2e-39), rtol=1e-5, atol=2e-44)


@pytest.mark.parametrize("device", DEVICES)
def test_programs_of_both_kinds_live_side_by_side(
    device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def half(x: Any) -> Any:
        return x * 0.5

    spec = graphc.spec(X.shape)
    flushes = graphc.compile(half, spec, device=device, threads=2)
    monkeypatch.setenv("GRAPHC_DENORMALS", "keep")
    keeps = graphc.compile(half, spec, device=device, threads=2)
    for _ in range(3):
        assert flushes(X)[2] == 0 and keeps(X)[2] == X[2] * np.float32(0.5) != 0
        assert np.float32(1e-38) * np.float32(0.5) != 0  # the caller's own mode


def test_other_dtypes_are_left_alone() -> None:
    half = np.array([6e-8, 1], np.float16)
    assert flushed(half) is half
    np.testing.assert_array_equal(flushed(np.array([1e-310, -1e-310, 1e-300])), [0, 0, 1e-300])
    assert flushed(np.array(1e-40, np.float32)).shape == ()
