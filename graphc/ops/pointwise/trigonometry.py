"""Pointwise functions of angles, hyperbolic functions, and their inverses."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from graphc.ir import FLOATS
from graphc.ir.vocabulary import Gradients, Tensors, Vocabulary
from graphc.ops.base import Pointwise


class Tan(Pointwise):
    """y = tan(a), a in radians."""

    name: ClassVar[str] = "tan"
    operations: ClassVar[int] = 160
    units: ClassVar[float] = 4.0
    expression: ClassVar[str] = "tan({a})"
    meaning = np.tan
    accepts = FLOATS

    def grad(self, f: Vocabulary, inputs: Tensors, outputs: Tensors, grads: Tensors) -> Gradients:
        (y,), (d,) = outputs, grads
        return (d * (y * y + 1),)


class Asin(Pointwise):
    """y = the angle from -pi/2 to pi/2 whose sine is a; NaN beyond 1."""

    name: ClassVar[str] = "asin"
    operations: ClassVar[int] = 40
    units: ClassVar[float] = 3.0
    expression: ClassVar[str] = "asin({a})"
    meaning = np.arcsin
    accepts = FLOATS

    def grad(self, f: Vocabulary, inputs: Tensors, outputs: Tensors, grads: Tensors) -> Gradients:
        (a,), (d,) = inputs, grads
        return (d * f.rsqrt(1 - a * a),)


class Acos(Pointwise):
    """y = the angle from 0 to pi whose cosine is a; NaN beyond 1."""

    name: ClassVar[str] = "acos"
    operations: ClassVar[int] = 50
    units: ClassVar[float] = 3.0
    expression: ClassVar[str] = "acos({a})"
    meaning = np.arccos
    accepts = FLOATS

    def grad(self, f: Vocabulary, inputs: Tensors, outputs: Tensors, grads: Tensors) -> Gradients:
        (a,), (d,) = inputs, grads
        return (-d * f.rsqrt(1 - a * a),)


class Atan(Pointwise):
    """y = the angle from -pi/2 to pi/2 whose tangent is a."""

    name: ClassVar[str] = "atan"
    operations: ClassVar[int] = 52
    units: ClassVar[float] = 3.0
    expression: ClassVar[str] = "atan({a})"
    meaning = np.arctan
    accepts = FLOATS

    def grad(self, f: Vocabulary, inputs: Tensors, outputs: Tensors, grads: Tensors) -> Gradients:
        (a,), (d,) = inputs, grads
        return (d / (a * a + 1),)


class Sinh(Pointwise):
    """y = (e^a - e^-a) / 2."""

    name: ClassVar[str] = "sinh"
    operations: ClassVar[int] = 120
    units: ClassVar[float] = 4.0
    expression: ClassVar[str] = "sinh({a})"
    meaning = np.sinh
    accepts = FLOATS

    def grad(self, f: Vocabulary, inputs: Tensors, outputs: Tensors, grads: Tensors) -> Gradients:
        (a,), (d,) = inputs, grads
        return (d * f.cosh(a),)


class Cosh(Pointwise):
    """y = (e^a + e^-a) / 2."""

    name: ClassVar[str] = "cosh"
    operations: ClassVar[int] = 100
    units: ClassVar[float] = 4.0
    expression: ClassVar[str] = "cosh({a})"
    meaning = np.cosh
    accepts = FLOATS

    def grad(self, f: Vocabulary, inputs: Tensors, outputs: Tensors, grads: Tensors) -> Gradients:
        (a,), (d,) = inputs, grads
        return (d * f.sinh(a),)


class Asinh(Pointwise):
    """y = log(a + sqrt(a^2 + 1)), the inverse of sinh."""

    name: ClassVar[str] = "asinh"
    operations: ClassVar[int] = 300
    units: ClassVar[float] = 4.0
    expression: ClassVar[str] = "asinh({a})"
    meaning = np.arcsinh
    accepts = FLOATS

    def grad(self, f: Vocabulary, inputs: Tensors, outputs: Tensors, grads: Tensors) -> Gradients:
        (a,), (d,) = inputs, grads
        return (d * f.rsqrt(a * a + 1),)


class Acosh(Pointwise):
    """y = log(a + sqrt(a^2 - 1)), the inverse of cosh; NaN below 1."""

    name: ClassVar[str] = "acosh"
    operations: ClassVar[int] = 280
    units: ClassVar[float] = 4.0
    expression: ClassVar[str] = "acosh({a})"
    meaning = np.arccosh
    accepts = FLOATS

    def grad(self, f: Vocabulary, inputs: Tensors, outputs: Tensors, grads: Tensors) -> Gradients:
        (a,), (d,) = inputs, grads
        return (d * f.rsqrt(a * a - 1),)


class Atanh(Pointwise):
    """y = log((1 + a) / (1 - a)) / 2, the inverse of tanh; NaN beyond 1."""

    name: ClassVar[str] = "atanh"
    operations: ClassVar[int] = 150
    units: ClassVar[float] = 4.0
    expression: ClassVar[str] = "atanh({a})"
    meaning = np.arctanh
    accepts = FLOATS

    def grad(self, f: Vocabulary, inputs: Tensors, outputs: Tensors, grads: Tensors) -> Gradients:
        (a,), (d,) = inputs, grads
        return (d / (1 - a * a),)


class Atan2(Pointwise):
    """y = the angle from -pi to pi of the point whose ordinate is a and whose abscissa is b."""

    name: ClassVar[str] = "atan2"
    operations: ClassVar[int] = 150
    units: ClassVar[float] = 4.0
    expression: ClassVar[str] = "atan2({a}, {b})"
    meaning = np.arctan2
    accepts = FLOATS

    def grad(self, f: Vocabulary, inputs: Tensors, outputs: Tensors, grads: Tensors) -> Gradients:
        (a, b), (d,) = inputs, grads
        square = a * a + b * b
        at_origin = square == 0  # where the angle has no slope: 0, as in PyTorch
        part = f.where(at_origin, 0.0, d / f.where(at_origin, 1.0, square))
        return part * b, -part * a


class Hypot(Pointwise):
    """y = sqrt(a^2 + b^2), without overflow on the way; infinite if either is."""

    name: ClassVar[str] = "hypot"
    operations: ClassVar[int] = 90
    units: ClassVar[float] = 1.0
    expression: ClassVar[str] = "hypot({a}, {b})"
    meaning = np.hypot
    accepts = FLOATS

    def grad(self, f: Vocabulary, inputs: Tensors, outputs: Tensors, grads: Tensors) -> Gradients:
        (a, b), (y,), (d,) = inputs, outputs, grads
        part = d / y
        return part * a, part * b
