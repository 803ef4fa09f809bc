"""Elementwise functions, with NumPy's broadcasting and PyTorch's type promotion."""

from __future__ import annotations

from collections.abc import Callable

from graphc import ops
from graphc.functions.array.elementwise.precision import scaled
from graphc.functions.array.tensors import (
    as_tensor,
    cast,
    error,
    floating,
    is_scalar,
    promoted,
)
from graphc.ir import FLOATS, NARROW, TensorLike
from graphc.trace import Tensor, emit


def add(x1: TensorLike, x2: TensorLike) -> Tensor:
    """Add elements: x1 + x2."""
    return emit(ops.Add(), *promoted(x1, x2))


def subtract(x1: TensorLike, x2: TensorLike) -> Tensor:
    """Subtract elements: x1 - x2."""
    return emit(ops.Subtract(), *promoted(x1, x2))


def multiply(x1: TensorLike, x2: TensorLike) -> Tensor:
    """Multiply elements: x1 * x2."""
    return scaled(ops.Multiply(), x1, x2)


def divide(x1: TensorLike, x2: TensorLike) -> Tensor:
    """Divide elements: x1 / x2; integers give f32."""
    if is_scalar(x2) and not is_scalar(x1) and (x1 := as_tensor(x1)).dtype in NARROW:
        return scaled(ops.Divide(), x1, x2)
    return emit(ops.Divide(), *map(floating, promoted(x1, x2)))


def floor_divide(x1: TensorLike, x2: TensorLike) -> Tensor:
    """Divide elements and round down: floor(x1 / x2), in the operands' dtype.

    Example:
        >>> graphc.compile(lambda: graphc.floor_divide([7, -7], 2))()
        array([ 3, -4])
    """
    return emit(ops.FloorDivide(), *promoted(x1, x2))


def remainder(x1: TensorLike, x2: TensorLike) -> Tensor:
    """Return the remainder with the sign of the divisor: x1 - x2 * floor(x1 / x2).

    Example:
        >>> graphc.compile(lambda: graphc.remainder([7, -7], 3))()
        array([1, 2])
    """
    return emit(ops.Remainder(), *promoted(x1, x2))


_POWERS: dict[float, Callable[[Tensor], Tensor]] = {
    0.5: lambda x: sqrt(x),
    -0.5: lambda x: rsqrt(x),
    -1: lambda x: reciprocal(x),
    1: lambda x: x,
    2: lambda x: square(x),
    3: lambda x: multiply(square(x), x),
    4: lambda x: square(square(x)),
}
"""Exponents for which there is something cheaper than a logarithm and an exponential."""


def pow(x1: TensorLike, x2: TensorLike) -> Tensor:
    """Raise `x1` to the power `x2`.

    Args:
        x1: The base: floats, or integers if `x2` is a Python integer from 1 to 4.
        x2: The exponent.

    Raises:
        GraphError: `x1` holds integers and `x2` is anything else.

    Example:
        >>> graphc.compile(lambda: graphc.pow([2.0, 3.0], 2))()
        array([4., 9.], dtype=float32)
    """
    if is_scalar(x2) and not is_scalar(x1) and x2 in _POWERS:
        base = as_tensor(x1)
        if base.dtype in FLOATS or (isinstance(x2, int) and x2 > 0):
            return _POWERS[x2](base)
    a, b = promoted(x1, x2)
    if a.dtype not in FLOATS:
        raise error(
            "pow: expected floats, or a Python integer from 1 to 4 as the exponent, "
            f"got {a.value.type} and {b.value.type}"
        )
    return emit(ops.Pow(), a, b)


def maximum(x1: TensorLike, x2: TensorLike) -> Tensor:
    """Return the larger of two elements; NaN if either is NaN.

    Example:
        >>> graphc.compile(lambda: graphc.maximum([1.0, 5.0], [2.0, 3.0]))()
        array([2., 5.], dtype=float32)
    """
    a, b = promoted(x1, x2)
    return emit(ops.LogicalOr() if a.dtype == "bool" else ops.Maximum(), a, b)


