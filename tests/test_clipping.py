"""How gradients are clipped where they are tiny, or floats of two bytes."""

from __future__ import annotations

import numpy as np

import graphc
from graphc import nn, optim
from tests.nn.running import Array


class Single(nn.Module):
    def __init__(self, values: Array) -> None:
        self.weight = nn.Parameter(values)


def step_of(values: Array, slopes: Array, clip: float) -> Array:
    """How far a step of SGD at rate 1 goes with these gradients."""
    model = Single(values)
    program = graphc.compile(
        lambda m, d: graphc.sum(m.weight * d),
        model,
        graphc.spec(slopes.shape, slopes.dtype),
        update=optim.SGD(lr=1.0, clip_grad_norm=clip),
        device="reference",
    )
    program(slopes)
    return values.astype(np.float64) - model.weight.numpy().astype(np.float64)


def test_a_norm_is_counted_a_millionth_larger_when_gradients_are_clipped() -> None:
    slopes = np.array([6e-7, 8e-7], np.float32)
    moved = step_of(np.zeros(2, np.float32), slopes, 1e-6)
    np.testing.assert_allclose(moved, slopes / 2, rtol=1e-5)  # 1e-6 / (1e-6 + 1e-6)


def test_a_norm_of_narrow_gradients_does_not_overflow() -> None:
    slopes = np.array([300.0, 400.0], np.float16)  # whose squares float16 does not hold
    moved = step_of(np.zeros(2, np.float16), slopes, 1.0)
    np.testing.assert_allclose(moved, [0.6, 0.8], rtol=1e-3)


def test_a_norm_of_narrow_gradients_does_not_vanish() -> None:
    slopes = np.array([3e-5, 4e-5], np.float16)  # whose squares are zero in float16
    moved = step_of(np.zeros(2, np.float16), slopes, 1e-5)
    size = np.sqrt(np.sum(slopes.astype(np.float64) ** 2))
    np.testing.assert_allclose(moved, slopes / (size + 1e-6) * 1e-5, rtol=2e-2)
