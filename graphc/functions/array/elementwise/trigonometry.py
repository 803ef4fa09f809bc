"""Trigonometric and hyperbolic functions and their inverses."""

from __future__ import annotations

from graphc import ops
from graphc.functions.array.tensors import floating, promoted
from graphc.ir import TensorLike
from graphc.trace import Tensor, emit


def tan(x: TensorLike) -> Tensor:
    """Return tangents of angles in radians."""
    return emit(ops.Tan(), floating(x))


def asin(x: TensorLike) -> Tensor:
    """Return the inverse of `sin`, from -pi/2 to pi/2; NaN outside of [-1, 1]."""
    return emit(ops.Asin(), floating(x))


def acos(x: TensorLike) -> Tensor:
    """Return the inverse of `cos`, from 0 to pi; NaN outside of [-1, 1]."""
    return emit(ops.Acos(), floating(x))


def atan(x: TensorLike) -> Tensor:
    """Return the inverse of `tan`, from -pi/2 to pi/2."""
    return emit(ops.Atan(), floating(x))


def atan2(x1: TensorLike, x2: TensorLike) -> Tensor:
    """Return the angle of the point (x2, x1), from -pi to pi.

    Example:
        >>> graphc.compile(lambda: graphc.atan2([0.0, 1.0], [1.0, 0.0]))()
        array([0.       , 1.5707964], dtype=float32)
    """
    return emit(ops.Atan2(), *map(floating, promoted(x1, x2)))


def hypot(x1: TensorLike, x2: TensorLike) -> Tensor:
    """Return the length of the hypotenuse, sqrt(x1^2 + x2^2), without overflow.

    Example:
        >>> graphc.compile(lambda: graphc.hypot(3.0, 4.0))()
        array(5., dtype=float32)
    """
    return emit(ops.Hypot(), *map(floating, promoted(x1, x2)))


def sinh(x: TensorLike) -> Tensor:
    """Return hyperbolic sines."""
    return emit(ops.Sinh(), floating(x))


def cosh(x: TensorLike) -> Tensor:
    """Return hyperbolic cosines."""
    return emit(ops.Cosh(), floating(x))


def asinh(x: TensorLike) -> Tensor:
    """Return the inverse of `sinh`."""
    return emit(ops.Asinh(), floating(x))


def acosh(x: TensorLike) -> Tensor:
    """Return the inverse of `cosh`; NaN below 1."""
    return emit(ops.Acosh(), floating(x))


def atanh(x: TensorLike) -> Tensor:
    """Return the inverse of `tanh`; infinite at 1 and -1, NaN beyond."""
    return emit(ops.Atanh(), floating(x))
