"""Dropout and other activations that are random in training.

`training` defaults to the mode of the module that calls them, and outside of modules to whether the
program updates parameters.
"""

from __future__ import annotations

import math

from graphc import ops
from graphc.functions.array.creation import zeros_like
from graphc.functions.array.draws import gumbel, uniform
from graphc.functions.array.elementwise.elementwise import (
    add,
    divide,
    equal,
    greater,
    greater_equal,
    multiply,
    stop_gradient,
    subtract,
    where,
)
from graphc.functions.array.reductions import argmax
from graphc.functions.array.tensors import as_tensor, axis_of, cast, error, floating
from graphc.functions.network.activation import leaky_relu
from graphc.functions.network.softmax import softmax
from graphc.ir import TensorLike
from graphc.trace import Tensor, current_builder, emit


def dropout(x: TensorLike, p: float = 0.5, training: bool | None = None) -> Tensor:
    """In training, set elements to 0 with probability `p` and divide the others by 1 - p.

    Args:
        x: The input.
        p: The probability.
        training: Whether to drop elements; by default as the program or the calling module says.

    Example:
        >>> graphc.compile(lambda: graphc.dropout([1.0, 2.0], 0.5, training=False))()
        array([1., 2.], dtype=float32)
    """
    tensor = floating(x)
    return _dropped("dropout", tensor, p, training, tensor.shape)


def dropout1d(x: TensorLike, p: float = 0.5, training: bool | None = None) -> Tensor:
    """Drop whole channels of sequences [n, c, w] or [c, w] in training, as `dropout`.

    Args:
        x: The input.
        p: The probability.
        training: Whether to drop channels; by default as the program or the calling module says.

    Example:
        >>> graphc.compile(lambda: graphc.dropout1d(np.ones((1, 2, 3)), training=False))().shape
        (1, 2, 3)
    """
    return _of_channels("dropout1d", x, p, training, 1)


def dropout2d(x: TensorLike, p: float = 0.5, training: bool | None = None) -> Tensor:
    """Drop whole channels of images [n, c, h, w] or [c, h, w] in training, as `dropout`.

    Args:
        x: The input.
        p: The probability.
        training: Whether to drop channels; by default as the program or the calling module says.

    Example:
        >>> graphc.compile(lambda: graphc.dropout2d(np.ones((1, 2, 3, 3)), training=False))().shape
        (1, 2, 3, 3)
    """
    return _of_channels("dropout2d", x, p, training, 2)


def dropout3d(x: TensorLike, p: float = 0.5, training: bool | None = None) -> Tensor:
    """Drop whole channels of volumes [n, c, d, h, w] or [c, d, h, w] in training, as `dropout`.

    Args:
        x: The input.
        p: The probability.
        training: Whether to drop channels; by default as the program or the calling module says.

    Example:
        >>> graphc.compile(lambda: graphc.dropout3d(np.ones((2, 3, 3, 3)), training=False))().shape
        (2, 3, 3, 3)
    """
    return _of_channels("dropout3d", x, p, training, 3)


def _of_channels(name: str, x: TensorLike, p: float, training: bool | None, axes: int) -> Tensor:
    tensor = floating(x)
    if tensor.ndim - axes not in (1, 2):
        raise error(f"{name}: expected x of {axes + 1} or {axes + 2} axes, got {tensor.value.type}")
    return _dropped(name, tensor, p, training, (*tensor.shape[:-axes], *(1,) * axes))


def _dropped(
    name: str, x: Tensor, p: float, training: bool | None, shape: tuple[int, ...]
) -> Tensor:
    """x with draws of `shape` setting to 0 what they stand for."""
    if not _draws(name, p, training):
        return x
    if p == 1:
        return zeros_like(x)
    return where(greater_equal(uniform(shape), p), multiply(x, 1 / (1 - p)), 0)


def _draws(name: str, p: float, training: bool | None) -> bool:
    if isinstance(p, bool) or not isinstance(p, int | float) or not 0 <= p <= 1:
        raise error(f"{name}: p expected a probability from 0 to 1, got {p!r}")
    return bool(current_builder().training if training is None else training) and p > 0


_FLOOR = -1.7580993408473766
"""What selu tends to far below 0 (Klambauer et al., NeurIPS 2017)."""