def minimum(x1: TensorLike, x2: TensorLike) -> Tensor:
    """Return the smaller of two elements; NaN if either is NaN.

    Example:
        >>> graphc.compile(lambda: graphc.minimum([1.0, 5.0], [2.0, 3.0]))()
        array([1., 3.], dtype=float32)
    """
    a, b = promoted(x1, x2)
    return emit(ops.LogicalAnd() if a.dtype == "bool" else ops.Minimum(), a, b)


def clip(x: TensorLike, min: TensorLike | None = None, max: TensorLike | None = None) -> Tensor:
    """Limit elements to the interval [min, max].

    The gradient is 1 from limit to limit, both included, and 0 outside.

    Args:
        x: The input.
        min: The lower limit; None is no limit.
        max: The upper limit; None is no limit.

    Example:
        >>> graphc.compile(lambda: graphc.clip([-1.0, 0.5, 2.0], 0.0, 1.0))()
        array([0. , 0.5, 1. ], dtype=float32)
    """
    result = as_tensor(x)
    inside = []
    for limit, op, keeps in ((min, maximum, greater_equal), (max, minimum, less_equal)):
        if limit is not None:
            inside.append(keeps(x, limit))
            result = stop_gradient(op(result, limit))
    if not inside:
        return result
    both = inside[0] if len(inside) == 1 else logical_and(*inside)
    return where(both, cast(as_tensor(x), result.dtype), result)


def negative(x: TensorLike) -> Tensor:
    """Negate elements: -x."""
    return emit(ops.Negative(), as_tensor(x))


def abs(x: TensorLike) -> Tensor:
    """Return magnitudes: |x|."""
    return emit(ops.Abs(), as_tensor(x))


def square(x: TensorLike) -> Tensor:
    """Square elements: x * x."""
    return emit(ops.Square(), as_tensor(x))


def sign(x: TensorLike) -> Tensor:
    """Return signs: -1, 0 or 1, NaN for NaN; no gradient flows."""
    tensor = stop_gradient(x)
    if tensor.dtype in ("bool", "u8"):
        return cast(not_equal(tensor, 0), tensor.dtype)
    return where(greater(tensor, 0), 1, where(less(tensor, 0), -1, multiply(tensor, 0)))


def reciprocal(x: TensorLike) -> Tensor:
    """Return reciprocals: 1 / x."""
    return divide(1, x)


def floor(x: TensorLike) -> Tensor:
    """Round down to integers; integers are unchanged."""
    tensor = as_tensor(x)
    return emit(ops.Floor(), tensor) if tensor.dtype in FLOATS else tensor


def stop_gradient(x: TensorLike) -> Tensor:
    """Return `x`, through which no gradient flows.

    Example:
        >>> def f(x):
        ...     return graphc.sum(x * graphc.stop_gradient(x))
        ...
        >>> graphc.compile(graphc.grad(f), graphc.spec(2))(np.array([2, 3], np.float32))
        array([2., 3.], dtype=float32)
    """
    tensor = as_tensor(x)
    return emit(ops.StopGradient(), tensor) if tensor.dtype in FLOATS else tensor


def exp(x: TensorLike) -> Tensor:
    """Return exponentials: e^x."""
    return emit(ops.Exp(), floating(x))


def expm1(x: TensorLike) -> Tensor:
    """Return e^x - 1, accurate near 0."""
    return emit(ops.Expm1(), floating(x))


def log(x: TensorLike) -> Tensor:
    """Return natural logarithms; -inf at 0, NaN for negative numbers."""
    return emit(ops.Log(), floating(x))


def log1p(x: TensorLike) -> Tensor:
    """Return log(1 + x), accurate near 0."""
    return emit(ops.Log1p(), floating(x))


def sqrt(x: TensorLike) -> Tensor:
    """Return square roots; NaN for negative numbers."""
    return emit(ops.Sqrt(), floating(x))


def rsqrt(x: TensorLike) -> Tensor:
    """Return reciprocal square roots: 1 / sqrt(x), inf at 0."""
    return emit(ops.Rsqrt(), floating(x))


def tanh(x: TensorLike) -> Tensor:
    """Return hyperbolic tangents."""
    return emit(ops.Tanh(), floating(x))


