"""Triangular factorizations, systems of equations, inverses and determinants."""

from __future__ import annotations

from typing import Any

from graphc import ops
from graphc.base.source_lines import error
from graphc.functions import abs as abs_of
from graphc.functions import (
    astype,
    broadcast_to,
    diagonal,
    expand_dims,
    eye,
    log,
    matmul,
    matrix_transpose,
    prod,
    sign,
    squeeze,
    stop_gradient,
    take_along_axis,
    tril,
    where,
)
from graphc.functions import max as max_of
from graphc.functions import sum as sum_of
from graphc.functions.array.tensors import floating, promoted
from graphc.gradients.custom import custom_vjp
from graphc.ir import TensorLike
from graphc.linalg.arguments import dtype_of, matrices, symmetric, with_leading
from graphc.trace import Tensor, current_builder, emit

ROUNDING = {"f32": 2.0**-22, "f64": 2.0**-51}
"""Up to so much times n a pivot is rounding alone, in units of the largest element."""
PIVOT = {"f32": 2.0**-12, "f64": 2.0**-26}
"""What is added to it for the gradient of a determinant, in the same units.

The gradient is off by about so much, and its own gradient by the precision divided by it.
"""


def cholesky(x: TensorLike, upper: bool = False) -> Tensor:
    """Return the lower triangular L with L @ L.T = x, as numpy.linalg.cholesky.

    Args:
        x: Symmetric positive definite matrices [..., n, n]. Of others the mean of x and its
            transpose counts; where that is not positive definite, L is NaN on and below its
            diagonal.
        upper: Whether to return the transpose of L.

    Raises:
        GraphError: x is not square.

    Example:
        >>> graphc.compile(lambda: graphc.linalg.cholesky([[4.0, 2.0], [2.0, 5.0]]))()
        array([[2., 0.],
               [1., 2.]], dtype=float32)
    """
    lower = emit(ops.Cholesky(), symmetric(matrices("cholesky", x, square=True)))
    return astype(matrix_transpose(lower) if upper else lower, dtype_of(x))


def triangular_solve(
    a: TensorLike,
    b: TensorLike,
    lower: bool = True,
    transposed: bool = False,
    unit: bool = False,
    left: bool = True,
) -> Tensor:
    """Solve a @ x = b, where a is triangular.

    Args:
        a: Matrices [..., n, n], of which one triangle is read.
        b: Right-hand sides [..., n, m], or [..., m, n] unless `left`; a vector [n] counts as one
            column. Leading axes broadcast.
        lower: Whether the triangle is the lower one.
        transposed: Whether to solve a.T @ x = b.
        unit: Whether the diagonal of `a` counts as ones.
        left: Whether `a` is on the left; otherwise it is x @ a = b.

    Returns:
        x, of the shape of `b` after broadcasting.

    Raises:
        GraphError: a is not square, or the shapes do not fit.

    Example:
        >>> a, b = [[2.0, 0.0], [1.0, 2.0]], [4.0, 4.0]
        >>> graphc.compile(lambda: graphc.linalg.triangular_solve(a, b))()
        array([2., 1.], dtype=float32)
    """
    first, second, is_vector = _system("triangular_solve", a, b, left)
    dtype = _joined_dtype(a, b)
    # x @ a = b is a.T @ x.T = b.T.
    op = ops.TriangularSolve(lower, transposed == left, unit)
    if left:
        x = emit(op, first, second)
    else:
        x = matrix_transpose(emit(op, first, matrix_transpose(second)))
    return astype(squeeze(x, axis=-1) if is_vector else x, dtype)


def solve(a: TensorLike, b: TensorLike) -> Tensor:
    """Solve a @ x = b, as numpy.linalg.solve.

    It uses the LU factorization with row pivots. Where a is singular, x is infinite or NaN.

    Args:
        a: Matrices [..., n, n].
        b: Right-hand sides [..., n, m], or one vector [n]. Leading axes broadcast.

    Raises:
        GraphError: a is not square, or the shapes do not fit.

    Example:
        >>> a, b = [[0.0, 2.0], [1.0, 1.0]], [4.0, 3.0]
        >>> graphc.compile(lambda: graphc.linalg.solve(a, b))()
        array([1., 2.], dtype=float32)
    """
    first, second, is_vector = _system("solve", a, b, True)
    x = _solved(first, second)
    return astype(squeeze(x, axis=-1) if is_vector else x, _joined_dtype(a, b))


def inv(x: TensorLike) -> Tensor:
    """Return the inverses of matrices, as numpy.linalg.inv.

    Where x is singular, the result is infinite or NaN. `solve` is faster and more precise than a
    product with an inverse.

    Args:
        x: Matrices [..., n, n].

    Raises:
        GraphError: x is not square.

    Example:
        >>> graphc.compile(lambda: graphc.linalg.inv([[2.0, 0.0], [0.0, 4.0]]))()
        array([[0.5 , 0.  ],
               [0.  , 0.25]], dtype=float32)
    """
    a = matrices("inv", x, square=True)
    first, second = with_leading("inv", a, eye(a.shape[-1], dtype=a.dtype))
    return astype(_solved(first, second), dtype_of(x))


