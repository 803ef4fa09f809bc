"""The matrix product."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from graphc.base.errors import GraphError
from graphc.ir import Type
from graphc.ir.vocabulary import Gradients, Tensors, Vocabulary
from graphc.ops.axes import aligned
from graphc.ops.base import (
    NUMBERS,
    Affine,
    Array,
    Contraction,
    Flags,
    Iteration,
    Operand,
    check_dtype,
    same_dtype,
)
from graphc.ops.pointwise.logic import Cast


@dataclass(frozen=True)
class Matmul(Contraction):
    """y[..., m, n] = sum over k of a[..., m, k] * b[..., k, n]; leading axes broadcast."""

    name: ClassVar[str] = "matmul"
    names_module: ClassVar[bool] = True

    def word(self, derived: bool, of_state: bool) -> str:
        return ("dgrad" if of_state else "wgrad") if derived else "matmul"

    def infer(self, *inputs: Type) -> tuple[Type, ...]:
        a, b = inputs
        dtype = same_dtype("matmul", inputs)
        check_dtype("matmul", dtype, NUMBERS, inputs)
        if a.rank < 2 or b.rank < 2 or a.shape[-1] != b.shape[-2]:
            raise GraphError(f"matmul: {a} and {b} have no common inner extent")
        try:
            batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
        except ValueError:
            raise GraphError(f"matmul: leading axes of {a} and {b} do not broadcast") from None
        return (Type((*batch, a.shape[-2], b.shape[-1]), dtype),)

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        with np.errstate(all="ignore"):
            return (np.matmul(*inputs),)

    def grad(self, f: Vocabulary, inputs: Tensors, outputs: Tensors, grads: Tensors) -> Gradients:
        (a, b), (d,) = inputs, grads
        return d @ f.matrix_transpose(b), f.matrix_transpose(a) @ d

    def batched(self, f: Vocabulary, inputs: Tensors, stacked: Flags, size: int) -> Tensors:
        a, b = inputs
        rank = max(x.ndim - s for x, s in zip(inputs, stacked, strict=True))
        if not stacked[0] and a.ndim == 2 and b.shape[1:] == (a.shape[1], 1):
            # The samples' columns as rows: one product instead of one for each.
            rows = f.matmul(f.reshape(b, b.shape[:2]), f.matrix_transpose(a))
            return (f.reshape(rows, (*rows.shape, 1)),)
        a, b = (aligned(f, x, rank) if s else x for x, s in zip(inputs, stacked, strict=True))
        if all(stacked) and a.shape[-1] == 1:
            return (a * b,)  # an outer product for each sample: nothing is summed
        return (f.matmul(a, b),)

    def iteration(self, a: Type, b: Type) -> Iteration:
        """Kept: the batch axes, m, n; summed: k."""
        (y,) = self.infer(a, b)
        batch = y.rank - 2
        names = (*(f"b{i}" for i in range(batch)), "m", "n", "k")
        m, n, k = (_only(batch + i, batch + 3) for i in range(3))
        none = Affine((0,) * (batch + 3))

        def operand(x: Type, rows: Affine, columns: Affine) -> Operand:
            extra = y.rank - x.rank
            leading = [
                none if extent == 1 else _only(extra + axis, batch + 3)
                for axis, extent in enumerate(x.shape[:-2])
            ]
            return Operand((*leading, rows, columns), (1,) * x.rank)

        output = (*(_only(i, batch + 3) for i in range(batch)), m, n)
        extents = (*y.shape, a.shape[-1])
        return Iteration(names, extents, y.rank, output, operand(a, m, k), operand(b, k, n))


@dataclass(frozen=True)
class MatmulBytes(Contraction):
    """y[m, n] (i32) = sum over k of a[m, k] (u8) * b[k, n] (i8), exact modulo 2^32.

    `nn.quantize` makes it.
    """

    name: ClassVar[str] = "matmul_bytes"
    names_module: ClassVar[bool] = True
    lane_axes: ClassVar[tuple[int, ...]] = ()

    def infer(self, *inputs: Type) -> tuple[Type, ...]:
        a, b = inputs
        if (a.dtype, b.dtype) != ("u8", "i8"):
            raise GraphError(f"matmul_bytes: expected u8 and i8, got {a} and {b}")
        if a.rank != 2 or b.rank != 2 or a.shape[1] != b.shape[0]:
            raise GraphError(f"matmul_bytes: expected matrices [m, k] and [k, n], got {a} and {b}")
        return (Type((a.shape[0], b.shape[1]), "i32"),)

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        a, b = (x.astype(np.int32) for x in inputs)
        return (np.matmul(a, b),)

    def grad(self, f: Vocabulary, inputs: Tensors, outputs: Tensors, grads: Tensors) -> Gradients:
        return None, None

    def batched(self, f: Vocabulary, inputs: Tensors, stacked: Flags, size: int) -> Tensors:
        (a, b), rows = inputs, inputs[0].shape[-2]
        if stacked == (True, False):  # the samples' rows one behind the other
            y = f.emit(self, f.reshape(a, (size * rows, a.shape[-1])), b)
            return (f.reshape(y, (size, rows, b.shape[-1])),)
        return (f.matmul(f.emit(Cast("i32"), a), f.emit(Cast("i32"), b)),)

    def iteration(self, a: Type, b: Type) -> Iteration:
        """Kept: m, n; summed: k."""
        return Matmul().iteration(replace(a, dtype="i32"), replace(b, dtype="i32"))


def _only(axis: int, rank: int) -> Affine:
    return Affine(tuple(int(d == axis) for d in range(rank)))
