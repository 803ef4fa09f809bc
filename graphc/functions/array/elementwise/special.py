"""Elementwise special functions, by the names of torch and torch.special."""

from __future__ import annotations

import math

from graphc import ops
from graphc.functions.array.elementwise.elementwise import (
    abs,
    add,
    equal,
    exp,
    less,
    log,
    log1p,
    logical_and,
    multiply,
    negative,
    square,
    subtract,
    where,
)
from graphc.functions.array.elementwise.numeric import xlogy
from graphc.functions.array.tensors import error, floating, promoted
from graphc.ir import TensorLike
from graphc.trace import Tensor, emit


def erfc(x: TensorLike) -> Tensor:
    """Return the complementary error function, 1 - erf(x), accurate for large x."""
    return emit(ops.Erfc(), floating(x))


def erfcx(x: TensorLike) -> Tensor:
    """Return the scaled complementary error function: e^(x^2) * erfc(x)."""
    return emit(ops.Erfcx(), floating(x))


def erfinv(x: TensorLike) -> Tensor:
    """Return the inverse of `erf`; infinite at 1 and -1, NaN beyond."""
    return emit(ops.Erfinv(), floating(x))


def ndtr(x: TensorLike) -> Tensor:
    """Return the standard normal distribution function: the probability of numbers below x."""
    return multiply(erfc(multiply(floating(x), -math.sqrt(0.5))), 0.5)


def ndtri(x: TensorLike) -> Tensor:
    """Return the inverse of `ndtr`; NaN outside of [0, 1]."""
    return emit(ops.Ndtri(), floating(x))


def log_ndtr(x: TensorLike) -> Tensor:
    """Return log(ndtr(x)), accurate where ndtr(x) underflows."""
    tensor = floating(x)
    low = less(tensor, -1)
    scaled = multiply(tensor, -math.sqrt(0.5))
    # Each side sees arguments of its own alone: an infinite slope times 0 would be NaN.
    tail = subtract(log(multiply(erfcx(where(low, scaled, 1)), 0.5)), square(where(low, scaled, 0)))
    rest = log1p(multiply(erfc(negative(where(low, 0, scaled))), -0.5))
    return where(low, tail, rest)


def lgamma(x: TensorLike) -> Tensor:
    """Return log |gamma(x)|; inf at the poles 0, -1, -2, ..."""
    return emit(ops.Lgamma(), floating(x))


def digamma(x: TensorLike) -> Tensor:
    """Return the derivative of `lgamma`; -inf at 0, NaN at the other poles."""
    return emit(ops.Digamma(), floating(x))


def polygamma(n: int, x: TensorLike) -> Tensor:
    """Return the derivative of order `n` of `digamma`.

    Args:
        n: The order, from 0 to 9.
        x: The input; for n of 2 or more, the result is NaN for negative numbers.

    Raises:
        GraphError: `n` is not an integer from 0 to 9.

    Example:
        >>> graphc.compile(lambda: graphc.polygamma(1, [1.0]) * 6 / np.pi**2)()
        array([1.], dtype=float32)
    """
    if not isinstance(n, int) or isinstance(n, bool) or not 0 <= n < 10:
        raise error(f"polygamma: n expected an integer from 0 to 9, got {n!r}")
    return emit(ops.Polygamma(n), floating(x)) if n else digamma(x)


def multigammaln(x: TensorLike, p: int) -> Tensor:
    """Return the logarithm of the gamma function of dimension `p`.

    Args:
        x: The input, above (p - 1) / 2.
        p: The dimension.

    Raises:
        GraphError: `p` is not a positive integer.

    Example:
        >>> graphc.compile(lambda: graphc.multigammaln([1.0], 1))()
        array([0.], dtype=float32)
    """
    if not isinstance(p, int) or isinstance(p, bool) or p < 1:
        raise error(f"multigammaln: p expected a positive integer, got {p!r}")
    tensor = floating(x)
    result = lgamma(tensor)
    for j in range(1, p):
        result = add(result, lgamma(subtract(tensor, j / 2)))
    return add(result, p * (p - 1) / 4 * math.log(math.pi)) if p > 1 else result


def i0e(x: TensorLike) -> Tensor:
    """Return the scaled Bessel function e^-|x| * i0(x)."""
    return emit(ops.I0e(), floating(x))


def i1e(x: TensorLike) -> Tensor:
    """Return the scaled Bessel function e^-|x| * i1(x)."""
    return emit(ops.I1e(), floating(x))


def i0(x: TensorLike) -> Tensor:
    """Return the modified Bessel function of the first kind of order 0."""
    return _unscaled(ops.I0e(), x)


def i1(x: TensorLike) -> Tensor:
    """Return the modified Bessel function of the first kind of order 1."""
    return _unscaled(ops.I1e(), x)


def _unscaled(op: ops.Op, x: TensorLike) -> Tensor:
    tensor = floating(x)
    root = exp(multiply(abs(tensor), 0.5))  # twice, as e^|x| itself overflows earlier
    return multiply(multiply(emit(op, tensor), root), root)


def sinc(x: TensorLike) -> Tensor:
    """Return the normalized sinc function: sin(pi x) / (pi x), 1 at 0."""
    return emit(ops.Sinc(), floating(x))


def xlog1py(x1: TensorLike, x2: TensorLike) -> Tensor:
    """Return x1 * log(1 + x2); 0 where x1 is 0 and x2 is not NaN."""
    a, b = map(floating, promoted(x1, x2))
    nothing = logical_and(equal(a, 0), equal(b, b))
    return where(nothing, 0, multiply(a, log1p(where(nothing, 0, b))))


def entr(x: TensorLike) -> Tensor:
    """Return the entropy term -x * log(x); 0 at 0, -inf for negative numbers."""
    tensor = floating(x)
    below = less(tensor, 0)
    return where(below, -math.inf, negative(xlogy(*(where(below, 1, tensor),) * 2)))
