"""Pointwise rounding, signs and remainders, powers of two and logarithms to other bases."""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np

from graphc.ir import FLOATS
from graphc.ir.vocabulary import Gradients, Tensors, Vocabulary
from graphc.ops.base import Pointwise


class Rounding(Pointwise):
    """An integer near a float. The gradient is 0."""

    accepts = FLOATS

    def grad(self, f: Vocabulary, inputs: Tensors, outputs: Tensors, grads: Tensors) -> Gradients:
        return (None,)


class Ceil(Rounding):
    """y = the smallest integer not below a."""

    name: ClassVar[str] = "ceil"
    operations: ClassVar[int] = 13
    units: ClassVar[float] = 0.0
    expression: ClassVar[str] = "ceil({a})"
    meaning = np.ceil


class Round(Rounding):
    """y = the integer nearest to a; the even one of two that are equally near."""

    name: ClassVar[str] = "round"
    operations: ClassVar[int] = 9
    units: ClassVar[float] = 0.0
    expression: ClassVar[str] = "round_even({a})"
    meaning = np.rint


class Trunc(Rounding):
    """y = a without its fraction."""

    name: ClassVar[str] = "trunc"
    operations: ClassVar[int] = 11
    units: ClassVar[float] = 0.0
    expression: ClassVar[str] = "trunc({a})"
    meaning = np.trunc


class Signbit(Pointwise):
    """y = whether the sign of a is negative: booleans; true for -0."""

    name: ClassVar[str] = "signbit"
    operations: ClassVar[int] = 1
    expression: ClassVar[str] = "signbit({a})"
    meaning = np.signbit
    accepts = FLOATS
    gives = "bool"

    def grad(self, f: Vocabulary, inputs: Tensors, outputs: Tensors, grads: Tensors) -> Gradients:
        return (None,)


class Copysign(Pointwise):
    """y = |a| with the sign of b. The gradient at a = 0 is 0."""

    name: ClassVar[str] = "copysign"
    operations: ClassVar[int] = 1
    units: ClassVar[float] = 0.0
    expression: ClassVar[str] = "copysign({a}, {b})"
    meaning = np.copysign
    accepts = FLOATS

    def grad(self, f: Vocabulary, inputs: Tensors, outputs: Tensors, grads: Tensors) -> Gradients:
        (a, b), (d,) = inputs, grads
        return f.where(a == 0, 0, f.where(f.signbit(a) ^ f.signbit(b), -d, d)), None


class Fmod(Pointwise):
    """y = a - b trunc(a / b), exactly, with the sign of a; for integers 0 where b = 0."""

    name: ClassVar[str] = "fmod"
    operations: ClassVar[int] = 5000
    units: ClassVar[float] = 0.0
    expression: ClassVar[str] = "fmod({a}, {b})"
    meaning = np.fmod

    def grad(self, f: Vocabulary, inputs: Tensors, outputs: Tensors, grads: Tensors) -> Gradients:
        (a, b), (d,) = inputs, grads
        return d, -d * f.trunc(a / b)


class Exp2(Pointwise):
    """y = 2^a."""

    name: ClassVar[str] = "exp2"
    operations: ClassVar[int] = 150
    units: ClassVar[float] = 1.0
    expression: ClassVar[str] = "exp2({a})"
    meaning = np.exp2
    accepts = FLOATS

    def grad(self, f: Vocabulary, inputs: Tensors, outputs: Tensors, grads: Tensors) -> Gradients:
        (y,), (d,) = outputs, grads
        return (d * math.log(2) * y,)


class Log2(Pointwise):
    """y = the logarithm of a to base 2; -inf at 0, NaN below."""

    name: ClassVar[str] = "log2"
    operations: ClassVar[int] = 160
    units: ClassVar[float] = 1.0
    expression: ClassVar[str] = "log2({a})"
    meaning = np.log2
    accepts = FLOATS

    def grad(self, f: Vocabulary, inputs: Tensors, outputs: Tensors, grads: Tensors) -> Gradients:
        (a,), (d,) = inputs, grads
        return (d / (a * math.log(2)),)


class Log10(Pointwise):
    """y = the logarithm of a to base 10; -inf at 0, NaN below."""

    name: ClassVar[str] = "log10"
    operations: ClassVar[int] = 160
    units: ClassVar[float] = 1.0
    expression: ClassVar[str] = "log10({a})"
    meaning = np.log10
    accepts = FLOATS

    def grad(self, f: Vocabulary, inputs: Tensors, outputs: Tensors, grads: Tensors) -> Gradients:
        (a,), (d,) = inputs, grads
        return (d / (a * math.log(10)),)
