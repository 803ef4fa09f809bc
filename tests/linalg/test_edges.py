"""Matrices that cannot be factored, of extreme sizes, without elements; views; wrong arguments."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import graphc
from graphc import functions as f
from graphc import linalg, ops
from graphc.base.errors import GraphError
from graphc.ir import Type
from graphc.ops.base import Op
from tests.functions.failing import Failure
from tests.support.derivatives_against_torch import as_tuple, drawn

DEVICES = ("reference", "cpu", "sim")


def call(function: Any, *arrays: Any, device: str = "reference") -> Any:
    specs = [graphc.spec(a.shape, str(a.dtype)) for a in arrays]
    return graphc.compile(function, *specs, device=device)(*arrays)


@pytest.mark.parametrize("device", DEVICES)
def test_what_is_not_positive_definite_gives_nan_alone(device: str) -> None:
    x = np.stack([np.eye(3), np.diag([1.0, -1, 1]), np.zeros((3, 3)), np.full((3, 3), np.nan)])
    y = call(linalg.cholesky, x.astype("f4"), device=device)
    np.testing.assert_array_equal(y[0], np.eye(3))
    lower = np.tril(np.ones((3, 3))) > 0
    assert np.isnan(y[1:, lower]).all() and (y[:, ~lower] == 0).all()


@pytest.mark.parametrize("device", DEVICES)
def test_singular_matrices(device: str) -> None:
    x = np.array([[[1, 2], [2, 4]], [[0, 0], [0, 0]], [[0, 1], [1, 0]]], "f8")

    def every(x: Any) -> Any:
        return linalg.det(x), *linalg.slogdet(x), linalg.inv(x), linalg.svdvals(x)

    det, sign, log, inverse, values = call(every, x, device=device)
    np.testing.assert_array_equal(det, [0, 0, -1])
    np.testing.assert_array_equal(sign, [0, 0, -1])
    np.testing.assert_array_equal(log, [-np.inf, -np.inf, 0])
    assert not np.isfinite(inverse[:2]).any(axis=(1, 2)).all()
    np.testing.assert_array_equal(inverse[2], x[2])
    np.testing.assert_allclose(values, [[5, 0], [0, 0], [1, 1]], atol=1e-15)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("rank", [0, 1, 3])
def test_vectors_are_orthonormal_whatever_the_rank(rank: int, device: str) -> None:
    x = drawn(0, (2, 7, rank), "f8") @ drawn(1, (2, rank, 5), "f8")

    def every(x: Any) -> Any:
        whole, square = linalg.svd(x), x @ f.matrix_transpose(x)
        return *whole, *linalg.qr(x, "complete"), *linalg.eigh(square), linalg.qr(square)[0]

    u, s, vh, q, r, w, v, other = call(every, x, device=device)
    for vectors in (u, np.swapaxes(vh, 1, 2), q, v, other):
        unit = np.broadcast_to(np.eye(vectors.shape[-1]), (2, *vectors.shape[-1:] * 2))
        np.testing.assert_allclose(np.swapaxes(vectors, 1, 2) @ vectors, unit, atol=1e-13)
    np.testing.assert_allclose(u[..., :5] * s[:, None] @ vh, x, atol=1e-13)
    np.testing.assert_allclose(q @ r, x, atol=1e-13)
    np.testing.assert_allclose(
        v * w[:, None] @ np.swapaxes(v, 1, 2), x @ np.swapaxes(x, 1, 2), atol=1e-12
    )
    assert (np.diff(s) <= 0).all() and (np.diff(w) >= 0).all() and (s[:, rank:] < 1e-13).all()


@pytest.mark.parametrize("scale", [1e-25, 1e25])
def test_squares_out_of_range(scale: float) -> None:
    x = drawn(0, (4, 4), "f4")
    x = x + x.T

    def every(x: Any) -> Any:
        return linalg.eigvalsh(x), linalg.svdvals(x), linalg.qr(x, "r")

    for got, wanted in zip(call(every, (x * scale).astype("f4")), call(every, x), strict=True):
        np.testing.assert_allclose(got / scale, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("device", DEVICES)
def test_nothing(device: str) -> None:
    square, b, tall = (
        np.zeros((0, 3, 3), "f4"),
        np.zeros((0, 3, 2), "f4"),
        np.zeros((2, 4, 0), "f4"),
    )

    def every(x: Any, b: Any, tall: Any) -> Any:
        def loss(x: Any) -> Any:
            return f.sum(linalg.solve(x, b)) + f.sum(linalg.cholesky(x))

        return (
            graphc.grad(loss)(x), linalg.slogdet(x), linalg.eigh(x), linalg.inv(x),
            linalg.svd(tall), linalg.qr(tall), linalg.det(f.zeros((2, 0, 0))),
        )  # fmt: skip

    slope, slogdet, eigh, inverse, svd, qr, det = call(every, square, b, tall, device=device)
    assert slope.shape == inverse.shape == eigh[1].shape == (0, 3, 3) and slogdet[0].shape == (0,)
    assert [y.shape for y in (*svd, *qr)] == [(2, 4, 4), (2, 0), (2, 0, 0), (2, 4, 0), (2, 0, 0)]
    np.testing.assert_array_equal(det, [1, 1])


@pytest.mark.parametrize("device", DEVICES)
def test_operands_are_read_through_views(device: str) -> None:
    """Transposed, sliced, reversed, broadcast, joined and padded."""
    x, b = drawn(0, (6, 5, 2, 6), "f8"), drawn(1, (5,), "f8")

    def every(x: Any, b: Any) -> Any:
        a = f.permute_dims(x, (2, 1, 3, 0))[:, ::2, 1:4, :3][:, :, ::-1]
        a = a + 4 * f.eye(3, dtype="f64")
        column = f.broadcast_to(b[1:4][:, None], (2, 3, 3, 1))
        joined = f.concat([a[..., :2], column], axis=-1) + 3 * f.eye(3, dtype="f64")
        padded = f.pad(a, [(0, 0), (0, 0), (0, 1), (0, 1)]) + f.eye(4, dtype="f64")
        lower = linalg.triangular_solve(f.matrix_transpose(a), column, lower=False)
        reverse = linalg.triangular_solve(a[..., ::-1, ::-1], f.flip(column, -2), lower=True)
        return linalg.solve(a, b[::2]), linalg.inv(joined), linalg.det(padded), lower, reverse

    results = call(every, x, b, device=device)
    a = np.transpose(x, (2, 1, 3, 0))[:, ::2, 1:4, :3][:, :, ::-1] + 4 * np.eye(3)
    column = np.broadcast_to(b[1:4][:, None], (2, 3, 3, 1))
    expected = (
        np.linalg.solve(a, np.broadcast_to(b[::2, None], (2, 3, 3, 1)))[..., 0],
        np.linalg.inv(np.concatenate([a[..., :2], column], -1) + 3 * np.eye(3)),
        np.linalg.det(np.pad(a, [(0, 0), (0, 0), (0, 1), (0, 1)]) + np.eye(4)),
        np.linalg.solve(np.triu(np.swapaxes(a, -1, -2)), column),
        np.linalg.solve(np.tril(a[..., ::-1, ::-1]), column[..., ::-1, :]),
    )
    for got, wanted in zip(results, expected, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-9, atol=1e-9)


def test_two_bytes_are_factored_in_four() -> None:
    x = (drawn(0, (3, 3), "f4") + 4 * np.eye(3, dtype="f4")).astype("f2")
    for function in (linalg.inv, linalg.det, lambda x: linalg.qr(x)[1], linalg.svdvals):
        got, wide = call(function, x), call(function, x.astype("f4"))
        for a, b in zip(as_tuple(got), as_tuple(wide), strict=True):
            assert a.dtype == np.float16
            np.testing.assert_array_equal(a, b.astype("f2"))


def test_equal_eigenvalues_have_a_gradient_but_not_their_vectors() -> None:
    def every(x: Any) -> Any:
        values = graphc.grad(lambda x: f.sum(linalg.eigvalsh(x) ** 2))(x)
        return values, graphc.grad(lambda x: f.sum(linalg.eigh(x)[1][0]))(x)

    values, vectors = call(every, np.eye(3))
    np.testing.assert_allclose(values, 2 * np.eye(3), atol=1e-15)
    assert not np.isfinite(vectors).all()


MISTAKES = (
    Failure("cholesky: expected matrices [..., m, n], got f32[3]", linalg.cholesky, ("f32[3]",)),
    Failure("inv: expected square matrices [..., n, n], got f32[2,3]", linalg.inv, ("f32[2,3]",)),
    Failure(
        "solve: expected b to have 3 rows like a f32[3,3], got f32[2,1]",
        linalg.solve,
        ("f32[3,3]", "f32[2,1]"),
    ),
    Failure(
        "triangular_solve: expected b to have 3 columns like a f32[3,3], got f32[2,1]",
        lambda a, b: linalg.triangular_solve(a, b, left=False),
        ("f32[3,3]", "f32[2,1]"),
    ),
    Failure(
        "solve: leading axes of f32[2,3,3] and f32[4,3,1] do not broadcast",
        linalg.solve,
        ("f32[2,3,3]", "f32[4,3,1]"),
    ),
    Failure("pinv: expected matrices [..., m, n], got f32[3]", linalg.pinv, ("f32[3]",)),
    Failure(
        "pinv: expected rtol from 0 up, got -1.0",
        lambda a: linalg.pinv(a, rtol=-1.0),
        ("f32[2,2]",),
    ),
    Failure(
        "lstsq: expected b to have 2 rows like a f32[2,3], got f32[3,1]",
        linalg.lstsq,
        ("f32[2,3]", "f32[3,1]"),
    ),
    Failure(
        "qr: expected mode to be one of reduced, complete, r, got 'full'",
        lambda a: linalg.qr(a, "full"),
        ("f32[3,3]",),
    ),
)


TYPES: tuple[tuple[str, Op, tuple[str, ...]], ...] = (
    (
        "triangular_solve: expected matrices [..., m, n] with equal leading axes, "
        "got f32[2,3,3] and f32[3,1]",
        ops.TriangularSolve(True),
        ("f32[2,3,3]", "f32[3,1]"),
    ),
    (
        "triangular_solve: f32[3,3] and f32[2,1] have no common extent",
        ops.TriangularSolve(True),
        ("f32[3,3]", "f32[2,1]"),
    ),
    ("lu: expected square matrices, got f32[2,3]", ops.Lu(), ("f32[2,3]",)),
    ("eigh: expected floats, got i32[3,3]", ops.Eigh(), ("i32[3,3]",)),
    ("qr: expected at least as many rows as columns, got f32[2,3]", ops.Qr(), ("f32[2,3]",)),
    ("svd: expected at least as many rows as columns, got f32[2,3]", ops.Svd(), ("f32[2,3]",)),
)


@pytest.mark.parametrize(("message", "op", "inputs"), TYPES)
def test_types_that_ops_refuse(message: str, op: Op, inputs: tuple[str, ...]) -> None:
    types = []
    for text in inputs:
        dtype, _, extents = text.rstrip("]").partition("[")
        types.append(Type(tuple(map(int, extents.split(","))), dtype))
    with pytest.raises(GraphError) as found:
        op.infer(*types)
    assert str(found.value) == message


@pytest.mark.parametrize("failure", MISTAKES, ids=str)
def test_mistakes(failure: Failure) -> None:
    failure.check()
