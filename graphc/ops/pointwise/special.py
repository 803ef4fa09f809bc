"""Special functions of one float: of the normal distribution, the gamma function's family, Bessel.

The kernels compute them in double precision and round once; see kernels/special_functions.h for
the errors in float64.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from graphc.ir import FLOATS, INTEGERS
from graphc.ir.vocabulary import Gradients, Tensors, Vocabulary
from graphc.ops.base import Array, Pointwise
from graphc.ops.pointwise import special_values as values


class _Special(Pointwise):
    """A function of kernels/special_functions.h by the op's name, of one float."""

    units: ClassVar[float] = 0.51
    accepts = FLOATS

    def __init_subclass__(cls, **kwargs: Any) -> None:
        cls.expression = f"{cls.name}({{a}})"
        super().__init_subclass__(**kwargs)


class Erfc(_Special):
    """y = 1 - erf(a), accurate where that is near 0."""

    name: ClassVar[str] = "erfc"
    operations: ClassVar[int] = 2000
    meaning = values.in_double(values.erfc)

    def grad(self, f: Vocabulary, inputs: Tensors, outputs: Tensors, grads: Tensors) -> Gradients:
        (a,), (d,) = inputs, grads
        return (d * (-2 / math.sqrt(math.pi)) * f.exp(-a * a),)


class Erfcx(_Special):
    """y = e^(a^2) erfc(a)."""

    name: ClassVar[str] = "erfcx"
    operations: ClassVar[int] = 2000
    meaning = values.in_double(values.erfcx)

    def grad(self, f: Vocabulary, inputs: Tensors, outputs: Tensors, grads: Tensors) -> Gradients:
        (a,), (y,), (d,) = inputs, outputs, grads
        return (d * (2 * a * y - 2 / math.sqrt(math.pi)),)


class Erfinv(_Special):
    """y with erf(y) = a; inf and -inf at 1 and -1, NaN beyond."""

    name: ClassVar[str] = "erfinv"
    operations: ClassVar[int] = 1700
    meaning = values.in_double(values.erfinv)

    def grad(self, f: Vocabulary, inputs: Tensors, outputs: Tensors, grads: Tensors) -> Gradients:
        (y,), (d,) = outputs, grads
        return (d * (math.sqrt(math.pi) / 2) * f.exp(y * y),)


class Ndtri(_Special):
    """y such that a normal number is below y with probability a; NaN outside of 0 to 1."""

    name: ClassVar[str] = "ndtri"
    operations: ClassVar[int] = 1700
    meaning = values.in_double(values.ndtri)

    def grad(self, f: Vocabulary, inputs: Tensors, outputs: Tensors, grads: Tensors) -> Gradients:
        (y,), (d,) = outputs, grads
        return (d * math.sqrt(2 * math.pi) * f.exp(y * y * 0.5),)


class Lgamma(_Special):
    """y = log |gamma(a)|, inf at the poles."""

    name: ClassVar[str] = "lgamma"
    operations: ClassVar[int] = 4000
    meaning = values.in_double(values.lgamma)

    def grad(self, f: Vocabulary, inputs: Tensors, outputs: Tensors, grads: Tensors) -> Gradients:
        (a,), (d,) = inputs, grads
        return (d * f.emit(Digamma(), a),)


class Digamma(_Special):
    """y = the derivative of log |gamma(a)|; -inf at 0, NaN at the other poles."""

    name: ClassVar[str] = "digamma"
    operations: ClassVar[int] = 2000
    meaning = values.in_double(values.digamma)

    def grad(self, f: Vocabulary, inputs: Tensors, outputs: Tensors, grads: Tensors) -> Gradients:
        (a,), (d,) = inputs, grads
        return (d * f.emit(Polygamma(1), a),)


