"""Orthogonal factorizations: QR, eigenvalues of symmetric matrices, singular values."""

from __future__ import annotations

from graphc import ops
from graphc.base.source_lines import error
from graphc.functions import (
    astype,
    broadcast_to,
    concat,
    eye,
    matmul,
    matrix_transpose,
    squeeze,
)
from graphc.ir import TensorLike
from graphc.linalg.arguments import dtype_of, matrices, scale_of, symmetric
from graphc.trace import Tensor, current_builder

MODES = ("reduced", "complete", "r")
"""What `qr` returns."""


def qr(x: TensorLike, mode: str = "reduced") -> tuple[Tensor, Tensor] | Tensor:
    """Factor matrices [..., m, n] into Q @ R: orthonormal columns, and an upper triangle.

    Args:
        x: The matrices.
        mode: "reduced" returns Q [..., m, k] and R [..., k, n], where k = min(m, n); "complete"
            returns Q [..., m, m] and R [..., m, n]; "r" returns the R of "reduced" alone. The
            gradient asks that the first k columns of x are independent, in mode "complete" those
            of x and of the unit matrix behind it.

    Returns:
        (Q, R), with the signs of numpy.linalg.qr, or R.

    Raises:
        GraphError: x is no matrix or `mode` is unknown.

    Example:
        >>> graphc.compile(lambda: graphc.linalg.qr([[0.0, 1.0], [2.0, 3.0]]))()
        (array([[-0., -1.],
               [-1., -0.]], dtype=float32), array([[-2., -3.],
               [ 0., -1.]], dtype=float32))
    """
    if mode not in MODES:
        raise error(f"qr: expected mode to be one of {', '.join(MODES)}, got {mode!r}")
    a, dtype = matrices("qr", x), dtype_of(x)
    q, r = _factored(a, complete=mode == "complete")
    return astype(r, dtype) if mode == "r" else (astype(q, dtype), astype(r, dtype))


def eigh(x: TensorLike) -> tuple[Tensor, Tensor]:
    """Return eigenvalues and eigenvectors of symmetric matrices, as numpy.linalg.eigh.

    Args:
        x: Symmetric matrices [..., n, n]; of others the mean of x and its transpose counts.

    Returns:
        Eigenvalues [..., n] in ascending order, and as columns of [..., n, n] the eigenvectors of
        length 1, whose signs mean nothing. The gradient of eigenvectors is infinite or NaN where
        eigenvalues are equal.

    Raises:
        GraphError: x is not square.

    Example:
        >>> graphc.compile(lambda: graphc.linalg.eigh([[3.0, 0.0], [0.0, 2.0]])[0])()
        array([2., 3.], dtype=float32)
    """
    a, dtype = symmetric(matrices("eigh", x, square=True)), dtype_of(x)
    scale = scale_of(a)
    w, v = current_builder().emit(ops.Eigh(), a if scale is None else a / scale)
    w = w if scale is None else w * squeeze(scale, axis=-1)
    return astype(w, dtype), astype(v, dtype)


def eigvalsh(x: TensorLike) -> Tensor:
    """Return the eigenvalues of symmetric matrices alone, as `eigh` does.

    Example:
        >>> graphc.compile(lambda: graphc.linalg.eigvalsh([[3.0, 0.0], [0.0, 2.0]]))()
        array([2., 3.], dtype=float32)
    """
    return eigh(x)[0]


def svd(x: TensorLike, full_matrices: bool = True) -> tuple[Tensor, Tensor, Tensor]:
    """Return the singular value decomposition of matrices, as numpy.linalg.svd.

    x = U[..., :k] @ diag(s) @ Vh[..., :k, :], where k = min(m, n).

    Args:
        x: Matrices [..., m, n].
        full_matrices: Whether U is [..., m, m] and Vh [..., n, n]; otherwise they are [..., m, k]
            and [..., k, n].

    Returns:
        U, with orthonormal columns; s [..., k], descending; Vh, with orthonormal rows. The signs of
        columns of U and rows of Vh mean nothing. The gradients of U and Vh are infinite or NaN
        where singular values are equal.

    Raises:
        GraphError: x is no matrix.

    Example:
        >>> graphc.compile(lambda: graphc.linalg.svd([[3.0, 0.0], [0.0, 4.0]])[1])()
        array([4., 3.], dtype=float32)
    """
    a, dtype = matrices("svd", x), dtype_of(x)
    wide = a.shape[-2] < a.shape[-1]
    scale = scale_of(a)
    given = matrix_transpose(a) if wide else a
    u, s, vt = current_builder().emit(ops.Svd(), given if scale is None else given / scale)
    s = s if scale is None else s * squeeze(scale, axis=-1)
    if full_matrices and given.shape[-2] > given.shape[-1]:
        u = concat([u, _completed(u)[0][..., given.shape[-1] :]], axis=-1)
    left, right = (matrix_transpose(vt), matrix_transpose(u)) if wide else (u, vt)
    return astype(left, dtype), astype(s, dtype), astype(right, dtype)


def svdvals(x: TensorLike) -> Tensor:
    """Return the singular values of matrices alone, as `svd` does.

    Example:
        >>> graphc.compile(lambda: graphc.linalg.svdvals([[3.0, 0.0], [0.0, 4.0]]))()
        array([4., 3.], dtype=float32)
    """
    return svd(x, full_matrices=False)[1]


def _factored(a: Tensor, complete: bool) -> tuple[Tensor, Tensor]:
    m, n = a.shape[-2:]
    if m < n:
        # Q belongs to the first columns; the others are multiplied by it.
        q, r = _tall(a[..., :m])
        return q, concat([r, matmul(matrix_transpose(q), a[..., m:])], axis=-1)
    if not complete or m == n:
        return _tall(a)
    q, r = _completed(a)
    return q, r[..., :n]


def _completed(a: Tensor) -> tuple[Tensor, Tensor]:
    """Q and R of a with columns of the unit matrix behind it, as many as make it square."""
    *leading, m, n = a.shape
    others = broadcast_to(eye(m, m - n, dtype=a.dtype), (*leading, m, m - n))
    return _tall(concat([a, others], axis=-1))


def _tall(a: Tensor) -> tuple[Tensor, Tensor]:
    scale = scale_of(a)
    q, r = current_builder().emit(ops.Qr(), a if scale is None else a / scale)
    return q, r if scale is None else r * scale
