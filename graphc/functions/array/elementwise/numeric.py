"""Elementwise rounding, signs, logarithms and bits, by the names of the Array API and torch."""

from __future__ import annotations

import math
from collections.abc import Callable

from graphc import ops
from graphc.base.dtypes import largest
from graphc.functions.array.elementwise.elementwise import (
    abs,
    add,
    clip,
    equal,
    exp,
    greater,
    isnan,
    less,
    less_equal,
    log,
    log1p,
    logical_and,
    logical_not,
    logical_or,
    logical_xor,
    maximum,
    multiply,
    negative,
    stop_gradient,
    subtract,
    where,
)
from graphc.functions.array.tensors import as_tensor, floating, promoted
from graphc.ir import DTYPES, FLOATS, TensorLike
from graphc.ops.base import Op
from graphc.trace import Tensor, emit


def ceil(x: TensorLike) -> Tensor:
    """Round up to integers; integers are unchanged."""
    return _rounded(ops.Ceil(), x)


def round(x: TensorLike) -> Tensor:
    """Round to the nearest integer, halves to the even one; integers are unchanged."""
    return _rounded(ops.Round(), x)


def trunc(x: TensorLike) -> Tensor:
    """Round towards zero; integers are unchanged."""
    return _rounded(ops.Trunc(), x)


def _rounded(op: Op, x: TensorLike) -> Tensor:
    tensor = as_tensor(x)
    return emit(op, tensor) if tensor.dtype in FLOATS else tensor


def signbit(x: TensorLike) -> Tensor:
    """Return whether the sign is negative, also that of -0, as booleans."""
    tensor = as_tensor(x)
    return emit(ops.Signbit(), tensor) if tensor.dtype in FLOATS else less(tensor, 0)


def copysign(x1: TensorLike, x2: TensorLike) -> Tensor:
    """Return the magnitude of `x1` with the sign of `x2`.

    Example:
        >>> graphc.compile(lambda: graphc.copysign([1.0, -2.0], -3.0))()
        array([-1., -2.], dtype=float32)
    """
    return emit(ops.Copysign(), *map(floating, promoted(x1, x2)))


def fmod(x1: TensorLike, x2: TensorLike) -> Tensor:
    """Return the remainder with the sign of the dividend: x1 - x2 * trunc(x1 / x2).

    `remainder` has the sign of the divisor.

    Example:
        >>> graphc.compile(lambda: graphc.fmod([7, -7], 3))()
        array([ 1, -1])
    """
    return emit(ops.Fmod(), *promoted(x1, x2))


def exp2(x: TensorLike) -> Tensor:
    """Return powers of two: 2^x."""
    return emit(ops.Exp2(), floating(x))


def log2(x: TensorLike) -> Tensor:
    """Return logarithms to base 2; -inf at 0, NaN for negative numbers."""
    return emit(ops.Log2(), floating(x))


def log10(x: TensorLike) -> Tensor:
    """Return logarithms to base 10; -inf at 0, NaN for negative numbers."""
    return emit(ops.Log10(), floating(x))


def logaddexp(x1: TensorLike, x2: TensorLike) -> Tensor:
    """Return log(e^x1 + e^x2) without overflow."""
    a, b = map(floating, promoted(x1, x2))
    return add(maximum(a, b), log1p(exp(_negative_distance(a, b))))


def logaddexp2(x1: TensorLike, x2: TensorLike) -> Tensor:
    """Return log2(2^x1 + 2^x2) without overflow."""
    a, b = map(floating, promoted(x1, x2))
    return add(maximum(a, b), multiply(log1p(exp2(_negative_distance(a, b))), 1 / math.log(2)))


def _negative_distance(a: Tensor, b: Tensor) -> Tensor:
    """-|a - b|; 0 for two equal infinities."""
    return where(equal(a, b), 0, negative(abs(subtract(a, b))))


def xlogy(x1: TensorLike, x2: TensorLike) -> Tensor:
    """Return x1 * log(x2); 0 where x1 is 0 and x2 is not NaN."""
    a, b = map(floating, promoted(x1, x2))
    infinite = logical_or(less_equal(b, 0), equal(b, float("inf")))
    nothing = logical_and(equal(a, 0), infinite)
    return where(nothing, 0, multiply(a, log(where(nothing, 1, b))))


def logit(x: TensorLike, eps: float | None = None) -> Tensor:
    """Return the inverse of `sigmoid`: log(x / (1 - x)).

    Args:
        x: The input.
        eps: If given, `x` is first limited to [eps, 1 - eps].

    Example:
        >>> graphc.compile(lambda: graphc.logit([0.5, 1.0], eps=0.25))()
        array([0.       , 1.0986123], dtype=float32)
    """
    tensor = floating(x) if eps is None else clip(floating(x), eps, 1 - eps)
    return subtract(log(tensor), log1p(negative(tensor)))