@dataclass(frozen=True)
class Polygamma(Pointwise):
    """y = the derivative of digamma at a, of this order, 1 or more; from 2 on NaN below 0."""

    order: int
    name: ClassVar[str] = "polygamma"
    operations: ClassVar[int] = 1000
    units: ClassVar[float] = 0.51
    expression: ClassVar[str] = "polygamma<{order}>({a})"
    accepts: ClassVar[tuple[str, ...]] = FLOATS

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        (a,) = inputs
        with np.errstate(all="ignore"):
            return (values.polygamma(self.order, a.astype(np.float64)).astype(a.dtype),)

    def grad(self, f: Vocabulary, inputs: Tensors, outputs: Tensors, grads: Tensors) -> Gradients:
        (a,), (d,) = inputs, grads
        return (d * f.emit(Polygamma(self.order + 1), a),)


class I0e(_Special):
    """y = e^-|a| times the modified Bessel function of the first kind, of order 0."""

    name: ClassVar[str] = "i0e"
    operations: ClassVar[int] = 1200
    meaning = values.in_double(lambda a: values.scaled_bessel(0, a))

    def grad(self, f: Vocabulary, inputs: Tensors, outputs: Tensors, grads: Tensors) -> Gradients:
        (a,), (y,), (d,) = inputs, outputs, grads
        return (d * (f.emit(I1e(), a) - f.sign(a) * y),)


class I1e(_Special):
    """y = e^-|a| times the modified Bessel function of the first kind, of order 1."""

    name: ClassVar[str] = "i1e"
    operations: ClassVar[int] = 1200
    meaning = values.in_double(lambda a: values.scaled_bessel(1, a))

    def grad(self, f: Vocabulary, inputs: Tensors, outputs: Tensors, grads: Tensors) -> Gradients:
        (a,), (y,), (d,) = inputs, outputs, grads
        origin = a == 0
        safe = f.where(origin, 1, a)
        slope = f.emit(I0e(), a) - y * (f.sign(a) + 1 / safe)
        return (d * f.where(origin, 0.5, slope),)


_SINC_SLOPE = tuple(
    (-1) ** k * math.pi ** (2 * k) * 2 * k / math.factorial(2 * k + 1) for k in range(1, 7)
)
"""The derivative of sinc at x, divided by x, in powers of x^2."""


class Sinc(_Special):
    """y = sin(pi a) / (pi a), 1 at 0."""

    name: ClassVar[str] = "sinc"
    operations: ClassVar[int] = 220
    meaning = values.in_double(values.sinc)

    def grad(self, f: Vocabulary, inputs: Tensors, outputs: Tensors, grads: Tensors) -> Gradients:
        """(cos(pi a) - y) / a, near 0 by its series: the difference would lose its digits."""
        (a,), (y,), (d,) = inputs, outputs, grads
        near = abs(a) < 0.4
        far = f.where(near, 1, a)
        square = f.where(near, a * a, 0)
        series = _SINC_SLOPE[-1]
        for coefficient in _SINC_SLOPE[-2::-1]:
            series = series * square + coefficient
        return (d * f.where(near, series * a, (f.cos(far * math.pi) - y) / far),)


class Nextafter(Pointwise):
    """y = the number next to a on the way to b. No gradient flows."""

    name: ClassVar[str] = "nextafter"
    operations: ClassVar[int] = 2000
    units: ClassVar[float] = 0.0
    expression: ClassVar[str] = "nextafter({a}, {b})"
    meaning = np.nextafter
    accepts = FLOATS

    def grad(self, f: Vocabulary, inputs: Tensors, outputs: Tensors, grads: Tensors) -> Gradients:
        return None, None


class Gcd(Pointwise):
    """y = the greatest common divisor of the integers a and b; |a| where b = 0."""

    name: ClassVar[str] = "gcd"
    operations: ClassVar[int] = 2500
    expression: ClassVar[str] = "gcd({a}, {b})"
    meaning = np.gcd
    accepts = INTEGERS

    def grad(self, f: Vocabulary, inputs: Tensors, outputs: Tensors, grads: Tensors) -> Gradients:
        return None, None
