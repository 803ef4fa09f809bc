"""Factorizations with orthogonal matrices: QR, eigenvectors, singular vectors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from graphc.ir import Type
from graphc.ir.vocabulary import Gradients, Tensor, Tensors, Vocabulary
from graphc.ops.base import Array
from graphc.ops.linear.conquer import eigenvalues, singular
from graphc.ops.linear.matrices import (
    Matrices,
    columns_of,
    differences,
    embedded,
    flat,
    of_lower_triangle,
    on_diagonal,
    rows_of,
    strictly_lower,
)
from graphc.ops.linear.reflections import bidiagonal, factored, tridiagonal, unfold
from graphc.ops.linear.triangles import TriangularSolve


@dataclass(frozen=True)
class Qr(Matrices):
    """(Q [..., m, n], R [..., n, n]) with a = Q R, orthonormal columns of Q, R upper triangular.

    m >= n. Reflections make it (Householder, 1958), in the signs of LAPACK.
    """

    name: ClassVar[str] = "qr"
    work: ClassVar[float] = 4.0
    square: ClassVar[bool] = False

    def infer(self, *inputs: Type) -> tuple[Type, ...]:
        (a,) = inputs
        leading, n = self.check_tall(a), a.shape[-1]
        return Type(a.shape, a.dtype), Type((*leading, n, n), a.dtype)

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        (x,) = inputs
        with np.errstate(all="ignore"):
            q, r = factored(flat(x))
        return q.reshape(x.shape), r.reshape(*x.shape[:-2], *r.shape[1:])

    def grad(self, f: Vocabulary, inputs: Tensors, outputs: Tensors, grads: Tensors) -> Gradients:
        """Return (dQ + Q M) R^-T, M having the lower triangle of R dR^T - dQ^T Q on both sides."""
        (q, r), (dq, dr) = outputs, grads
        zero = f.zeros_like(r)
        inner = zero if dr is None else f.matmul(r, f.matrix_transpose(dr))
        if dq is not None:
            inner = inner - f.matmul(f.matrix_transpose(dq), q)
        both = f.tril(inner) + f.matrix_transpose(strictly_lower(f, inner))
        total = f.matmul(q, both)
        if dq is not None:
            total = total + dq
        solved = f.emit(TriangularSolve(False), r, f.matrix_transpose(total))
        return (f.matrix_transpose(solved),)


@dataclass(frozen=True)
class Eigh(Matrices):
    """(w [..., n] ascending, v) with a v = v w, of a symmetric a whose lower triangle is read.

    The gradient of v is infinite or NaN where eigenvalues are equal.
    """

    name: ClassVar[str] = "eigh"
    work: ClassVar[float] = 6.0

    def infer(self, *inputs: Type) -> tuple[Type, ...]:
        self.check(*inputs)
        (a,) = inputs
        return Type(a.shape[:-1], a.dtype), Type(a.shape, a.dtype)

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        (x,) = inputs
        a = flat(np.tril(x) + np.swapaxes(np.tril(x, -1), -1, -2))
        w, v = np.zeros(a.shape[:2], a.dtype), np.zeros_like(a)
        with np.errstate(all="ignore"):
            d, beside, found = tridiagonal(a)
            for number in range(len(a)):
                w[number], rows = eigenvalues(d[number], beside[number])
                v[number] = rows.T
            unfold(v, found, 1)
        return w.reshape(x.shape[:-1]), v.reshape(x.shape)

    def grad(self, f: Vocabulary, inputs: Tensors, outputs: Tensors, grads: Tensors) -> Gradients:
        """Return v (diagonal of dw + v^T dv / (w_j - w_i)) v^T."""
        (w, v), (dw, dv) = outputs, grads
        inner: Tensor | None = None if dw is None else embedded(f, dw)
        if dv is not None:
            of_v = f.matmul(f.matrix_transpose(v), dv)
            turns = (of_v - embedded(f, _diagonal(f, of_v))) / differences(f, w)
            inner = turns if inner is None else inner + turns
        assert inner is not None
        whole = f.matmul(f.matmul(v, inner), f.matrix_transpose(v))
        symmetric = (whole + f.matrix_transpose(whole)) / 2
        return (of_lower_triangle(f, symmetric),)


@dataclass(frozen=True)
class Svd(Matrices):
    """(U [..., m, n], s [..., n] descending, V^T [..., n, n]) with a = U s V^T; m >= n.

    The gradients of U and V are infinite or NaN where singular values are equal.
    """

    name: ClassVar[str] = "svd"
    work: ClassVar[float] = 12.0
    square: ClassVar[bool] = False

    def infer(self, *inputs: Type) -> tuple[Type, ...]:
        (a,) = inputs
        leading, n = self.check_tall(a), a.shape[-1]
        types = (a.shape, (*leading, n), (*leading, n, n))
        return tuple(Type(shape, a.dtype) for shape in types)

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        (x,) = inputs
        leading, (_, n), a = x.shape[:-2], x.shape[-2:], flat(x)
        u, v = np.zeros_like(a), np.zeros((len(a), n, n), a.dtype)
        s = np.zeros((len(a), n), a.dtype)
        with np.errstate(all="ignore"):
            d, e, left, right = bidiagonal(a)
            for number in range(len(a)):
                values, ut, vt = singular(d[number], e[number])
                s[number], v[number] = values[::-1], vt[::-1].T
                u[number, :n] = ut[::-1].T
            unfold(u, left)
            unfold(v, right, 1)
        vt = np.ascontiguousarray(np.swapaxes(v, 1, 2))
        return u.reshape(x.shape), s.reshape(*leading, n), vt.reshape(*leading, n, n)

    def grad(self, f: Vocabulary, inputs: Tensors, outputs: Tensors, grads: Tensors) -> Gradients:
        """Return U (skew(U^T dU) / E s + s skew(V^T dV) / E + ds) V^T, and a part for m > n.

        E is s_j^2 - s_i^2; skew(x) is x - x^T.
        """
        (u, s, vt), (du, ds, dvt) = outputs, grads
        m, n = u.shape[-2:]
        inner = f.zeros_like(vt) if ds is None else embedded(f, ds)
        gaps = differences(f, s * s)
        if du is not None:
            inner = inner + _skew(f, f.matmul(f.matrix_transpose(u), du)) / gaps * columns_of(f, s)
        if dvt is not None:
            turned = _skew(f, f.matmul(vt, f.matrix_transpose(dvt)))
            inner = inner + rows_of(f, s) * (turned / gaps)
        whole = f.matmul(u, inner)
        if du is not None and m > n:
            beyond = du / columns_of(f, s)
            whole = whole + beyond - f.matmul(u, f.matmul(f.matrix_transpose(u), beyond))
        return (f.matmul(whole, vt),)


def _skew(f: Vocabulary, x: Tensor) -> Tensor:
    return x - f.matrix_transpose(x)


def _diagonal(f: Vocabulary, x: Tensor) -> Tensor:
    return f.sum(f.where(on_diagonal(f, x.shape[-1]), x, 0), axis=-1)
