"""Functions of angles, hyperbolic functions, and their inverses, by Array API and torch names."""

from __future__ import annotations

from graphc import ops
from graphc.functions.array.tensors import floating, promoted
from graphc.ir import TensorLike
from graphc.trace import Tensor, emit


def tan(x: TensorLike) -> Tensor:
    """The tangent of x in radians."""
    return emit(ops.Tan(), floating(x))


def asin(x: TensorLike) -> Tensor:
    """The angle from -pi/2 to pi/2 whose sine is x; NaN beyond 1."""
    return emit(ops.Asin(), floating(x))


def acos(x: TensorLike) -> Tensor:
    """The angle from 0 to pi whose cosine is x; NaN beyond 1."""
    return emit(ops.Acos(), floating(x))


def atan(x: TensorLike) -> Tensor:
    """The angle from -pi/2 to pi/2 whose tangent is x."""
    return emit(ops.Atan(), floating(x))


def atan2(x1: TensorLike, x2: TensorLike) -> Tensor:
    """The angle from -pi to pi of the point with ordinate x1 and abscissa x2."""
    return emit(ops.Atan2(), *map(floating, promoted(x1, x2)))


def hypot(x1: TensorLike, x2: TensorLike) -> Tensor:
    """sqrt(x1^2 + x2^2) without overflow on the way."""
    return emit(ops.Hypot(), *map(floating, promoted(x1, x2)))


def sinh(x: TensorLike) -> Tensor:
    """The hyperbolic sine."""
    return emit(ops.Sinh(), floating(x))


def cosh(x: TensorLike) -> Tensor:
    """The hyperbolic cosine."""
    return emit(ops.Cosh(), floating(x))


def asinh(x: TensorLike) -> Tensor:
    """The inverse of sinh."""
    return emit(ops.Asinh(), floating(x))


def acosh(x: TensorLike) -> Tensor:
    """The inverse of cosh; NaN below 1."""
    return emit(ops.Acosh(), floating(x))


def atanh(x: TensorLike) -> Tensor:
    """The inverse of tanh; infinite at 1 and -1, NaN beyond."""
    return emit(ops.Atanh(), floating(x))
