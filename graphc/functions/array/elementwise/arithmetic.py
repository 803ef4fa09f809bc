"""More elementwise arithmetic, by the names of torch and the Array API."""

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
    """Return the larger of two elements, ignoring NaN: fmax(NaN, y) = y.

    Example:
        >>> graphc.compile(lambda: graphc.fmax([1.0, np.nan], [2.0, 3.0]))()
        array([2., 3.], dtype=float32)
    """
    return _but_nan(maximum, x1, x2)


def fmin(x1: TensorLike, x2: TensorLike) -> Tensor:
    """Return the smaller of two elements, ignoring NaN: fmin(NaN, y) = y.

    Example:
        >>> graphc.compile(lambda: graphc.fmin([1.0, np.nan], [2.0, 3.0]))()
        array([1., 3.], dtype=float32)
    """
    return _but_nan(minimum, x1, x2)


def _but_nan(chosen: Callable[..., Tensor], x1: TensorLike, x2: TensorLike) -> Tensor:
    a, b = promoted(x1, x2)
    if a.dtype not in FLOATS:
        return chosen(a, b)
    return where(isnan(a), b, where(isnan(b), a, chosen(a, b)))


def nextafter(x1: TensorLike, x2: TensorLike) -> Tensor:
    """Return the next float after `x1` in the direction of `x2`; no gradient flows."""
    return emit(ops.Nextafter(), *map(floating, promoted(x1, x2)))


def gcd(x1: TensorLike, x2: TensorLike) -> Tensor:
    """Return the greatest common divisor of two integers; gcd(x, 0) = |x|."""
    return emit(ops.Gcd(), *_integers("gcd", x1, x2))


def lcm(x1: TensorLike, x2: TensorLike) -> Tensor:
    """Return the least common multiple of two integers; lcm(x, 0) = 0."""
    a, b = _integers("lcm", x1, x2)
    return abs(multiply(floor_divide(a, emit(ops.Gcd(), a, b)), b))


def _integers(name: str, x1: TensorLike, x2: TensorLike) -> list[Tensor]:
    pair = promoted(x1, x2)
    if pair[0].dtype not in INTEGERS:
        raise error(f"{name}: expected integers, got {pair[0].value.type} and {pair[1].value.type}")
    return pair


def frac(x: TensorLike) -> Tensor:
    """Return the fractional part, with the sign of `x`: x - trunc(x)."""
    tensor = as_tensor(x)
    return subtract(tensor, trunc(tensor))


def ldexp(x1: TensorLike, x2: TensorLike) -> Tensor:
    """Multiply by a power of two: x1 * 2^x2."""
    return multiply(floating(x1), exp2(x2))


def float_power(x1: TensorLike, x2: TensorLike) -> Tensor:
    """Raise `x1` to the power `x2` in f64."""
    return pow(astype(x1, "f64"), astype(x2, "f64"))


def deg2rad(x: TensorLike) -> Tensor:
    """Convert degrees to radians: x * pi / 180."""
    return multiply(floating(x), math.pi / 180)


def rad2deg(x: TensorLike) -> Tensor:
    """Convert radians to degrees: x * 180 / pi."""
    return multiply(floating(x), 180 / math.pi)


def addcmul(x: TensorLike, tensor1: TensorLike, tensor2: TensorLike, value: float = 1) -> Tensor:
    """Add a scaled product: x + value * tensor1 * tensor2.

    Example:
        >>> graphc.compile(lambda: graphc.addcmul(1.0, 2.0, 3.0, value=0.5))()
        array(4., dtype=float32)
    """
    product = multiply(tensor1, tensor2)
    return add(x, product if value == 1 else multiply(product, value))


def addcdiv(x: TensorLike, tensor1: TensorLike, tensor2: TensorLike, value: float = 1) -> Tensor:
    """Add a scaled quotient: x + value * tensor1 / tensor2.

    Example:
        >>> graphc.compile(lambda: graphc.addcdiv(1.0, 6.0, 3.0, value=0.5))()
        array(2., dtype=float32)
    """
    return add(x, divide(tensor1 if value == 1 else multiply(tensor1, value), tensor2))


def isin(x: TensorLike, values: TensorLike) -> Tensor:
    """Return whether each element of `x` is one of `values`.

    Args:
        x: The elements to look for.
        values: The elements to look among, of any shape.

    Returns:
        Booleans of the shape of `x`.

    Example:
        >>> graphc.compile(lambda: graphc.isin([1, 2, 3], [2, 4]))()
        array([False,  True, False])
    """
    tensor, known = promoted(x, values)
    return any(equal(expand_dims(tensor, -1), reshape(known, (-1,))), -1)


def isposinf(x: TensorLike) -> Tensor:
    """Return whether each element is positive infinity, as booleans."""
    return _equals(x, math.inf)


def isneginf(x: TensorLike) -> Tensor:
    """Return whether each element is negative infinity, as booleans."""
    return _equals(x, -math.inf)


def _equals(x: TensorLike, number: float) -> Tensor:
    tensor = as_tensor(x)
    return equal(tensor if tensor.dtype in FLOATS else cast(tensor, "f32"), number)


def isclose(
    x1: TensorLike, x2: TensorLike, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> Tensor:
    """Return whether elements are equal within a tolerance: |x1 - x2| <= atol + rtol * |x2|.

    Args:
        x1: The first input.
        x2: The second input; it broadcasts with `x1`.
        rtol: The relative tolerance.
        atol: The absolute tolerance.
        equal_nan: Whether NaN is close to NaN.

    Returns:
        Booleans.

    Example:
        >>> graphc.compile(lambda: graphc.isclose([1.0, 2.0], [1.0, 2.1]))()
        array([ True, False])
    """
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
    """Return whether all elements are equal within a tolerance, as `isclose` says.

    Args:
        x1: The first input.
        x2: The second input; it broadcasts with `x1`.
        rtol: The relative tolerance.
        atol: The absolute tolerance.
        equal_nan: Whether NaN is close to NaN.

    Returns:
        A boolean scalar.

    Example:
        >>> graphc.compile(lambda: graphc.allclose([1.0, 2.0], [1.0, 2.1]))()
        array(False)
    """
    return all(isclose(x1, x2, rtol, atol, equal_nan))
