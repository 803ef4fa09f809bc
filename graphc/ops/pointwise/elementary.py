"""Pointwise functions of one float input.

Gradients multiply the incoming one first: a product of forward values alone would be computed in
the forward pass and kept.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np

from graphc.ir import FLOATS
from graphc.ir.vocabulary import Gradients, Tensors, Vocabulary
from graphc.ops.base import Array, Pointwise


class Exp(Pointwise):
    """y = e^a."""

    name: ClassVar[str] = "exp"
    operations: ClassVar[int] = 30
    units: ClassVar[float] = 1.5
    expression: ClassVar[str] = "exp({a})"
    meaning = np.exp
    accepts = FLOATS

    def grad(self, f: Vocabulary, inputs: Tensors, outputs: Tensors, grads: Tensors) -> Gradients:
        (y,), (d,) = outputs, grads
        return (d * y,)


class Expm1(Pointwise):
    """y = e^a - 1, accurate near 0."""

    name: ClassVar[str] = "expm1"
    operations: ClassVar[int] = 40
    units: ClassVar[float] = 2.0
    expression: ClassVar[str] = "expm1({a})"
    meaning = np.expm1
    accepts = FLOATS

    def grad(self, f: Vocabulary, inputs: Tensors, outputs: Tensors, grads: Tensors) -> Gradients:
        (y,), (d,) = outputs, grads
        return (d * (y + 1),)


class Log(Pointwise):
    """y = log a, the natural logarithm; -inf at 0, NaN below."""

    name: ClassVar[str] = "log"
    operations: ClassVar[int] = 75
    units: ClassVar[float] = 1.5
    expression: ClassVar[str] = "log({a})"
    meaning = np.log
    accepts = FLOATS

    def grad(self, f: Vocabulary, inputs: Tensors, outputs: Tensors, grads: Tensors) -> Gradients:
        (a,), (d,) = inputs, grads
        return (d / a,)


class Log1p(Pointwise):
    """y = log(1 + a), accurate near 0."""

    name: ClassVar[str] = "log1p"
    operations: ClassVar[int] = 115
    units: ClassVar[float] = 2.0
    expression: ClassVar[str] = "log1p({a})"
    meaning = np.log1p
    accepts = FLOATS

    def grad(self, f: Vocabulary, inputs: Tensors, outputs: Tensors, grads: Tensors) -> Gradients:
        (a,), (d,) = inputs, grads
        return (d / (a + 1),)


class Sqrt(Pointwise):
    """y = sqrt(a), NaN below 0."""

    name: ClassVar[str] = "sqrt"
    operations: ClassVar[int] = 24
    units: ClassVar[float] = 0.5
    expression: ClassVar[str] = "sqrt({a})"
    meaning = np.sqrt
    accepts = FLOATS

    def grad(self, f: Vocabulary, inputs: Tensors, outputs: Tensors, grads: Tensors) -> Gradients:
        (y,), (d,) = outputs, grads
        return (d * 0.5 / y,)


def _rsqrt(a: Array) -> Any:
    return a.dtype.type(1) / np.sqrt(a)


class Rsqrt(Pointwise):
    """y = 1 / sqrt(a), inf at 0, NaN below."""

    name: ClassVar[str] = "rsqrt"
    operations: ClassVar[int] = 45
    units: ClassVar[float] = 2.0
    expression: ClassVar[str] = "rsqrt({a})"
    meaning = _rsqrt
    accepts = FLOATS

    def grad(self, f: Vocabulary, inputs: Tensors, outputs: Tensors, grads: Tensors) -> Gradients:
        (y,), (d,) = outputs, grads
        return (d * -0.5 * y * y * y,)


class Tanh(Pointwise):
    """y = tanh(a)."""

    name: ClassVar[str] = "tanh"
    operations: ClassVar[int] = 32
    units: ClassVar[float] = 5.5
    expression: ClassVar[str] = "tanh({a})"
    meaning = np.tanh
    accepts = FLOATS

    def grad(self, f: Vocabulary, inputs: Tensors, outputs: Tensors, grads: Tensors) -> Gradients:
        (y,), (d,) = outputs, grads
        return (d * (1 - y * y),)


def _sigmoid(a: Array) -> Any:
    """1 / (1 + e^-a) with no large exponential: of -|a|, mirrored for negative a."""
    small = np.exp(-np.abs(a))
    return np.where(a < 0, small, a.dtype.type(1)) / (small + a.dtype.type(1))


class Sigmoid(Pointwise):
    """y = 1 / (1 + e^-a)."""

    name: ClassVar[str] = "sigmoid"
    operations: ClassVar[int] = 48
    units: ClassVar[float] = 3.0
    expression: ClassVar[str] = "sigmoid({a})"
    meaning = _sigmoid
    accepts = FLOATS

    def grad(self, f: Vocabulary, inputs: Tensors, outputs: Tensors, grads: Tensors) -> Gradients:
        (y,), (d,) = outputs, grads
        return (d * (y * (1 - y)),)


def _relu(a: Array) -> Any:
    return np.maximum(a, a.dtype.type(0))


class Relu(Pointwise):
    """y = max(a, 0), NaN where a is."""

    name: ClassVar[str] = "relu"
    keeps_largest: ClassVar[bool] = True
    operations: ClassVar[int] = 1
    expression: ClassVar[str] = "relu({a})"
    meaning = _relu

    def grad(self, f: Vocabulary, inputs: Tensors, outputs: Tensors, grads: Tensors) -> Gradients:
        (y,), (d,) = outputs, grads
        return (f.emit(ReluGrad(), d, y),)


def _relu_grad(d: Array, y: Array) -> Any:
    return np.where(y <= 0, np.result_type(d, y).type(0), d)


class ReluGrad(Pointwise):
    """dx = 0 where y <= 0, else d: the gradient of y = relu(x). NaN in y passes d."""

    name: ClassVar[str] = "relu_grad"
    operations: ClassVar[int] = 1
    expression: ClassVar[str] = "relu_grad({a}, {b})"
    meaning = _relu_grad

    def grad(self, f: Vocabulary, inputs: Tensors, outputs: Tensors, grads: Tensors) -> Gradients:
        (_, y), (d,) = inputs, grads
        return f.emit(ReluGrad(), d, y), None


_erf_of_one = np.frompyfunc(math.erf, 1, 1)


def _erf(a: Array) -> Any:
    return np.asarray(_erf_of_one(a)).astype(a.dtype)


class Erf(Pointwise):
    """y = 2 / sqrt(pi) times the integral of e^(-t^2) over t from 0 to a."""

    name: ClassVar[str] = "erf"
    operations: ClassVar[int] = 50
    units: ClassVar[float] = 6.0
    expression: ClassVar[str] = "erf({a})"
    meaning = _erf
    accepts = FLOATS

    def grad(self, f: Vocabulary, inputs: Tensors, outputs: Tensors, grads: Tensors) -> Gradients:
        (a,), (d,) = inputs, grads
        return (d * (2 / math.sqrt(math.pi)) * f.exp(-(a * a)),)


class Sin(Pointwise):
    """y = sin(a), a in radians."""

    name: ClassVar[str] = "sin"
    operations: ClassVar[int] = 180
    units: ClassVar[float] = 2.0
    expression: ClassVar[str] = "sin({a})"
    meaning = np.sin
    accepts = FLOATS

    def grad(self, f: Vocabulary, inputs: Tensors, outputs: Tensors, grads: Tensors) -> Gradients:
        (a,), (d,) = inputs, grads
        return (d * f.cos(a),)


class Cos(Pointwise):
    """y = cos(a), a in radians."""

    name: ClassVar[str] = "cos"
    operations: ClassVar[int] = 180
    units: ClassVar[float] = 2.0
    expression: ClassVar[str] = "cos({a})"
    meaning = np.cos
    accepts = FLOATS

    def grad(self, f: Vocabulary, inputs: Tensors, outputs: Tensors, grads: Tensors) -> Gradients:
        (a,), (d,) = inputs, grads
        return (-d * f.sin(a),)