def det(x: TensorLike) -> Tensor:
    """Return the determinants of matrices, as numpy.linalg.det.

    The gradient, the matrix of cofactors, is there for singular matrices too, where it is precise
    to about 2e-4 (f32) or 1e-8 (f64) of the largest; its own gradient is so too, unless many pivots
    are 0.

    Args:
        x: Matrices [..., n, n].

    Returns:
        [...].

    Raises:
        GraphError: x is not square.

    Example:
        >>> graphc.compile(lambda: graphc.linalg.det([[1.0, 2.0], [3.0, 4.0]]))()
        array(-2., dtype=float32)
    """
    return astype(_determinant(matrices("det", x, square=True)), dtype_of(x))


def slogdet(x: TensorLike) -> tuple[Tensor, Tensor]:
    """Return the signs of determinants and the logarithms of their magnitudes.

    These do not overflow. A singular matrix has sign 0 and logarithm -inf.

    Args:
        x: Matrices [..., n, n].

    Returns:
        Two tensors [...], as numpy.linalg.slogdet.

    Raises:
        GraphError: x is not square.

    Example:
        >>> graphc.compile(lambda: graphc.linalg.slogdet([[1.0, 0.0], [0.0, -1.0]]))()
        (array(-1., dtype=float32), array(0., dtype=float32))
    """
    packed, _, swaps = current_builder().emit(ops.Lu(), matrices("slogdet", x, square=True))
    pivots = diagonal(packed, axis1=-2, axis2=-1)
    signs = swaps * prod(sign(pivots), axis=-1)
    logs = sum_of(log(abs_of(pivots)), axis=-1)
    return astype(signs, dtype_of(x)), astype(logs, dtype_of(x))


def _multiplied(a: Tensor) -> tuple[Tensor, Any]:
    """The determinants, and what their gradient needs."""
    product, packed, rows = _product(a)
    return product, (a, packed, rows)


def _product(a: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The product of the pivots with the sign of their order, L and U, and the order."""
    packed, rows, swaps = current_builder().emit(ops.Lu(), a)
    return swaps * prod(diagonal(packed, axis1=-2, axis2=-1), axis=-1), packed, rows


def _cofactors(residuals: Any, d: Tensor) -> tuple[Tensor]:
    """det(a) inv(a)^T, times d, where no pivot is 0.

    Where pivots are, something small is added to them, that is, times columns of P^T L to a.
    """
    a, packed, rows = residuals
    if not a.shape[-1]:
        return (a,)
    one = eye(a.shape[-1], dtype=a.dtype)
    pivots = diagonal(packed, axis1=-2, axis2=-1)
    largest = max_of(abs_of(a), axis=(-2, -1), keepdims=True)
    scale = where(largest > 0, largest, 1)
    vanishing = abs_of(expand_dims(pivots, axis=-2)) <= scale * (a.shape[-1] * ROUNDING[a.dtype])
    lower = tril(packed, -1) + one
    added = lower * where(vanishing, scale * PIVOT[a.dtype], 0)
    moved = take_along_axis(added, expand_dims(_inverse(rows), axis=-1), axis=-2)
    regular = a + stop_gradient(moved)
    turned = matrix_transpose(_solved(regular, broadcast_to(one, a.shape)))
    factor = d * _product(regular)[0]
    return (turned * expand_dims(expand_dims(factor, axis=-1), axis=-1),)


def _system(name: str, a: TensorLike, b: TensorLike, left: bool) -> tuple[Tensor, Tensor, bool]:
    """The matrices of a system, broadcast, and whether b was a vector."""
    found, given = promoted(floating(a), floating(b))
    first = matrices(name, found, square=True)
    is_vector = given.ndim == 1
    second = matrices(name, expand_dims(given, axis=-1) if is_vector else given)
    extent = second.shape[-2 if left or is_vector else -1]
    if extent != first.shape[-1] or (is_vector and not left):
        raise error(
            f"{name}: expected b to have {first.shape[-1]} {'rows' if left else 'columns'} like "
            f"a {found.value.type}, got {given.value.type}"
        )
    return *with_leading(name, first, second), is_vector


def _joined_dtype(a: TensorLike, b: TensorLike) -> str:
    return promoted(floating(a), floating(b))[0].dtype


def _forward(a: Tensor, b: Tensor) -> tuple[Tensor, Any]:
    packed, rows, _ = current_builder().emit(ops.Lu(), a)
    permuted = take_along_axis(b, expand_dims(rows, axis=-1), axis=-2)
    y = emit(ops.TriangularSolve(True, unit=True), packed, permuted)
    x = emit(ops.TriangularSolve(False), packed, y)
    return x, (packed, rows, x)


def _backward(residuals: Any, d: Tensor) -> tuple[Tensor, Tensor]:
    """The gradient of b is the solution with a transposed, from the same factors."""
    packed, rows, x = residuals
    y = emit(ops.TriangularSolve(False, transposed=True), packed, d)
    permuted = emit(ops.TriangularSolve(True, transposed=True, unit=True), packed, y)
    places = expand_dims(_inverse(rows), axis=-1)
    of_b = take_along_axis(permuted, places, axis=-2)
    return -matmul(of_b, matrix_transpose(x)), of_b


def _inverse(rows: Tensor) -> Tensor:
    """The inverses of permutations."""
    return current_builder().emit(ops.Sort(rows.ndim - 1, rows.shape[-1]), rows)[1]


_solved = custom_vjp(_forward, _backward)
_determinant = custom_vjp(_multiplied, _cofactors)