def heaviside(x1: TensorLike, x2: TensorLike) -> Tensor:
    """Return the step function: 1 where x1 > 0, x2 where x1 = 0, else 0.

    No gradient flows to `x1`.

    Example:
        >>> graphc.compile(lambda: graphc.heaviside([-1.0, 0.0, 1.0], 0.5))()
        array([0. , 0.5, 1. ], dtype=float32)
    """
    a, b = promoted(x1, x2)
    step = stop_gradient(a)
    return where(equal(step, 0), b, where(greater(step, 0), 1, 0))


def isinf(x: TensorLike) -> Tensor:
    """Return whether elements are infinite, as booleans; false for integers."""
    tensor = as_tensor(x)
    if tensor.dtype not in FLOATS:
        return logical_not(equal(tensor, tensor))
    return equal(abs(tensor), float("inf"))


def positive(x: TensorLike) -> Tensor:
    """Return `x` unchanged."""
    return as_tensor(x)


def lerp(start: TensorLike, end: TensorLike, weight: TensorLike) -> Tensor:
    """Interpolate linearly: start + weight * (end - start).

    Example:
        >>> graphc.compile(lambda: graphc.lerp(0.0, 10.0, [0.25, 0.5]))()
        array([2.5, 5. ], dtype=float32)
    """
    a, b, w = map(floating, promoted(start, end, weight))
    return add(a, multiply(w, subtract(b, a)))


def nan_to_num(
    x: TensorLike, nan: float = 0.0, posinf: float | None = None, neginf: float | None = None
) -> Tensor:
    """Replace NaN and infinities with numbers; the gradient there is 0.

    Args:
        x: The input.
        nan: The replacement of NaN.
        posinf: The replacement of infinity; by default the largest number of the dtype.
        neginf: The replacement of negative infinity; by default the smallest number of the dtype.

    Example:
        >>> graphc.compile(lambda: graphc.nan_to_num([np.nan, np.inf], posinf=9.0))()
        array([0., 9.], dtype=float32)
    """
    tensor = as_tensor(x)
    if tensor.dtype not in FLOATS:
        return tensor
    most = largest(DTYPES[tensor.dtype])
    high = as_tensor(most if posinf is None else posinf, tensor.dtype)
    low = as_tensor(-most if neginf is None else neginf, tensor.dtype)
    infinite = where(greater(tensor, 0), high, low)
    return where(isnan(tensor), nan, where(isinf(tensor), infinite, tensor))


def bitwise_and(x1: TensorLike, x2: TensorLike) -> Tensor:
    """Return the bitwise AND of integers, or the logical AND of booleans.

    Example:
        >>> graphc.compile(lambda: graphc.bitwise_and(6, 3))()
        array(2)
    """
    return _bitwise(logical_and, ops.BitwiseAnd(), x1, x2)


def bitwise_or(x1: TensorLike, x2: TensorLike) -> Tensor:
    """Return the bitwise OR of integers, or the logical OR of booleans.

    Example:
        >>> graphc.compile(lambda: graphc.bitwise_or(6, 3))()
        array(7)
    """
    return _bitwise(logical_or, ops.BitwiseOr(), x1, x2)


def bitwise_xor(x1: TensorLike, x2: TensorLike) -> Tensor:
    """Return the bitwise XOR of integers, or the logical XOR of booleans.

    Example:
        >>> graphc.compile(lambda: graphc.bitwise_xor(6, 3))()
        array(5)
    """
    return _bitwise(logical_xor, ops.BitwiseXor(), x1, x2)


def bitwise_not(x: TensorLike) -> Tensor:
    """Invert the bits of integers, -1 - x, or negate booleans."""
    return _bitwise(logical_not, ops.BitwiseNot(), x)


def bitwise_invert(x: TensorLike) -> Tensor:
    """Invert the bits of integers: `bitwise_not` by its name in the Array API."""
    return bitwise_not(x)


def bitwise_left_shift(x1: TensorLike, x2: TensorLike) -> Tensor:
    """Shift the bits of integers to the left: x1 * 2^x2, wrapped around.

    The result is 0 where `x2` is negative or not below the number of bits.

    Example:
        >>> graphc.compile(lambda: graphc.bitwise_left_shift(3, 2))()
        array(12)
    """
    return emit(ops.LeftShift(), *promoted(x1, x2))


def bitwise_right_shift(x1: TensorLike, x2: TensorLike) -> Tensor:
    """Shift the bits of integers to the right: floor(x1 / 2^x2).

    Where `x2` is negative or not below the number of bits, the result is 0, or -1 for a negative
    `x1`.

    Example:
        >>> graphc.compile(lambda: graphc.bitwise_right_shift([12, -1], 2))()
        array([ 3, -1])
    """
    return emit(ops.RightShift(), *promoted(x1, x2))


def _bitwise(logical: Callable[..., Tensor], op: Op, *operands: TensorLike) -> Tensor:
    tensors = promoted(*operands)
    return logical(*tensors) if tensors[0].dtype == "bool" else emit(op, *tensors)
