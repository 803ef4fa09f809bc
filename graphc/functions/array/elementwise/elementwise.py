"""Functions of single elements, with NumPy's broadcasting and PyTorch's promotion of dtypes."""

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
    """x1 + x2."""
    return emit(ops.Add(), *promoted(x1, x2))


def subtract(x1: TensorLike, x2: TensorLike) -> Tensor:
    """x1 - x2."""
    return emit(ops.Subtract(), *promoted(x1, x2))


def multiply(x1: TensorLike, x2: TensorLike) -> Tensor:
    """x1 * x2."""
    return scaled(ops.Multiply(), x1, x2)


def divide(x1: TensorLike, x2: TensorLike) -> Tensor:
    """x1 / x2; f32 for integers."""
    if is_scalar(x2) and not is_scalar(x1) and (x1 := as_tensor(x1)).dtype in NARROW:
        return scaled(ops.Divide(), x1, x2)
    return emit(ops.Divide(), *map(floating, promoted(x1, x2)))


def floor_divide(x1: TensorLike, x2: TensorLike) -> Tensor:
    """The largest integer not above x1 / x2, in the operands' dtype."""
    return emit(ops.FloorDivide(), *promoted(x1, x2))


def remainder(x1: TensorLike, x2: TensorLike) -> Tensor:
    """x1 - x2 * floor(x1 / x2): with the sign of x2."""
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
    """x1 to the power of x2. Integers may be raised to the Python integers 1 to 4."""
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
    """The larger of x1 and x2, NaN if either is."""
    a, b = promoted(x1, x2)
    return emit(ops.LogicalOr() if a.dtype == "bool" else ops.Maximum(), a, b)


def minimum(x1: TensorLike, x2: TensorLike) -> Tensor:
    """The smaller of x1 and x2, NaN if either is."""
    a, b = promoted(x1, x2)
    return emit(ops.LogicalAnd() if a.dtype == "bool" else ops.Minimum(), a, b)


def clip(x: TensorLike, min: TensorLike | None = None, max: TensorLike | None = None) -> Tensor:
    """x, at least `min` and at most `max` where these are given. The gradient is 0 outside and
    1 on the limits."""
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
    """-x."""
    return emit(ops.Negative(), as_tensor(x))


def abs(x: TensorLike) -> Tensor:
    """The magnitude of x."""
    return emit(ops.Abs(), as_tensor(x))


def square(x: TensorLike) -> Tensor:
    """x * x."""
    return emit(ops.Square(), as_tensor(x))


def sign(x: TensorLike) -> Tensor:
    """-1, 0 or 1, NaN for NaN; no gradient flows."""
    tensor = stop_gradient(x)
    if tensor.dtype in ("bool", "u8"):
        return cast(not_equal(tensor, 0), tensor.dtype)
    return where(greater(tensor, 0), 1, where(less(tensor, 0), -1, multiply(tensor, 0)))


def reciprocal(x: TensorLike) -> Tensor:
    """1 / x."""
    return divide(1, x)


def floor(x: TensorLike) -> Tensor:
    """The largest integer not above x; integers stay as they are."""
    tensor = as_tensor(x)
    return emit(ops.Floor(), tensor) if tensor.dtype in FLOATS else tensor


def stop_gradient(x: TensorLike) -> Tensor:
    """x, through which no gradient flows."""
    tensor = as_tensor(x)
    return emit(ops.StopGradient(), tensor) if tensor.dtype in FLOATS else tensor


def exp(x: TensorLike) -> Tensor:
    """e^x."""
    return emit(ops.Exp(), floating(x))


def expm1(x: TensorLike) -> Tensor:
    """e^x - 1, accurate near 0."""
    return emit(ops.Expm1(), floating(x))


def log(x: TensorLike) -> Tensor:
    """The natural logarithm; -inf at 0, NaN below."""
    return emit(ops.Log(), floating(x))


def log1p(x: TensorLike) -> Tensor:
    """log(1 + x), accurate near 0."""
    return emit(ops.Log1p(), floating(x))


