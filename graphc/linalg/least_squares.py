"""Pseudoinverses and least squares, for matrices of any shape and rank."""

from __future__ import annotations

from typing import Any

from graphc.base.source_lines import error
from graphc.functions import astype, expand_dims, eye, matmul, matrix_transpose, squeeze, where
from graphc.functions import max as max_of
from graphc.functions.array.tensors import floating, promoted
from graphc.gradients.custom import custom_vjp
from graphc.ir import TensorLike
from graphc.linalg.arguments import dtype_of, matrices, with_leading
from graphc.linalg.spectral import svd
from graphc.trace import Tensor

EPSILON = {"f32": 2.0**-23, "f64": 2.0**-52}
"""The distance between 1 and the next number."""


def pinv(x: TensorLike, rtol: float | None = None) -> Tensor:
    """Return the pseudoinverses of matrices (Moore and Penrose), as numpy.linalg.pinv.

    The gradient is that where the rank stays as it is (Golub and Pereyra, 1973), so that equal
    singular values do no harm.

    Args:
        x: Matrices [..., m, n].
        rtol: Singular values up to this part of the largest count as 0; by default max(m, n) times
            the distance between 1 and the next number of the dtype.

    Returns:
        [..., n, m].

    Raises:
        GraphError: x is no matrix, or `rtol` is negative.

    Example:
        >>> graphc.compile(lambda: graphc.linalg.pinv([[2.0, 0.0], [0.0, 0.0]]))()
        array([[0.5, 0. ],
               [0. , 0. ]], dtype=float32)
    """
    a = matrices("pinv", x)
    return astype(_inverse("pinv", a, rtol), dtype_of(x))


def lstsq(a: TensorLike, b: TensorLike, rtol: float | None = None) -> Tensor:
    """Return the x of least norm among those for which the norm of a @ x - b is least.

    It is the first of the results of numpy.linalg.lstsq.

    Args:
        a: Matrices [..., m, n], of any rank.
        b: Right-hand sides [..., m, k], or one vector [m]. Leading axes broadcast.
        rtol: As in `pinv`.

    Returns:
        [..., n, k], or [..., n] for a vector.

    Raises:
        GraphError: a is no matrix, the shapes do not fit, or `rtol` is negative.

    Example:
        >>> a, b = [[1.0], [1.0]], [1.0, 3.0]
        >>> graphc.compile(lambda: graphc.linalg.lstsq(a, b))()
        array([2.], dtype=float32)
    """
    found, given = promoted(floating(a), floating(b))
    first, is_vector = matrices("lstsq", found), given.ndim == 1
    second = matrices("lstsq", expand_dims(given, axis=-1) if is_vector else given)
    if second.shape[-2] != first.shape[-2]:
        raise error(
            f"lstsq: expected b to have {first.shape[-2]} rows like a {found.value.type}, got "
            f"{given.value.type}"
        )
    first, second = with_leading("lstsq", first, second)
    x = astype(matmul(_inverse("lstsq", first, rtol), second), found.dtype)
    return squeeze(x, axis=-1) if is_vector else x


def _inverse(name: str, a: Tensor, rtol: float | None) -> Tensor:
    """The pseudoinverses of matrices f32 or f64."""
    if rtol is None:
        rtol = max(a.shape[-2:]) * EPSILON[a.dtype]
    if not rtol >= 0:
        raise error(f"{name}: expected rtol from 0 up, got {rtol!r}")
    if 0 in a.shape[-2:]:
        return matrix_transpose(a)
    found: Tensor = custom_vjp(lambda x: _forward(x, rtol), _backward)(a)
    return found


def _forward(a: Tensor, rtol: float) -> tuple[Tensor, Any]:
    u, s, vt = svd(a, full_matrices=False)
    kept = s > rtol * max_of(s, axis=-1, keepdims=True)
    inverted = where(kept, 1 / where(kept, s, 1), 0)
    p = matmul(matrix_transpose(vt) * expand_dims(inverted, axis=-2), matrix_transpose(u))
    return p, (a, p)


def _backward(residuals: Any, d: Tensor) -> tuple[Tensor]:
    """The gradient, of which the last two parts are 0 where a is square and invertible."""
    a, p = residuals
    turned, back = matrix_transpose(p), matrix_transpose(d)
    m, n = a.shape[-2:]
    outside = eye(m, dtype=a.dtype) - matmul(a, p)
    inside = eye(n, dtype=a.dtype) - matmul(p, a)
    of_rows = matmul(matmul(outside, back), matmul(p, turned))
    of_columns = matmul(matmul(turned, p), matmul(back, inside))
    return (of_rows + of_columns - matmul(matmul(turned, d), turned),)
