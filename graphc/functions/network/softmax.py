"""Softmax, its logarithm, and log-sum-exp."""

from __future__ import annotations

from graphc.functions.array.elementwise.elementwise import (
    add,
    exp,
    isfinite,
    log,
    multiply,
    negative,
    reciprocal,
    stop_gradient,
    subtract,
    where,
)
from graphc.functions.array.elementwise.precision import giving_float32
from graphc.functions.array.indexing.places import shifted
from graphc.functions.array.reductions import max, sum
from graphc.functions.array.tensors import (
    Axes,
    astype,
    axes_of,
    floating,
)
from graphc.ir import DTypeLike, TensorLike
from graphc.trace import Tensor


@giving_float32
def _softmax(name: str, x: Tensor, axis: int) -> Tensor:
    powers = exp(shifted(name, x, axis))
    return multiply(powers, reciprocal(sum(powers, axis, keepdims=True)))


def softmax(x: TensorLike, axis: int = -1, dtype: DTypeLike | None = None) -> Tensor:
    """Normalize exponentials along an axis: e^x / sum(e^x).

    Args:
        x: The input.
        axis: The axis along which the results add up to 1.
        dtype: If given, `x` is converted to it first.

    Example:
        >>> graphc.compile(lambda: graphc.softmax([0.0, 0.0]))()
        array([0.5, 0.5], dtype=float32)
    """
    return _softmax("softmax", _converted(x, dtype), axis)


def softmin(x: TensorLike, axis: int = -1, dtype: DTypeLike | None = None) -> Tensor:
    """Normalize exponentials of the negated input along an axis: softmax(-x).

    Args:
        x: The input.
        axis: The axis along which the results add up to 1.
        dtype: If given, `x` is converted to it first.

    Example:
        >>> graphc.compile(lambda: graphc.softmin([0.0, 0.0]))()
        array([0.5, 0.5], dtype=float32)
    """
    return _softmax("softmin", negative(_converted(x, dtype)), axis)


def log_softmax(x: TensorLike, axis: int = -1, dtype: DTypeLike | None = None) -> Tensor:
    """Return the logarithm of `softmax`, without overflow.

    Args:
        x: The input.
        axis: The axis along which probabilities add up to 1.
        dtype: If given, `x` is converted to it first.

    Example:
        >>> graphc.compile(lambda: graphc.log_softmax([0.0, 0.0]))()
        array([-0.6931472, -0.6931472], dtype=float32)
    """
    return _log_softmax(_converted(x, dtype), axis)


@giving_float32
def _log_softmax(x: Tensor, axis: int) -> Tensor:
    below = shifted("log_softmax", x, axis)
    return subtract(below, log(sum(exp(below), axis, keepdims=True)))


def _converted(x: TensorLike, dtype: DTypeLike | None) -> Tensor:
    """x as a float, of `dtype` if that is given."""
    return floating(x if dtype is None else astype(x, dtype))


@giving_float32
def logsumexp(x: TensorLike, axis: Axes = -1, keepdims: bool = False) -> Tensor:
    """Return log(sum(e^x)) over axes, without overflow.

    The result is -inf if all elements are, or if there are none, and inf if one is.

    Args:
        x: The input.
        axis: The axis or axes to reduce; None reduces all.
        keepdims: Whether to keep the reduced axes, with size 1.

    Example:
        >>> graphc.compile(lambda: graphc.logsumexp([1000.0, 1000.0]))()
        array(1000.6932, dtype=float32)
    """
    tensor = floating(x)
    axes = axes_of("logsumexp", axis, tensor)
    if not all(tensor.shape[a] for a in axes):
        return log(sum(tensor, axes, keepdims=keepdims))
    largest = stop_gradient(max(tensor, axes, keepdims=True))
    finite = where(isfinite(largest), largest, 0)
    total = log(sum(exp(subtract(tensor, finite)), axes, keepdims=True))
    result = add(total, finite)
    return result if keepdims else sum(result, axes)
