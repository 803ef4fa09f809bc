"""The base of ops on matrices, and what their rules share."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from graphc.base.errors import GraphError
from graphc.ir import FLOATS, Type
from graphc.ir.vocabulary import Tensor, Tensors, Vocabulary
from graphc.ops.axes import Axes, all_stacked
from graphc.ops.base import Array, Flags, Op, check_dtype, same_dtype
from graphc.ops.constant import Iota


class Matrices(Op):
    """Computes from matrices, the last two axes of the inputs, alone; other axes count them.

    Elements are added and subtracted in the order that `reference` says (kernels/factorizations.h).
    """

    own_template: ClassVar[str] = "factor"
    square: ClassVar[bool] = True
    """Whether the first input is square."""
    work: ClassVar[float] = 1.0
    """Floating-point operations by those of a product of a matrix and its transpose."""

    @property
    def accumulates(self) -> bool:
        return True

    def check(self, *inputs: Type) -> tuple[int, ...]:
        """Return the leading axes, or raise GraphError unless all inputs have the same ones."""
        check_dtype(self.name, same_dtype(self.name, inputs), FLOATS, inputs)
        shapes = {t.shape[:-2] for t in inputs}
        if len(shapes) > 1 or any(t.rank < 2 for t in inputs):
            raise GraphError(
                f"{self.name}: expected matrices [..., m, n] with equal leading axes, "
                f"got {' and '.join(map(str, inputs))}"
            )
        if self.square and inputs[0].shape[-1] != inputs[0].shape[-2]:
            raise GraphError(f"{self.name}: expected square matrices, got {inputs[0]}")
        return shapes.pop()

    def check_tall(self, a: Type) -> tuple[int, ...]:
        """Return the leading axes, or raise GraphError unless matrices have m >= n."""
        leading = self.check(a)
        if a.shape[-2] < a.shape[-1]:
            raise GraphError(f"{self.name}: expected at least as many rows as columns, got {a}")
        return leading

    def flops(self, *inputs: Type) -> int:
        """Return about how many floating-point operations it takes."""
        return int(self.work * inputs[0].size * inputs[0].shape[-1])

    def axis_map(self, *inputs: Type) -> tuple[tuple[Axes, ...], ...]:
        axes = tuple((*range(t.rank - 2), None, None) for t in inputs)
        return (axes,) * len(self.infer(*inputs))

    def batched(self, f: Vocabulary, inputs: Tensors, stacked: Flags, size: int) -> Tensors:
        return f.emit_all(self, *all_stacked(f, inputs, stacked, size))


def flat(x: Array) -> Array:
    """A copy of matrices [..., m, n] as [count, m, n]."""
    count = int(np.prod(x.shape[:-2]))
    return np.array(x.reshape(count, *x.shape[-2:]), order="C")


def on_diagonal(f: Vocabulary, n: int) -> Tensor:
    """Where a matrix [n, n] has its diagonal."""
    rows, columns = (f.emit(Iota((n, n), axis)) for axis in (0, 1))
    return rows == columns


def upper(f: Vocabulary, x: Tensor) -> Tensor:
    """x on and above its diagonal, zeros below."""
    return f.matrix_transpose(f.tril(f.matrix_transpose(x)))


def strictly_lower(f: Vocabulary, x: Tensor) -> Tensor:
    """x below its diagonal, zeros elsewhere."""
    return f.where(on_diagonal(f, x.shape[-1]), 0, f.tril(x))


def of_lower_triangle(f: Vocabulary, d: Tensor) -> Tensor:
    """The gradient by a lower triangle that stands for a symmetric matrix, from that by all."""
    both = d + f.matrix_transpose(d)
    return f.tril(f.where(on_diagonal(f, d.shape[-1]), d, both))


def columns_of(f: Vocabulary, x: Tensor) -> Tensor:
    """x [..., n] as factors of columns, [..., 1, n]."""
    return f.expand_dims(x, -2)


def rows_of(f: Vocabulary, x: Tensor) -> Tensor:
    """x [..., n] as factors of rows, [..., n, 1]."""
    return f.expand_dims(x, -1)


def differences(f: Vocabulary, x: Tensor) -> Tensor:
    """Elements j minus elements i of x [..., n], as [..., i, j], with 1 on the diagonal."""
    found = columns_of(f, x) - rows_of(f, x)
    return f.where(on_diagonal(f, x.shape[-1]), 1, found)


def embedded(f: Vocabulary, x: Tensor) -> Tensor:
    """Matrices with x [..., n] as their diagonals, zeros elsewhere."""
    return f.where(on_diagonal(f, x.shape[-1]), columns_of(f, x), 0)
