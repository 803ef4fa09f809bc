"""The fused multiply-add: a product and a sum that are rounded once."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from graphc.ir import FLOATS
from graphc.ir.vocabulary import Gradients, Tensors, Vocabulary
from graphc.ops.base import Array, Pointwise


class FusedMultiplyAdd(Pointwise):
    """y = a * b + c, rounded once."""

    name: ClassVar[str] = "fma"
    called: ClassVar[str] = ""
    accepts = FLOATS
    negate_product: ClassVar[bool] = False
    negate_sum: ClassVar[bool] = False
    operations: ClassVar[int] = 1
    expression: ClassVar[str] = "fma({a}, {b}, {c})"

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        a, b, c = inputs
        return (fma(-a if self.negate_product else a, b, -c if self.negate_sum else c),)

    def grad(self, f: Vocabulary, inputs: Tensors, outputs: Tensors, grads: Tensors) -> Gradients:
        (a, b, _), (d,) = inputs, grads
        product = -d if self.negate_product else d
        return product * b, product * a, -d if self.negate_sum else d


class FusedMultiplySubtract(FusedMultiplyAdd):
    """y = a * b - c, rounded once."""

    name: ClassVar[str] = "fms"
    negate_sum = True
    operations: ClassVar[int] = 1
    expression: ClassVar[str] = "fma({a}, {b}, -{c})"


class FusedNegateMultiplyAdd(FusedMultiplyAdd):
    """y = c - a * b, rounded once."""

    name: ClassVar[str] = "fnma"
    negate_product = True
    operations: ClassVar[int] = 1
    expression: ClassVar[str] = "fma(-{a}, {b}, {c})"


def fma(a: Array, b: Array, c: Array) -> Array:
    """a * b + c, rounded once, of floats of one dtype with NumPy's broadcasting.

    In a dtype of twice the precision the product is exact, and the sum is rounded to odd, so that
    rounding it again gives what rounding once would have (Boldo and Melquiond, "Emulation of a FMA
    and correctly rounded sums", 2008). In float64 the product is the sum of two numbers. Products
    of float64 that underflow, or whose factors are beyond 2^996, may be rounded twice.
    """
    dtype = np.result_type(a, b, c)
    a, b, c = (x.astype(dtype) for x in np.broadcast_arrays(a, b, c))
    with np.errstate(all="ignore"):
        if a.dtype == np.float32:
            total = _odd_sum(a.astype(np.float64) * b, c.astype(np.float64))
            return np.asarray(total.astype(np.float32))
        high, low = _product(a, b)
        middle, small = _sum(c, low)
        large, rest = _sum(high, middle)
        found = large + _odd_sum(rest, small)
        plain = a * b + c
        return np.asarray(np.where(np.isfinite(found) & np.isfinite(plain), found, plain))


def _sum(x: Array, y: Array) -> tuple[Array, Array]:
    """The rounded sum, and its error (Knuth's TwoSum)."""
    total = x + y
    part = total - x
    return total, (x - (total - part)) + (y - part)


def _product(x: Array, y: Array) -> tuple[Array, Array]:
    """The rounded product of float64, and its error (Dekker's and Veltkamp's TwoProduct)."""

    def halves(x: Array) -> tuple[Array, Array]:
        scaled = x * 134217729.0
        high = scaled - (scaled - x)
        return high, x - high

    product, (a, b), (c, d) = x * y, halves(x), halves(y)
    return product, b * d - (((product - a * c) - b * c) - a * d)


def _odd_sum(x: Array, y: Array) -> Array:
    """The sum of float64 rounded to odd: where inexact, the neighbour whose last bit is 1."""
    total, error = _sum(x, y)
    bits = np.ascontiguousarray(total).view(np.int64)
    away = np.where((error > 0) == (total > 0), 1, -1)
    inexact = np.isfinite(total) & (error != 0) & (bits & 1 == 0)
    return np.where(inexact, bits + away, bits).view(np.float64)
