"""The fused multiply-add in NumPy: a product and a sum that are rounded once."""

from __future__ import annotations

import math

import numpy as np

from graphc.base.dtypes import Array


def fma(a: Array, b: Array, c: Array) -> Array:
    """Return a * b + c, rounded once, of floats of one dtype with NumPy's broadcasting.

    In a dtype of twice the precision the product is exact, and the sum is rounded to odd, so that
    rounding it again gives what rounding once would have (Boldo and Melquiond, "Emulation of a FMA
    and correctly rounded sums", 2008). In float64 the product is the sum of two numbers, or, near
    the ends of the range, a fraction.
    """
    dtype = np.result_type(a, b, c)
    a, b, c = (x.astype(dtype) for x in np.broadcast_arrays(a, b, c))
    with np.errstate(all="ignore"):
        if dtype == np.float32:
            total = _odd_sum(a.astype(np.float64) * b, c.astype(np.float64))
            return np.asarray(total.astype(np.float32))
        return _fma64(a, b, c)


def _fma64(a: Array, b: Array, c: Array) -> Array:
    high, low = _product(a, b)
    middle, small = _sum(c, low)
    large, rest = _sum(high, middle)
    found = np.asarray(large + _odd_sum(rest, small))
    plain = high + c
    found = np.where(found == 0, plain, found)  # a zero's sign
    factors = np.isfinite(a) & np.isfinite(b)
    found = np.where(factors, np.where(np.isfinite(c), found, c), plain)
    sizes = np.maximum(np.maximum(abs(a), abs(b)), np.maximum(abs(high), abs(c)))
    least = np.where((a == 0) | (b == 0), 1.0, abs(high))
    ends = factors & np.isfinite(c) & ((sizes > 2.0**990) | (least < 2.0**-900))
    for at in zip(*np.nonzero(np.atleast_1d(ends)), strict=True):
        here = at if found.ndim else ()
        found[here] = _exact(float(a[here]), float(b[here]), float(c[here]))
    return np.asarray(found)


def _exact(a: float, b: float, c: float) -> float:
    """The same of finite numbers, by fractions."""
    from fractions import Fraction  # not worth an import of all programs

    total = Fraction(a) * Fraction(b) + Fraction(c)
    if total == 0:
        return a * b + c
    try:
        return float(total)
    except OverflowError:
        return math.inf if total > 0 else -math.inf


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

    rounded, (a, b), (c, d) = x * y, halves(x), halves(y)
    return rounded, b * d - (((rounded - a * c) - b * c) - a * d)


def _odd_sum(x: Array, y: Array) -> Array:
    """The sum of float64 rounded to odd: where inexact, the neighbour whose last bit is 1."""
    total, error = (np.asarray(part) for part in _sum(x, y))
    bits = total.view(np.int64)
    away = np.where((error > 0) == (total > 0), 1, -1)
    inexact = np.isfinite(total) & (error != 0) & (bits & 1 == 0)
    return np.asarray(np.where(inexact, bits + away, bits)).view(np.float64)
