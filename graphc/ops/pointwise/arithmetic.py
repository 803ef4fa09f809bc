"""Pointwise arithmetic: two operands, and negation, magnitude, rounding of one."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from graphc.ir import FLOATS
from graphc.ir.vocabulary import Gradients, Tensors, Vocabulary
from graphc.ops.base import Pointwise


class Add(Pointwise):
    """y = a + b."""

    name: ClassVar[str] = "add"
    adds: ClassVar[bool] = True
    expression: ClassVar[str] = "{a} + {b}"
    meaning = np.add

    def word(self, derived: bool, of_state: bool) -> str:
        return "bias" if of_state else "add"

    def grad(self, f: Vocabulary, inputs: Tensors, outputs: Tensors, grads: Tensors) -> Gradients:
        (d,) = grads
        return d, d


class Subtract(Pointwise):
    """y = a - b."""

    name: ClassVar[str] = "subtract"
    called: ClassVar[str] = ""
    neutral: ClassVar[tuple[float, tuple[int, ...]]] = (0, (1,))
    expression: ClassVar[str] = "{a} - {b}"
    meaning = np.subtract

    def grad(self, f: Vocabulary, inputs: Tensors, outputs: Tensors, grads: Tensors) -> Gradients:
        (d,) = grads
        return d, -d


class Multiply(Pointwise):
    """y = a * b."""

    name: ClassVar[str] = "multiply"
    called: ClassVar[str] = ""
    neutral: ClassVar[tuple[float, tuple[int, ...]]] = (1, (0, 1))
    expression: ClassVar[str] = "{a} * {b}"
    meaning = np.multiply

    def grad(self, f: Vocabulary, inputs: Tensors, outputs: Tensors, grads: Tensors) -> Gradients:
        (a, b), (d,) = inputs, grads
        return d * b, d * a


class Divide(Pointwise):
    """y = a / b, of floats."""

    name: ClassVar[str] = "divide"
    called: ClassVar[str] = ""
    neutral: ClassVar[tuple[float, tuple[int, ...]]] = (1, (1,))
    operations: ClassVar[int] = 4
    expression: ClassVar[str] = "{a} / {b}"
    meaning = np.divide
    accepts = FLOATS

    def grad(self, f: Vocabulary, inputs: Tensors, outputs: Tensors, grads: Tensors) -> Gradients:
        (_, b), (y,), (d,) = inputs, outputs, grads
        quotient = d / b
        return quotient, -quotient * y


class FloorDivide(Pointwise):
    """y = floor(a / b), of the exact quotient; for integers 0 where b = 0."""

    name: ClassVar[str] = "floor_divide"
    operations: ClassVar[int] = 5000
    expression: ClassVar[str] = "floor_divide({a}, {b})"
    meaning = np.floor_divide

    def grad(self, f: Vocabulary, inputs: Tensors, outputs: Tensors, grads: Tensors) -> Gradients:
        return None, None


class Remainder(Pointwise):
    """y = a - b floor(a / b), with the sign of b; for integers 0 where b = 0."""

    name: ClassVar[str] = "remainder"
    operations: ClassVar[int] = 5000
    expression: ClassVar[str] = "remainder({a}, {b})"
    meaning = np.remainder

    def grad(self, f: Vocabulary, inputs: Tensors, outputs: Tensors, grads: Tensors) -> Gradients:
        (a, b), (d,) = inputs, grads
        return d, -d * (a // b)


class Pow(Pointwise):
    """y = a^b, of floats."""

    name: ClassVar[str] = "pow"
    operations: ClassVar[int] = 550
    units: ClassVar[float] = 1.0
    expression: ClassVar[str] = "pow({a}, {b})"
    meaning = np.power
    accepts = FLOATS

    def grad(self, f: Vocabulary, inputs: Tensors, outputs: Tensors, grads: Tensors) -> Gradients:
        """dy/da = b a^(b-1), 0 for b = 0; dy/db = y log a, 0 where a = 0 and b >= 0."""
        (a, b), (y,), (d,) = inputs, outputs, grads
        da = f.where(b == 0, 0, d * b * a ** (b - 1))
        db = f.where((a == 0) & (b >= 0), 0, d * y * f.log(a))
        return da, db


class Maximum(Pointwise):
    """y = max(a, b), NaN if either is. The gradient is halved where they are equal."""

    name: ClassVar[str] = "maximum"
    operations: ClassVar[int] = 1
    expression: ClassVar[str] = "maximum({a}, {b})"
    meaning = np.maximum

    def grad(self, f: Vocabulary, inputs: Tensors, outputs: Tensors, grads: Tensors) -> Gradients:
        (a, b), (d,) = inputs, grads
        shared = f.where(a == b, d * 0.5, d)
        return f.where(a < b, 0, shared), f.where(b < a, 0, shared)


class Minimum(Pointwise):
    """y = min(a, b), NaN if either is. The gradient is halved where they are equal."""

    name: ClassVar[str] = "minimum"
    operations: ClassVar[int] = 1
    expression: ClassVar[str] = "minimum({a}, {b})"
    meaning = np.minimum

    def grad(self, f: Vocabulary, inputs: Tensors, outputs: Tensors, grads: Tensors) -> Gradients:
        (a, b), (d,) = inputs, grads
        shared = f.where(a == b, d * 0.5, d)
        return f.where(a > b, 0, shared), f.where(b > a, 0, shared)


class Negative(Pointwise):
    """y = -a."""

    name: ClassVar[str] = "negative"
    called: ClassVar[str] = ""
    expression: ClassVar[str] = "-{a}"
    meaning = np.negative

    def grad(self, f: Vocabulary, inputs: Tensors, outputs: Tensors, grads: Tensors) -> Gradients:
        (d,) = grads
        return (-d,)


class Abs(Pointwise):
    """y = |a|. The gradient at 0 is 0."""

    name: ClassVar[str] = "abs"
    operations: ClassVar[int] = 1
    expression: ClassVar[str] = "abs({a})"
    meaning = np.abs

    def grad(self, f: Vocabulary, inputs: Tensors, outputs: Tensors, grads: Tensors) -> Gradients:
        (a,), (d,) = inputs, grads
        return (f.where(a > 0, d, f.where(a < 0, -d, d * a)),)


class Square(Pointwise):
    """y = a * a."""

    name: ClassVar[str] = "square"
    expression: ClassVar[str] = "{a} * {a}"
    meaning = np.square

    def grad(self, f: Vocabulary, inputs: Tensors, outputs: Tensors, grads: Tensors) -> Gradients:
        (a,), (d,) = inputs, grads
        return (d * 2 * a,)


class Floor(Pointwise):
    """y = floor(a), of floats. The gradient is 0."""

    name: ClassVar[str] = "floor"
    operations: ClassVar[int] = 10
    units: ClassVar[float] = 0.0
    expression: ClassVar[str] = "floor({a})"
    meaning = np.floor
    accepts = FLOATS

    def grad(self, f: Vocabulary, inputs: Tensors, outputs: Tensors, grads: Tensors) -> Gradients:
        return (None,)


class StopGradient(Pointwise):
    """y = a, whose gradient counts as 0."""

    name: ClassVar[str] = "stop_gradient"
    stops_gradient: ClassVar[bool] = True
    expression: ClassVar[str] = "{a}"
    meaning = np.copy

    def grad(self, f: Vocabulary, inputs: Tensors, outputs: Tensors, grads: Tensors) -> Gradients:
        return (None,)
