"""Further arithmetic of elements: extremes without NaN, integers, angles, closeness; by the names
of torch and the Array API."""

from __future__ import annotations

import math
from collections.abc import Callable

from graphc import ops
from graphc.functions.array.elementwise.elementwise import (
    abs,
    add,
    divide,
    equal,
    floor_divide,
    isfinite,
    isnan,
    less_equal,
    logical_and,
    logical_or,
    maximum,
    minimum,
    multiply,
    pow,
    subtract,
    where,
)
from graphc.functions.array.elementwise.numeric import exp2, trunc
from graphc.functions.array.reductions import all, any
from graphc.functions.array.shape.shapes import expand_dims, reshape
from graphc.functions.array.tensors import as_tensor, astype, cast, error, floating, promoted
from graphc.ir import FLOATS, INTEGERS, TensorLike
from graphc.trace import Tensor, emit


def fmax(x1: TensorLike, x2: TensorLike) -> Tensor:
    """The larger of x1 and x2; the other one where one is NaN."""
    return _but_nan(maximum, x1, x2)


def fmin(x1: TensorLike, x2: TensorLike) -> Tensor:
    """The smaller of x1 and x2; the other one where one is NaN."""
    return _but_nan(minimum, x1, x2)


def _but_nan(chosen: Callable[..., Tensor], x1: TensorLike, x2: TensorLike) -> Tensor:
    a, b = promoted(x1, x2)
    if a.dtype not in FLOATS:
        return chosen(a, b)
    return where(isnan(a), b, where(isnan(b), a, chosen(a, b)))


def nextafter(x1: TensorLike, x2: TensorLike) -> Tensor:
    """The number next to x1 on the way to x2; no gradient flows."""
    return emit(ops.Nextafter(), *map(floating, promoted(x1, x2)))


def gcd(x1: TensorLike, x2: TensorLike) -> Tensor:
    """The greatest common divisor of two integers, |x1| where x2 = 0."""
    return emit(ops.Gcd(), *_integers("gcd", x1, x2))


def lcm(x1: TensorLike, x2: TensorLike) -> Tensor:
    """The least common multiple of two integers, 0 where one is 0."""
    a, b = _integers("lcm", x1, x2)
    return abs(multiply(floor_divide(a, emit(ops.Gcd(), a, b)), b))


def _integers(name: str, x1: TensorLike, x2: TensorLike) -> list[Tensor]:
    pair = promoted(x1, x2)
    if pair[0].dtype not in INTEGERS:
        raise error(f"{name}: expected integers, got {pair[0].value.type} and {pair[1].value.type}")
    return pair


def frac(x: TensorLike) -> Tensor:
    """The fraction of x, with its sign: x - trunc(x)."""
    tensor = as_tensor(x)
    return subtract(tensor, trunc(tensor))


def ldexp(x1: TensorLike, x2: TensorLike) -> Tensor:
    """x1 * 2^x2."""
    return multiply(floating(x1), exp2(x2))


def float_power(x1: TensorLike, x2: TensorLike) -> Tensor:
    """x1 to the power of x2, both as f64."""
    return pow(astype(x1, "f64"), astype(x2, "f64"))


def deg2rad(x: TensorLike) -> Tensor:
    """Degrees as radians."""
    return multiply(floating(x), math.pi / 180)


def rad2deg(x: TensorLike) -> Tensor:
    """Radians as degrees."""
    return multiply(floating(x), 180 / math.pi)


def addcmul(x: TensorLike, tensor1: TensorLike, tensor2: TensorLike, value: float = 1) -> Tensor:
    """x + value * tensor1 * tensor2."""
    product = multiply(tensor1, tensor2)
    return add(x, product if value == 1 else multiply(product, value))


def addcdiv(x: TensorLike, tensor1: TensorLike, tensor2: TensorLike, value: float = 1) -> Tensor:
    """x + value * tensor1 / tensor2."""
    return add(x, divide(tensor1 if value == 1 else multiply(tensor1, value), tensor2))


def isin(x: TensorLike, values: TensorLike) -> Tensor:
    """Whether each element of x equals one of `values`: booleans."""
    tensor, known = promoted(x, values)
    return any(equal(expand_dims(tensor, -1), reshape(known, (-1,))), -1)


def isposinf(x: TensorLike) -> Tensor:
    """Whether x is inf: booleans."""
    return _equals(x, math.inf)


def isneginf(x: TensorLike) -> Tensor:
    """Whether x is -inf: booleans."""
    return _equals(x, -math.inf)


def _equals(x: TensorLike, number: float) -> Tensor:
    tensor = as_tensor(x)
    return equal(tensor if tensor.dtype in FLOATS else cast(tensor, "f32"), number)


def isclose(
    x1: TensorLike, x2: TensorLike, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> Tensor:
    """Whether |x1 - x2| <= atol + rtol |x2|, or both are equal: booleans. NaN is close to NaN with
    `equal_nan` alone."""
    a, b = promoted(x1, x2)
    exactly = equal(a, b)
    if a.dtype not in FLOATS:
        a, b = cast(a, "f64"), cast(b, "f64")
    elif equal_nan:
        exactly = logical_or(exactly, logical_and(isnan(a), isnan(b)))
    difference = abs(subtract(a, b))
    near = less_equal(difference, add(multiply(abs(b), rtol), atol))
    return logical_or(exactly, logical_and(near, isfinite(difference)))


def allclose(
    x1: TensorLike, x2: TensorLike, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> Tensor:
    """Whether `isclose` holds for all elements: a boolean."""
    return all(isclose(x1, x2, rtol, atol, equal_nan))