def alpha_dropout(x: TensorLike, p: float = 0.5, training: bool | None = None) -> Tensor:
    """In training, set elements to the lower limit of SELU, then restore mean and variance.

    Args:
        x: The input, such as results of `selu`.
        p: The probability with which an element is set.
        training: Whether to drop elements; by default as the program or the calling module says.

    Example:
        >>> graphc.compile(lambda: graphc.alpha_dropout([1.0, 2.0], training=False))()
        array([1., 2.], dtype=float32)
    """
    tensor = floating(x)
    return _floored("alpha_dropout", tensor, p, training, tensor.shape)


def feature_alpha_dropout(x: TensorLike, p: float = 0.5, training: bool | None = None) -> Tensor:
    """Drop whole channels of x [n, c, ...] in training, as `alpha_dropout`.

    Args:
        x: The input.
        p: The probability with which a channel is set.
        training: Whether to drop channels; by default as the program or the calling module says.

    Raises:
        GraphError: `x` has fewer than two axes.

    Example:
        >>> graphc.compile(lambda: graphc.feature_alpha_dropout([[1.0, 2.0]], training=False))()
        array([[1., 2.]], dtype=float32)
    """
    tensor = floating(x)
    if tensor.ndim < 2:
        raise error(f"feature_alpha_dropout: expected 2 axes or more, got {tensor.value.type}")
    shape = (*tensor.shape[:2], *(1,) * (tensor.ndim - 2))
    return _floored("feature_alpha_dropout", tensor, p, training, shape)


def _floored(
    name: str, x: Tensor, p: float, training: bool | None, shape: tuple[int, ...]
) -> Tensor:
    if not _draws(name, p, training):
        return x
    if p == 1:
        return zeros_like(x)
    scale = 1 / math.sqrt((1 - p) * (1 + p * _FLOOR**2))
    kept = where(greater_equal(uniform(shape), p), x, _FLOOR)
    return add(multiply(kept, scale), -scale * _FLOOR * p)


def rrelu(
    x: TensorLike, lower: float = 1 / 8, upper: float = 1 / 3, training: bool | None = None
) -> Tensor:
    """Leaky rectifier with random slopes: x for x > 0, else a * x.

    Args:
        x: The input.
        lower: The smallest slope.
        upper: The largest slope.
        training: Whether to draw each slope between `lower` and `upper`, else their mean is used;
            by default as the program or the calling module says.

    Raises:
        GraphError: `lower` is above `upper`.

    Example:
        >>> graphc.compile(lambda: graphc.rrelu([-1.0, 1.0], 0.25, 0.75, training=False))()
        array([-0.5,  1. ], dtype=float32)
    """
    if not lower <= upper:
        raise error(f"rrelu: lower {lower} is above upper {upper}")
    tensor = floating(x)
    if not (current_builder().training if training is None else training):
        return leaky_relu(tensor, (lower + upper) / 2)
    slope = add(multiply(cast(uniform(tensor.shape), tensor.dtype), upper - lower), lower)
    return where(greater(tensor, 0), tensor, multiply(tensor, slope))


def gumbel_softmax(
    logits: TensorLike, tau: float = 1.0, hard: bool = False, axis: int = -1
) -> Tensor:
    """Draw from softmax(logits) in a differentiable way: softmax((logits + noise) / tau).

    Args:
        logits: The logits.
        tau: The temperature.
        hard: Whether to return one-hot vectors, with the gradient of the soft result.
        axis: The axis of the classes.

    Example:
        >>> graphc.compile(lambda: graphc.gumbel_softmax([0.0, -1e9], hard=True))()
        array([1., 0.], dtype=float32)
    """
    tensor = as_tensor(logits)
    place = axis_of("gumbel_softmax", axis, tensor)
    noise = cast(gumbel(tensor.shape), tensor.dtype)
    soft = softmax(divide(add(tensor, noise), tau), place)
    if not hard:
        return soft
    shape = tuple(n if a == place else 1 for a, n in enumerate(tensor.shape))
    ramp = emit(ops.Iota(shape, place, "i64"))
    chosen = cast(equal(ramp, argmax(soft, place, keepdims=True)), soft.dtype)
    return add(stop_gradient(subtract(chosen, soft)), soft)
