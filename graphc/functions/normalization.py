"""Normalisation to mean 0 and variance 1, with the arguments of torch.nn.functional."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from graphc.functions.elementwise import add, multiply, rsqrt, subtract
from graphc.functions.reductions import biased_variance, mean
from graphc.functions.shapes import reshape
from graphc.functions.tensors import as_tensor, error, floating, shape_of
from graphc.trace import Tensor, current_builder

__all__ = ["batch_norm", "group_norm", "layer_norm"]


def batch_norm(
    x: Any,
    running_mean: Any = None,
    running_var: Any = None,
    weight: Any = None,
    bias: Any = None,
    training: bool | None = None,
    momentum: Any = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """x [n, c, ...] normalised per channel, then times `weight` [c] plus `bias` [c].

    In training (by default: if the program updates parameters), and where there are no running
    statistics, with the mean and the biased variance of the batch; else with the running ones.
    Training moves the running statistics [c], which must be state, by `momentum` (a number or a
    scalar tensor) towards the batch's mean and unbiased variance.
    """
    tensor = floating(x)
    if tensor.ndim < 2:
        raise error(f"batch_norm: expected x of 2 axes or more, got {tensor.value.type}")
    if (running_mean is None) != (running_var is None):
        raise error("batch_norm: running_mean and running_var go together, only one is given")
    training = current_builder().training if training is None else training
    old_mean = _per_channel("batch_norm", "running_mean", running_mean, tensor)
    old_variance = _per_channel("batch_norm", "running_var", running_var, tensor)
    if training or old_mean is None or old_variance is None:
        centred, variance, average = _centred(tensor, (0, *range(2, tensor.ndim)))
        if training and running_mean is not None:
            count = tensor.size // tensor.shape[1]
            if count < 2:
                raise error(
                    "batch_norm: expected more than 1 element per channel in training, "
                    f"got x {tensor.value.type}"
                )
            _move("running_mean", running_mean, average, momentum)
            unbiased = multiply(variance, count / (count - 1))
            _move("running_var", running_var, unbiased, momentum)
    else:
        centred, variance = subtract(tensor, old_mean), old_variance
    y = multiply(centred, rsqrt(add(variance, eps)))
    return _scaled(
        y,
        _per_channel("batch_norm", "weight", weight, tensor),
        _per_channel("batch_norm", "bias", bias, tensor),
    )


def layer_norm(
    x: Any,
    normalized_shape: int | Sequence[int],
    weight: Any = None,
    bias: Any = None,
    eps: float = 1e-5,
) -> Tensor:
    """x normalised over its last axes, whose extents are `normalized_shape`, then times `weight`
    plus `bias`, both of that shape."""
    tensor = floating(x)
    shape = shape_of("layer_norm", normalized_shape)
    first = tensor.ndim - len(shape)
    if not shape or first < 0 or tensor.shape[first:] != shape:
        raise error(
            f"layer_norm: x {tensor.value.type} does not end in normalized_shape {list(shape)}"
        )
    centred, variance, _ = _centred(tensor, tuple(range(first, tensor.ndim)))
    y = multiply(centred, rsqrt(add(variance, eps)))
    w, b = (None if t is None else as_tensor(t) for t in (weight, bias))
    for name, t in (("weight", w), ("bias", b)):
        if t is not None and t.shape != shape:
            raise error(
                f"layer_norm: {name} {t.value.type} does not have normalized_shape {list(shape)}"
            )
    return _scaled(y, w, b)


def group_norm(
    x: Any, num_groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5
) -> Tensor:
    """x [n, c, ...] normalised over the channels of each of `num_groups` groups, then times
    `weight` [c] plus `bias` [c]."""
    tensor = floating(x)
    if tensor.ndim < 2 or num_groups < 1 or tensor.shape[1] % num_groups:
        raise error(
            f"group_norm: {num_groups} groups do not divide the channels of x {tensor.value.type}"
        )
    n, c, *pixels = tensor.shape
    grouped = reshape(tensor, (n, num_groups, c // num_groups * math.prod(pixels)))
    centred, variance, _ = _centred(grouped, (2,))
    y = reshape(multiply(centred, rsqrt(add(variance, eps))), tensor.shape)
    return _scaled(
        y,
        _per_channel("group_norm", "weight", weight, tensor),
        _per_channel("group_norm", "bias", bias, tensor),
    )


def _centred(x: Tensor, axes: tuple[int, ...]) -> tuple[Tensor, Tensor, Tensor]:
    """x less its mean over `axes`, its biased variance, its mean; the latter two keep the axes."""
    average = mean(x, axes, keepdims=True)
    return subtract(x, average), biased_variance(x, average, axes), average


def _scaled(y: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    y = y if weight is None else multiply(y, weight)
    return y if bias is None else add(y, bias)


def _per_channel(name: str, argument: str, value: Any, x: Tensor) -> Tensor | None:
    """`value` [c] in a shape that broadcasts along axis 1 of x."""
    if value is None:
        return None
    tensor = as_tensor(value)
    if tensor.shape != x.shape[1:2]:
        raise error(
            f"{name}: x {x.value.type} has {x.shape[1]} channels, "
            f"{argument} {tensor.value.type} does not"
        )
    return reshape(tensor, (1, x.shape[1], *(1,) * (x.ndim - 2)))


def _move(name: str, running: Any, batch: Tensor, momentum: Any) -> None:
    """Let the state `running` become (1 - momentum) * running + momentum * batch."""
    builder, state = current_builder(), as_tensor(running)
    if state.value not in builder.state:
        raise error(
            f"batch_norm: {name} {state.value.type} is not a parameter, so nothing keeps it"
        )
    # A module that is called twice moves its statistics twice.
    latest = Tensor(dict(builder.updates).get(state.value, state.value), builder)
    part = multiply(reshape(batch, state.shape), momentum)
    builder.update(state, add(multiply(latest, subtract(1, momentum)), part))
