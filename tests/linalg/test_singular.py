"""Gradients of determinants and pseudoinverses where matrices are singular."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import graphc
from graphc import linalg
from tests.support.derivatives_against_torch import drawn

DEVICES = ("reference", "cpu", "sim")
RANKS = (5, 4, 3, 0)


def call(function: Any, *arrays: Any, device: str = "reference") -> Any:
    specs = [graphc.spec(a.shape, str(a.dtype)) for a in arrays]
    return graphc.compile(function, *specs, device=device)(*arrays)


def cofactors(x: np.ndarray) -> np.ndarray:
    """The gradient of the determinant, by the determinants of its minors."""
    n = len(x)
    found = np.empty_like(x)
    for i in range(n):
        for j in range(n):
            minor = np.delete(np.delete(x, i, 0), j, 1)
            found[i, j] = (-1) ** (i + j) * np.linalg.det(minor)
    return found


def of_rank(rank: int, n: int = 5) -> np.ndarray:
    """Whole numbers, so that elimination finds pivots of 0."""
    draws = np.random.default_rng(rank)
    return (draws.integers(-2, 3, (n, rank)) @ draws.integers(-2, 3, (rank, n))).astype("f8")


def singular() -> np.ndarray:
    nilpotent = np.eye(5, k=1)
    twice = np.ones((5, 5)) + np.diag([0.0, 0, 1, 2, 3])
    return np.stack([*map(of_rank, RANKS), nilpotent, twice])


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_the_gradient_of_a_determinant_is_that_of_its_minors(device: str, dtype: str) -> None:
    x = singular().astype(dtype)

    def total(x: Any) -> Any:
        return graphc.sum(linalg.det(x))

    found = call(graphc.grad(total), x, device=device)
    expected = np.stack([cofactors(a) for a in x.astype("f8")])
    scale = np.abs(expected).max() * (1e-3 if dtype == "f4" else 1e-7)
    np.testing.assert_allclose(found, expected, rtol=0, atol=scale)


def test_second_gradients_of_determinants_are_there_too() -> None:
    x = singular()[[0, 1, 2, 3, 5]]  # the other one has five pivots of 0, which are too many
    weights = drawn(3, x.shape, "f8")

    def slope(x: Any) -> Any:
        return graphc.sum(graphc.grad(lambda a: graphc.sum(linalg.det(a)))(x) * weights)

    found = call(graphc.grad(slope), x)
    step = 1e-4
    for i, a in enumerate(x):
        for place in ((0, 0), (1, 3), (4, 2)):
            low, high = a.copy(), a.copy()
            low[place] -= step
            high[place] += step
            expected = np.sum((cofactors(high) - cofactors(low)) * weights[i]) / (2 * step)
            np.testing.assert_allclose(found[i][place], expected, rtol=1e-5, atol=1e-4)


def test_a_determinant_of_nothing_has_a_gradient() -> None:
    x = np.zeros((3, 0, 0), "f4")
    assert call(graphc.grad(lambda x: graphc.sum(linalg.det(x))), x).shape == x.shape


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("rank", [0, 2, 4])
def test_pseudoinverses_are_those_of_numpy(rank: int, device: str) -> None:
    x = drawn(0, (2, 6, rank), "f8") @ drawn(1, (2, rank, 4), "f8")
    found = call(linalg.pinv, x, device=device)
    np.testing.assert_allclose(found, np.linalg.pinv(x, rcond=1e-12), atol=1e-12)
    b = drawn(2, (2, 6), "f8")
    solved = call(lambda a, b: linalg.lstsq(a, b[..., None]), x, b, device=device)
    for i in range(2):
        expected = np.linalg.lstsq(x[i], b[i], rcond=1e-12)[0]
        np.testing.assert_allclose(solved[i, :, 0], expected, atol=1e-12)


@pytest.mark.parametrize("shape", [(5, 3), (3, 5), (4, 4)])
def test_the_gradient_of_a_pseudoinverse_keeps_the_rank(shape: tuple[int, int]) -> None:
    """Along directions in which the rank stays 2; both singular values are equal."""
    m, n = shape
    u, v = (np.linalg.qr(drawn(k, (k, 2), "f8"))[0] for k in (m, n))
    weights = drawn(7, (n, m), "f8")

    def total(x: Any) -> Any:
        return graphc.sum(linalg.pinv(x, rtol=1e-6) * weights)

    slope = call(graphc.grad(total), u @ v.T)
    for seed in range(3):
        du, dv = drawn(seed, (m, 2), "f8"), drawn(seed + 9, (n, 2), "f8")
        step = 1e-6
        ends = [(u + s * du) @ (v + s * dv).T for s in (step, -step)]
        high, low = (np.sum(np.linalg.pinv(a, rcond=1e-6) * weights) for a in ends)
        direction = du @ v.T + u @ dv.T
        np.testing.assert_allclose(np.sum(slope * direction), (high - low) / (2 * step), rtol=1e-5)


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (2, 0, 0)])
def test_pseudoinverses_of_nothing(shape: tuple[int, ...]) -> None:
    x = np.zeros(shape, "f4")
    assert call(linalg.pinv, x).shape == (*shape[:-2], shape[-1], shape[-2])


def test_a_vector_is_one_column() -> None:
    a, b = drawn(0, (5, 2), "f4"), drawn(1, (5,), "f4")
    expected = np.linalg.lstsq(a, b, rcond=None)[0]
    np.testing.assert_allclose(call(linalg.lstsq, a, b), expected, rtol=1e-4)