def sqrt(x: TensorLike) -> Tensor:
    """The square root, NaN below 0."""
    return emit(ops.Sqrt(), floating(x))


def rsqrt(x: TensorLike) -> Tensor:
    """1 / sqrt(x), inf at 0."""
    return emit(ops.Rsqrt(), floating(x))


def tanh(x: TensorLike) -> Tensor:
    """The hyperbolic tangent."""
    return emit(ops.Tanh(), floating(x))


def sigmoid(x: TensorLike) -> Tensor:
    """1 / (1 + e^-x)."""
    return emit(ops.Sigmoid(), floating(x))


def relu(x: TensorLike) -> Tensor:
    """max(x, 0), NaN for NaN; the gradient at 0 is 0."""
    return emit(ops.Relu(), as_tensor(x))


def erf(x: TensorLike) -> Tensor:
    """The error function."""
    return emit(ops.Erf(), floating(x))


def sin(x: TensorLike) -> Tensor:
    """The sine of x in radians."""
    return emit(ops.Sin(), floating(x))


def cos(x: TensorLike) -> Tensor:
    """The cosine of x in radians."""
    return emit(ops.Cos(), floating(x))


def less(x1: TensorLike, x2: TensorLike) -> Tensor:
    """Whether x1 < x2: booleans."""
    return emit(ops.Less(), *_comparable(x1, x2))


def less_equal(x1: TensorLike, x2: TensorLike) -> Tensor:
    """Whether x1 <= x2: booleans."""
    return emit(ops.LessEqual(), *_comparable(x1, x2))


def greater(x1: TensorLike, x2: TensorLike) -> Tensor:
    """Whether x1 > x2: booleans."""
    return emit(ops.Greater(), *_comparable(x1, x2))


def greater_equal(x1: TensorLike, x2: TensorLike) -> Tensor:
    """Whether x1 >= x2: booleans."""
    return emit(ops.GreaterEqual(), *_comparable(x1, x2))


def equal(x1: TensorLike, x2: TensorLike) -> Tensor:
    """Whether x1 = x2: booleans; false for NaN."""
    return emit(ops.Equal(), *_comparable(x1, x2))


def not_equal(x1: TensorLike, x2: TensorLike) -> Tensor:
    """Whether x1 and x2 differ: booleans; true for NaN."""
    return emit(ops.NotEqual(), *_comparable(x1, x2))


def _comparable(x1: TensorLike, x2: TensorLike) -> list[Tensor]:
    """The operands in one dtype that has an order."""
    return [cast(t, "i32") if t.dtype == "bool" else t for t in promoted(x1, x2)]


def isnan(x: TensorLike) -> Tensor:
    """Whether x is not a number: booleans; false for integers."""
    tensor = as_tensor(x)
    return emit(ops.Isnan(), tensor) if tensor.dtype in FLOATS else not_equal(tensor, tensor)


def isfinite(x: TensorLike) -> Tensor:
    """Whether x is neither NaN nor infinite: booleans."""
    tensor = as_tensor(x)
    return less(abs(tensor), float("inf")) if tensor.dtype in FLOATS else equal(tensor, tensor)


def logical_and(x1: TensorLike, x2: TensorLike) -> Tensor:
    """x1 and x2, of booleans."""
    return emit(ops.LogicalAnd(), *promoted(x1, x2))


def logical_or(x1: TensorLike, x2: TensorLike) -> Tensor:
    """x1 or x2, of booleans."""
    return emit(ops.LogicalOr(), *promoted(x1, x2))


def logical_xor(x1: TensorLike, x2: TensorLike) -> Tensor:
    """Whether exactly one of two booleans is true."""
    return emit(ops.LogicalXor(), *promoted(x1, x2))


def logical_not(x: TensorLike) -> Tensor:
    """Whether a boolean is false."""
    return emit(ops.LogicalNot(), as_tensor(x))


def where(condition: TensorLike, x1: TensorLike, x2: TensorLike) -> Tensor:
    """x1 where `condition` (booleans) holds, else x2."""
    return emit(ops.Select(), as_tensor(condition), *promoted(x1, x2))
