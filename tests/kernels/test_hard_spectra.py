"""Singular values and eigenvalues of matrices that are hard for divide and conquer: equal, nearly
equal, tiny and vanishing ones. Kernels have the bits of the references, which are precise."""

from __future__ import annotations

import functools

import numpy as np
import pytest

from graphc.base.target import Target
from graphc.ir import Type
from graphc.ops import Eigh, Op, Svd
from graphc.ops.base import Array
from tests.kernels.harness import build, single
from tests.tools import first_quick

KINDS = (
    "normal",
    "rounded",
    "wide range",
    "wider range",
    "nearly diagonal",
    "mostly zeros",
    "graded",
    "equal blocks",
    "ones",
    "one column",
)


def bidiagonal(kind: str, n: int, seed: int) -> Array:
    """An upper bidiagonal matrix [n, n] of float64."""
    random = np.random.default_rng(seed)
    d, e = random.normal(size=n), random.normal(size=n)
    if kind == "rounded":
        d, e = np.round(d), np.round(e)
    elif kind in ("wide range", "wider range"):
        low = -8 if kind == "wide range" else -20
        d, e = d * 10.0 ** random.integers(low, 1, n), e * 10.0 ** random.integers(low, 1, n)
    elif kind == "nearly diagonal":
        d, e = np.round(d), e * 1e-7
    elif kind == "mostly zeros":
        d = d * (random.random(n) < 0.3)
    elif kind == "graded":
        d = e = 0.5 ** np.arange(n)
    elif kind == "equal blocks":
        d, e = 1.0 + np.arange(n) % 3, np.where(np.arange(n) % 3 == 2, 0, 1.0)
    elif kind == "ones":
        d = e = np.ones(n)
    elif kind == "one column":
        d, e = np.eye(1, n)[0], np.zeros(n)
    return np.diag(d) + np.diag(e[: n - 1], 1)


@functools.cache
def cases() -> tuple[tuple[Op, Array], ...]:
    found: list[tuple[Op, Array]] = []
    for number, kind in enumerate(KINDS):
        for n in (3, 20, 53):
            for dtype in ("f4", "f8"):
                b = bidiagonal(kind, n, number)
                found.append((Svd(), b[None].astype(dtype)))
                found.append((Eigh(), (b + b.T)[None].astype(dtype)))
    return tuple(found)


def errors(op: Op, x: Array, results: tuple[Array, ...]) -> tuple[float, ...]:
    """How far vectors are from orthonormal, and their products from x, by rounding errors."""
    epsilon = float(np.finfo(x.dtype).eps)
    size = max(float(np.linalg.norm(x[0].astype("f8"), 2)), 1e-30)
    wide = [y[0].astype("f8") for y in results]
    if isinstance(op, Eigh):
        w, v = wide
        left, product = (v.T,), v * w @ v.T
        assert np.all(np.diff(w) >= 0)
    else:
        u, s, vt = wide
        left, product = (u.T, vt), u * s @ vt
        assert np.all(np.diff(s) <= 0)
        assert np.all(s >= 0)
    skew = [float(np.abs(y @ y.T - np.eye(len(y))).max()) for y in left]
    return max(skew) / epsilon, float(np.abs(product - x[0]).max()) / size / epsilon


def test_references_are_precise() -> None:
    for op, x in cases():
        skew, distance = errors(op, x, op.reference(x))
        assert skew < 40, (op, x.shape, x.dtype)
        assert distance < 40, (op, x.shape, x.dtype)


@pytest.mark.parametrize("width", first_quick(1, (16, 8, 4)))
def test_kernels_have_the_bits_of_the_references(width: int) -> None:
    nodes = [
        single(op, [Type(x.shape, f"f{8 * x.itemsize}")], f"hard{number}")
        for number, (op, x) in enumerate(cases())
    ]
    for kernel, (op, x) in zip(build(nodes, Target("cpu", width)), cases(), strict=True):
        for found, expected in zip(kernel.run([x]), op.reference(x), strict=True):
            assert found.tobytes() == expected.tobytes(), (op, x.shape, x.dtype)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("op", [Eigh(), Svd()])
def test_what_is_not_finite_gives_nan(op: Op, bad: float) -> None:
    x = np.eye(5)
    x[2, 1] = bad
    values = op.reference(x)[0 if isinstance(op, Eigh) else 1]
    assert np.isnan(values).all()


def test_zeros_and_multiples_of_one() -> None:
    for x in (np.zeros((4, 4)), 3 * np.eye(4)):
        w, v = Eigh().reference(x)
        assert np.allclose(w, x[0, 0], atol=1e-14)
        assert np.allclose(v @ v.T, np.eye(4))
        u, s, vt = Svd().reference(x)
        assert np.allclose(s, x[0, 0], atol=1e-14)
        assert np.allclose(u @ vt, np.eye(4))