def sigmoid(x: TensorLike) -> Tensor:
    """Return the logistic function: 1 / (1 + e^-x)."""
    return emit(ops.Sigmoid(), floating(x))


def relu(x: TensorLike) -> Tensor:
    """Return max(x, 0), NaN for NaN; the gradient at 0 is 0."""
    return emit(ops.Relu(), as_tensor(x))


def erf(x: TensorLike) -> Tensor:
    """Return the error function."""
    return emit(ops.Erf(), floating(x))


def sin(x: TensorLike) -> Tensor:
    """Return sines of angles in radians."""
    return emit(ops.Sin(), floating(x))


def cos(x: TensorLike) -> Tensor:
    """Return cosines of angles in radians."""
    return emit(ops.Cos(), floating(x))


def less(x1: TensorLike, x2: TensorLike) -> Tensor:
    """Return whether x1 < x2, as booleans."""
    return emit(ops.Less(), *_comparable(x1, x2))


def less_equal(x1: TensorLike, x2: TensorLike) -> Tensor:
    """Return whether x1 <= x2, as booleans."""
    return emit(ops.LessEqual(), *_comparable(x1, x2))


def greater(x1: TensorLike, x2: TensorLike) -> Tensor:
    """Return whether x1 > x2, as booleans."""
    return emit(ops.Greater(), *_comparable(x1, x2))


def greater_equal(x1: TensorLike, x2: TensorLike) -> Tensor:
    """Return whether x1 >= x2, as booleans."""
    return emit(ops.GreaterEqual(), *_comparable(x1, x2))


def equal(x1: TensorLike, x2: TensorLike) -> Tensor:
    """Return whether x1 == x2, as booleans; false for NaN."""
    return emit(ops.Equal(), *_comparable(x1, x2))


def not_equal(x1: TensorLike, x2: TensorLike) -> Tensor:
    """Return whether x1 != x2, as booleans; true for NaN."""
    return emit(ops.NotEqual(), *_comparable(x1, x2))


def _comparable(x1: TensorLike, x2: TensorLike) -> list[Tensor]:
    """The operands in one dtype that has an order."""
    return [cast(t, "i32") if t.dtype == "bool" else t for t in promoted(x1, x2)]


def isnan(x: TensorLike) -> Tensor:
    """Return whether elements are NaN, as booleans; false for integers."""
    tensor = as_tensor(x)
    return emit(ops.Isnan(), tensor) if tensor.dtype in FLOATS else not_equal(tensor, tensor)


def isfinite(x: TensorLike) -> Tensor:
    """Return whether elements are neither NaN nor infinite, as booleans."""
    tensor = as_tensor(x)
    return less(abs(tensor), float("inf")) if tensor.dtype in FLOATS else equal(tensor, tensor)


def logical_and(x1: TensorLike, x2: TensorLike) -> Tensor:
    """Return whether two booleans are both true."""
    return emit(ops.LogicalAnd(), *promoted(x1, x2))


def logical_or(x1: TensorLike, x2: TensorLike) -> Tensor:
    """Return whether at least one of two booleans is true."""
    return emit(ops.LogicalOr(), *promoted(x1, x2))


def logical_xor(x1: TensorLike, x2: TensorLike) -> Tensor:
    """Return whether exactly one of two booleans is true."""
    return emit(ops.LogicalXor(), *promoted(x1, x2))


def logical_not(x: TensorLike) -> Tensor:
    """Return whether a boolean is false."""
    return emit(ops.LogicalNot(), as_tensor(x))


def where(condition: TensorLike, x1: TensorLike, x2: TensorLike) -> Tensor:
    """Select elements of `x1` where a condition holds, and of `x2` elsewhere.

    Args:
        condition: Booleans; they broadcast with `x1` and `x2`.
        x1: The elements where the condition is true.
        x2: The elements where it is false.

    Example:
        >>> graphc.compile(lambda: graphc.where([True, False], [1, 2], [3, 4]))()
        array([1, 4])
    """
    return emit(ops.Select(), as_tensor(condition), *promoted(x1, x2))
