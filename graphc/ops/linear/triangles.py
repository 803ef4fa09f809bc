"""Cholesky and LU factorizations, and triangular systems."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from graphc.base.errors import GraphError
from graphc.ir import Type
from graphc.ir.vocabulary import Gradients, Tensors, Vocabulary
from graphc.ops.base import Array
from graphc.ops.linear.matrices import (
    Matrices,
    flat,
    of_lower_triangle,
    on_diagonal,
    strictly_lower,
    upper,
)


@dataclass(frozen=True)
class Cholesky(Matrices):
    """The lower triangular L with L L^T = a, of which the lower triangle is read.

    L is NaN on and below its diagonal where a is not positive definite.
    """

    name: ClassVar[str] = "cholesky"
    work: ClassVar[float] = 0.34

    def infer(self, *inputs: Type) -> tuple[Type, ...]:
        self.check(*inputs)
        return (Type(inputs[0].shape, inputs[0].dtype),)

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        (x,) = inputs
        a = np.swapaxes(flat(x), 1, 2).copy()
        with np.errstate(all="ignore"):
            for j in range(x.shape[-1]):
                pivot = a[:, j, j]
                a[:, j, j] = np.where(pivot > 0, np.sqrt(pivot), x.dtype.type(np.nan))
                row = a[:, j, j + 1 :]
                row /= a[:, j, j, None]
                a[:, j + 1 :, j + 1 :] -= row[:, :, None] * row[:, None, :]
        lower = np.tril(np.swapaxes(a, 1, 2))
        if x.size:
            failed = np.isnan(lower[:, -1, -1])
            lower[failed] = np.tril(np.full(x.shape[-2:], np.nan, x.dtype))
        return (lower.reshape(x.shape),)

    def grad(self, f: Vocabulary, inputs: Tensors, outputs: Tensors, grads: Tensors) -> Gradients:
        """Return L^-T P L^-1, P being the lower triangle of L^T d with half its diagonal."""
        (y,), (d,) = outputs, grads
        n = y.shape[-1]
        lower = f.tril(f.matmul(f.matrix_transpose(y), d))
        lower = f.where(on_diagonal(f, n), lower / 2, lower)
        solve = TriangularSolve(True, transposed=True)
        left = f.emit(solve, y, lower)
        both = f.matrix_transpose(f.emit(solve, y, f.matrix_transpose(left)))
        symmetric = (both + f.matrix_transpose(both)) / 2
        return (of_lower_triangle(f, symmetric),)


@dataclass(frozen=True)
class TriangularSolve(Matrices):
    """x with a x = b, of a [..., n, n] only one triangle being read; b is [..., n, m].

    It is the lower triangle if `lower`; a^T x = b if `transposed`; the diagonal counts as 1 if
    `unit`.
    """

    lower: bool
    transposed: bool = False
    unit: bool = False
    name: ClassVar[str] = "triangular_solve"

    def infer(self, *inputs: Type) -> tuple[Type, ...]:
        self.check(*inputs)
        a, b = inputs
        if a.shape[-1] != b.shape[-2]:
            raise GraphError(f"triangular_solve: {a} and {b} have no common extent")
        return (Type(b.shape, b.dtype),)

    def flops(self, *inputs: Type) -> int:
        return inputs[1].size * inputs[0].shape[-1]

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        a, b = inputs
        x = flat(b.astype(np.result_type(a, b)))
        read = flat(np.swapaxes(a, -1, -2) if self.transposed else a)
        n = a.shape[-1]
        forward = self.lower != self.transposed
        with np.errstate(all="ignore"):
            for j in range(n) if forward else range(n - 1, -1, -1):
                if not self.unit:
                    x[:, j] /= read[:, j, j, None]
                rest = slice(j + 1, n) if forward else slice(0, j)
                x[:, rest] -= read[:, rest, j, None] * x[:, j, None]
        return (x.reshape(b.shape),)

    def grad(self, f: Vocabulary, inputs: Tensors, outputs: Tensors, grads: Tensors) -> Gradients:
        (a, _), (x,), (d,) = inputs, outputs, grads
        of_b = f.emit(replace(self, transposed=not self.transposed), a, d)
        left, right = (x, of_b) if self.transposed else (of_b, x)
        of_a = -f.matmul(left, f.matrix_transpose(right))
        of_a = f.tril(of_a) if self.lower else upper(f, of_a)
        if self.unit:
            of_a = f.where(on_diagonal(f, a.shape[-1]), 0, of_a)
        return of_a, of_b


@dataclass(frozen=True)
class Lu(Matrices):
    """(U with L below its diagonal, rows, sign): rows `rows` of a, in that order, are L U.

    L has ones on its diagonal. The pivot of a column is its element of the largest magnitude, the
    first of equal ones. `rows` is i64 [..., n]; `sign` [...] is 1 or -1, that of the permutation.
    """

    name: ClassVar[str] = "lu"
    work: ClassVar[float] = 0.67

    def infer(self, *inputs: Type) -> tuple[Type, ...]:
        leading = self.check(*inputs)
        (a,) = inputs
        return Type(a.shape, a.dtype), Type(a.shape[:-1], "i64"), Type(leading, a.dtype)

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        (x,) = inputs
        a, n = flat(x), x.shape[-1]
        rows = np.tile(np.arange(n), (len(a), 1))
        sign, each = np.ones(len(a), x.dtype), np.arange(len(a))
        with np.errstate(all="ignore"):
            for j in range(n):
                sizes = np.abs(a[:, j:, j])
                sizes = np.where(np.isnan(sizes), -1, sizes)
                sizes[:, 0] = np.where(np.isnan(a[:, j, j]), np.inf, sizes[:, 0])
                place = j + np.argmax(sizes, 1)
                for array in (a, rows):
                    array[each, j], array[each, place] = (
                        array[each, place].copy(),
                        array[each, j].copy(),
                    )
                sign[place != j] *= -1
                pivot = a[:, j, j, None]
                column = np.where(pivot != 0, a[:, j + 1 :, j] / pivot, a[:, j + 1 :, j])
                a[:, j + 1 :, j] = column
                a[:, j + 1 :, j + 1 :] -= column[:, :, None] * a[:, j, None, j + 1 :]
        return a.reshape(x.shape), rows.reshape(x.shape[:-1]), sign.reshape(x.shape[:-2])

    def grad(self, f: Vocabulary, inputs: Tensors, outputs: Tensors, grads: Tensors) -> Gradients:
        """Return P^T L^-T (strictly lower of L^T dL + upper of dU U^T) U^-T."""
        (packed, rows, _), d = outputs, grads[0]
        if d is None:
            return (None,)
        n = packed.shape[-1]
        lower = f.where(on_diagonal(f, n), 1, f.tril(packed))
        inner = strictly_lower(f, f.matmul(f.matrix_transpose(lower), strictly_lower(f, d)))
        inner = inner + upper(f, f.matmul(upper(f, d), f.matrix_transpose(upper(f, packed))))
        left = f.emit(TriangularSolve(True, transposed=True, unit=True), packed, inner)
        both = f.matrix_transpose(f.emit(TriangularSolve(False), packed, f.matrix_transpose(left)))
        places = f.broadcast_to(f.expand_dims(rows, -1), both.shape)
        return (f.sum_by_index(places, both, both.ndim - 2, n),)
