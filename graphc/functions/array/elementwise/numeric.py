"""Rounding, signs, other bases, bits and blends of elements, by Array API and torch names."""

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
    """The smallest integer not below x; integers stay as they are."""
    return _rounded(ops.Ceil(), x)


def round(x: TensorLike) -> Tensor:
    """The integer nearest to x, the even one of two; integers stay as they are."""
    return _rounded(ops.Round(), x)


def trunc(x: TensorLike) -> Tensor:
    """x without its fraction; integers stay as they are."""
    return _rounded(ops.Trunc(), x)


def _rounded(op: Op, x: TensorLike) -> Tensor:
    tensor = as_tensor(x)
    return emit(op, tensor) if tensor.dtype in FLOATS else tensor


def signbit(x: TensorLike) -> Tensor:
    """Whether the sign of x is negative, also that of -0: booleans."""
    tensor = as_tensor(x)
    return emit(ops.Signbit(), tensor) if tensor.dtype in FLOATS else less(tensor, 0)


def copysign(x1: TensorLike, x2: TensorLike) -> Tensor:
    """The magnitude of x1 with the sign of x2."""
    return emit(ops.Copysign(), *map(floating, promoted(x1, x2)))


def fmod(x1: TensorLike, x2: TensorLike) -> Tensor:
    """x1 - x2 * trunc(x1 / x2): with the sign of x1. `remainder` has that of x2."""
    return emit(ops.Fmod(), *promoted(x1, x2))


def exp2(x: TensorLike) -> Tensor:
    """2^x."""
    return emit(ops.Exp2(), floating(x))


def log2(x: TensorLike) -> Tensor:
    """The logarithm to base 2; -inf at 0, NaN below."""
    return emit(ops.Log2(), floating(x))


def log10(x: TensorLike) -> Tensor:
    """The logarithm to base 10; -inf at 0, NaN below."""
    return emit(ops.Log10(), floating(x))


def logaddexp(x1: TensorLike, x2: TensorLike) -> Tensor:
    """log(e^x1 + e^x2), without overflow."""
    a, b = map(floating, promoted(x1, x2))
    return add(maximum(a, b), log1p(exp(_behind(a, b))))


def logaddexp2(x1: TensorLike, x2: TensorLike) -> Tensor:
    """log2(2^x1 + 2^x2), without overflow."""
    a, b = map(floating, promoted(x1, x2))
    return add(maximum(a, b), multiply(log1p(exp2(_behind(a, b))), 1 / math.log(2)))


def _behind(a: Tensor, b: Tensor) -> Tensor:
    """-|a - b|; 0 for two equal infinities."""
    return where(equal(a, b), 0, negative(abs(subtract(a, b))))


def xlogy(x1: TensorLike, x2: TensorLike) -> Tensor:
    """x1 * log(x2); 0 where x1 = 0 and x2 is not NaN."""
    a, b = map(floating, promoted(x1, x2))
    infinite = logical_or(less_equal(b, 0), equal(b, float("inf")))
    nothing = logical_and(equal(a, 0), infinite)
    return where(nothing, 0, multiply(a, log(where(nothing, 1, b))))


def logit(x: TensorLike, eps: float | None = None) -> Tensor:
    """log(x / (1 - x)), the inverse of sigmoid; of x moved into [eps, 1 - eps] if that is given."""
    tensor = floating(x) if eps is None else clip(floating(x), eps, 1 - eps)
    return subtract(log(tensor), log1p(negative(tensor)))


def heaviside(x1: TensorLike, x2: TensorLike) -> Tensor:
    """1 where x1 is positive, x2 where it is 0, else 0; no gradient flows to x1."""
    a, b = promoted(x1, x2)
    step = stop_gradient(a)
    return where(equal(step, 0), b, where(greater(step, 0), 1, 0))


def isinf(x: TensorLike) -> Tensor:
    """Whether x is infinite: booleans; false for integers."""
    tensor = as_tensor(x)
    if tensor.dtype not in FLOATS:
        return logical_not(equal(tensor, tensor))
    return equal(abs(tensor), float("inf"))


def positive(x: TensorLike) -> Tensor:
    """x."""
    return as_tensor(x)


def lerp(start: TensorLike, end: TensorLike, weight: TensorLike) -> Tensor:
    """start + weight * (end - start)."""
    a, b, w = map(floating, promoted(start, end, weight))
    return add(a, multiply(w, subtract(b, a)))


def nan_to_num(
    x: TensorLike, nan: float = 0.0, posinf: float | None = None, neginf: float | None = None
) -> Tensor:
    """x with `nan` for NaN and with `posinf` and `neginf` (by default the largest and the smallest
    number of the dtype) for the infinities. The gradient is 0 there."""
    tensor = as_tensor(x)
    if tensor.dtype not in FLOATS:
        return tensor
    most = largest(DTYPES[tensor.dtype])
    high = as_tensor(most if posinf is None else posinf, tensor.dtype)
    low = as_tensor(-most if neginf is None else neginf, tensor.dtype)
    infinite = where(greater(tensor, 0), high, low)
    return where(isnan(tensor), nan, where(isinf(tensor), infinite, tensor))


def bitwise_and(x1: TensorLike, x2: TensorLike) -> Tensor:
    """The bits of two integers that are both 1; of booleans, whether both are true."""
    return _bitwise(logical_and, ops.BitwiseAnd(), x1, x2)


def bitwise_or(x1: TensorLike, x2: TensorLike) -> Tensor:
    """The bits that are 1 in either of two integers; of booleans, whether either is true."""
    return _bitwise(logical_or, ops.BitwiseOr(), x1, x2)


def bitwise_xor(x1: TensorLike, x2: TensorLike) -> Tensor:
    """The bits in which two integers differ; of booleans, whether they do."""
    return _bitwise(logical_xor, ops.BitwiseXor(), x1, x2)


def bitwise_not(x: TensorLike) -> Tensor:
    """The bits of an integer inverted, -1 - x; of booleans, whether x is false."""
    return _bitwise(logical_not, ops.BitwiseNot(), x)


def bitwise_invert(x: TensorLike) -> Tensor:
    """`bitwise_not` by its name in the Array API."""
    return bitwise_not(x)


def bitwise_left_shift(x1: TensorLike, x2: TensorLike) -> Tensor:
    """x1 * 2^x2 of integers, wrapped; 0 where x2 is negative or not below the number of bits."""
    return emit(ops.LeftShift(), *promoted(x1, x2))


def bitwise_right_shift(x1: TensorLike, x2: TensorLike) -> Tensor:
    """floor(x1 / 2^x2) of integers; the sign's limit where x2 is negative or not below the number
    of bits."""
    return emit(ops.RightShift(), *promoted(x1, x2))


def _bitwise(logical: Callable[..., Tensor], op: Op, *operands: TensorLike) -> Tensor:
    tensors = promoted(*operands)
    return logical(*tensors) if tensors[0].dtype == "bool" else emit(op, *tensors)
