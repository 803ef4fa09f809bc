"""Special functions in NumPy, in double precision: what the ops of `special.py` mean.

The kernels approximate the same functions in other ways (kernels/special_functions.h).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from graphc.ops.base import Array

Function = Callable[..., Any]


def in_double(function: Function) -> Function:
    """`function` of float64 arrays, computed in double precision and rounded to the input."""

    def rounded(a: Array) -> Any:
        return np.asarray(function(a.astype(np.float64))).astype(a.dtype)

    return rounded


def by_element(function: Callable[[float], float]) -> Function:
    """`function` of each element of a float64 array."""
    return np.vectorize(function, otypes=[np.float64])


erfc = by_element(math.erfc)


@by_element
def erfcx(x: float) -> float:
    """e^(x^2) erfc(x); from 25 on, where erfc vanishes, by its asymptotic series."""
    if x < 25:
        return math.inf if x < -26.6 else math.exp(x * x) * math.erfc(x)
    terms = np.cumprod([1.0, *((1 - 2 * k) / (2 * x * x) for k in range(1, 8))])
    return float(np.sum(terms)) / (x * math.sqrt(math.pi))


@by_element
def lgamma(x: float) -> float:
    """log |gamma(x)|, inf at its poles."""
    return math.inf if x <= 0 and x.is_integer() else math.lgamma(x)


def sinc(x: Array) -> Array:
    """sin(pi x) / (pi x), 1 at 0, from the distance to the nearest integer."""
    whole = np.rint(x)
    sine = np.where(whole % 2 == 1, -1, 1) * np.sin(math.pi * (x - whole))
    return np.asarray(np.where(x == 0, 1, sine / (math.pi * np.where(x == 0, 1, x))))


_QUANTILE = (
    "2509.0809287301226727 33430.575583588128105 67265.770927008700853 45921.953931549871457 "
    "13731.693765509461125 1971.5909503065514427 133.14166789178437745 3.387132872796366608",
    "5226.495278852854561 28729.085735721942674 39307.89580009271061 21213.794301586595867 "
    "5394.1960214247511077 687.1870074920579083 42.313330701600911252 1",
    "7.7454501427834140764e-4 .0227238449892691845833 .24178072517745061177 1.27045825245236838258 "
    "3.64784832476320460504 5.7694972214606914055 4.6303378461565452959 1.42343711074968357734",
    "1.05075007164441684324e-9 5.475938084995344946e-4 .0151986665636164571966 "
    ".14810397642748007459 .68976733498510000455 1.6763848301838038494 2.05319162663775882187 1",
    "2.01033439929228813265e-7 2.71155556874348757815e-5 .0012426609473880784386 "
    ".026532189526576123093 .29656057182850489123 1.7848265399172913358 5.4637849111641143699 "
    "6.6579046435011037772",
    "2.04426310338993978564e-15 1.4215117583164458887e-7 1.8463183175100546818e-5 "
    "7.868691311456132591e-4 .0148753612908506148525 .13692988092273580531 .59983220655588793769 1",
)
"""Numerators and denominators of Algorithm AS 241 (Wichura, Applied Statistics 37, 1988)."""


def _quantile(q: Array, tail: Array) -> Array:
    """The normal quantile at q + 1/2, whose distance from the nearer of 0 and 1 is `tail`."""
    tables = [np.array(t.split(), np.float64) for t in _QUANTILE]
    s = np.sqrt(-np.log(tail))
    arguments = (0.180625 - q * q, s - 1.6, s - 5.0)
    middle, outer, far = (
        np.polyval(tables[2 * i], r) / np.polyval(tables[2 * i + 1], r)
        for i, r in enumerate(arguments)
    )
    size = np.where(tail == 0, np.inf, np.where(s > 5, far, outer))
    return np.where(np.abs(q) <= 0.425, q * middle, np.copysign(size, q))


def ndtri(p: Array) -> Array:
    return _quantile(p - 0.5, np.minimum(p, 1 - p))


def erfinv(x: Array) -> Array:
    return _quantile(x / 2, (1 - np.abs(x)) / 2) / math.sqrt(2)


_BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6)
_STEPS = 20
"""How far the argument of a gamma function is moved before its asymptotic series is used."""


def digamma(x: Array) -> Array:
    """-inf at 0, inf at -0, NaN at the other poles."""
    a = np.where(x < 0, 1 - x, x)
    z = a + _STEPS
    series = sum(b / (2 * k * z ** (2 * k)) for k, b in enumerate(_BERNOULLI, 1))
    value = np.log(z) - 0.5 / z - series - sum(1 / (a + k) for k in range(1, _STEPS)) - 1 / a
    distance = x - np.rint(x)
    mirrored = value - math.pi / np.tan(math.pi * distance)
    poles = np.where(distance == 0, np.nan, mirrored)
    return np.asarray(np.where(x < 0, poles, value))


def polygamma(order: int, x: Array) -> Array:
    """The derivative of digamma of this order, 1 or more; for 2 and more NaN below 0."""
    a = np.where(x < 0.5, 1 - x, x) if order == 1 else x
    z = a + _STEPS
    total = z ** float(-order) / order + z ** float(-order - 1) / 2
    for k, b in enumerate(_BERNOULLI, 1):
        rising = math.factorial(order + 2 * k - 1) / math.factorial(order)
        total = total + b * rising / math.factorial(2 * k) * z ** float(-order - 2 * k)
    total = total + sum((a + k) ** float(-order - 1) for k in range(_STEPS))
    value = (-1) ** (order + 1) * math.factorial(order) * total
    if order > 1:
        return np.asarray(np.where(x < 0, np.nan, value))
    sine = np.sin(math.pi * (x - np.rint(x)))
    return np.asarray(np.where(x < 0.5, (math.pi / sine) ** 2 - value, value))


def scaled_bessel(order: int, x: Array) -> Array:
    """e^-|x| I_order(x) by its power series below 20, by its asymptotic series above."""
    size = np.abs(x)
    z = np.minimum(size, 20.0)
    term = (z / 2) ** order / math.factorial(order)
    near = term
    for k in range(1, 70):
        term = term * (z * z / 4) / (k * (k + order))
        near = near + term
    large = np.maximum(size, 20.0)
    term = far = np.ones_like(large)
    for k in range(1, 20):
        term = term * -(4 * order**2 - (2 * k - 1) ** 2) / (8 * k * large)
        far = far + term
    value = np.where(size > 20, far / np.sqrt(2 * math.pi * large), near * np.exp(-z))
    return np.asarray(np.where(np.isnan(x), x, value if order % 2 == 0 else np.copysign(value, x)))
