"""Linear algebra.

The operators with `_ex` return whether they failed too, which graphc's functions never say: where
PyTorch raises an error, results are infinite or NaN.
"""

from __future__ import annotations

from typing import Any

from graphc import functions as f
from graphc import linalg
from graphc.gradients.custom import custom_vjp
from graphc.torch.aten.rules import aten
from graphc.trace import Tensor


def _succeeded(x: Tensor) -> Tensor:
    return f.zeros(x.shape[:-2], "i32")


def _by_triangle(x: Tensor, lower: bool) -> Tensor:
    """The symmetric matrices with a triangle of x; the gradient is one of all of x, as there."""
    read = custom_vjp(lambda a: (_mirrored(a, lower), ()), lambda _, d: (d,))
    mirrored: Tensor = read(x)
    return mirrored


def _mirrored(x: Tensor, lower: bool) -> Tensor:
    if lower:
        return f.tril(x) + f.matrix_transpose(f.tril(x, -1))
    return f.triu(x) + f.matrix_transpose(f.triu(x, 1))


@aten("linalg_cholesky_ex")
def cholesky_ex(x: Tensor, upper: bool = False, check_errors: bool = False) -> tuple[Tensor, ...]:
    return linalg.cholesky(_by_triangle(x, not upper), upper), _succeeded(x)


@aten("cholesky", "linalg_cholesky")
def cholesky(x: Tensor, upper: bool = False) -> Tensor:
    return linalg.cholesky(_by_triangle(x, not upper), upper)


@aten("cholesky_solve")
def cholesky_solve(b: Tensor, factor: Tensor, upper: bool = False) -> Tensor:
    y = linalg.triangular_solve(factor, b, lower=not upper, transposed=upper)
    return linalg.triangular_solve(factor, y, lower=not upper, transposed=not upper)


@aten("cholesky_inverse")
def cholesky_inverse(factor: Tensor, upper: bool = False) -> Tensor:
    """The inverse of the matrix with this factor."""
    return cholesky_solve(f.eye(factor.shape[-1], dtype=factor.dtype), factor, upper)


@aten("linalg_inv_ex")
def inv_ex(x: Tensor, check_errors: bool = False) -> tuple[Tensor, ...]:
    return linalg.inv(x), _succeeded(x)


for _name in ("inverse", "linalg_inv"):
    aten(_name)(linalg.inv)


@aten("linalg_solve")
def solve(a: Tensor, b: Tensor, left: bool = True) -> Any:
    return solve_ex(a, b, left)[0]


@aten("_linalg_solve_ex", partly=True)
def solve_ex(a: Tensor, b: Tensor, left: bool = True, check_errors: bool = False) -> Any:
    is_vector = b.ndim == 1 or (b.ndim == a.ndim - 1 and b.shape == a.shape[:-1])
    given = f.expand_dims(b, -1) if is_vector else b
    if left:
        x = linalg.solve(a, given)
    else:
        x = f.matrix_transpose(linalg.solve(f.matrix_transpose(a), f.matrix_transpose(given)))
    return f.squeeze(x, -1) if is_vector else x, None, None, _succeeded(a)


@aten("_linalg_det", partly=True)
def det(x: Tensor) -> Any:
    return linalg.det(x), None, None


@aten("_linalg_slogdet", partly=True)
def slogdet(x: Tensor) -> Any:
    return *linalg.slogdet(x), None, None


@aten("linalg_qr")
def qr(x: Tensor, mode: str = "reduced") -> tuple[Tensor, Tensor]:
    if mode == "r":
        r = linalg.qr(x, "r")
        assert isinstance(r, Tensor)
        return f.zeros((0,), x.dtype), r
    q, r = linalg.qr(x, mode)
    return q, r


@aten("_linalg_eigh")
def eigh(x: Tensor, uplo: str = "L", compute_v: bool = True) -> tuple[Tensor, Tensor]:
    w, v = linalg.eigh(_by_triangle(x, uplo.upper() == "L"))
    return w, v if compute_v else f.zeros((0,), x.dtype)


@aten("_linalg_svd")
def svd(
    x: Tensor, full_matrices: bool = False, compute_uv: bool = True, driver: str | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    if compute_uv:
        return linalg.svd(x, full_matrices)
    nothing = f.zeros((0,), x.dtype)
    return nothing, linalg.svdvals(x), nothing


@aten("linalg_solve_triangular")
def solve_triangular(
    a: Tensor, b: Tensor, *, upper: bool, left: bool = True, unitriangular: bool = False
) -> Tensor:
    return linalg.triangular_solve(a, b, lower=not upper, unit=unitriangular, left=left)


@aten("triangular_solve")
def triangular_solve(
    b: Tensor,
    a: Tensor,
    upper: bool = True,
    transpose: bool = False,
    unitriangular: bool = False,
) -> tuple[Tensor, Tensor]:
    return linalg.triangular_solve(a, b, not upper, transpose, unitriangular), a
