"""Normalization to mean 0 and variance 1, with the arguments of torch.nn.functional."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from graphc import ops
from graphc.functions.array.averages import biased_variance
from graphc.functions.array.elementwise.elementwise import (
    add,
    multiply,
    negative,
    rsqrt,
    square,
    stop_gradient,
    subtract,
)
from graphc.functions.array.elementwise.precision import in_float32
from graphc.functions.array.reductions import mean
from graphc.functions.array.shape.shapes import reshape
from graphc.functions.array.tensors import as_tensor, cast, error, floating, shape_of
from graphc.ir import DTYPES, TensorLike
from graphc.ir.state import StateBuffer
from graphc.trace import Tensor, current_builder


@in_float32
def batch_norm(
    x: TensorLike,
    running_mean: TensorLike | None = None,
    running_var: TensorLike | None = None,
    weight: TensorLike | None = None,
    bias: TensorLike | None = None,
    training: bool | None = None,
    momentum: TensorLike = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """Normalize each channel over the batch, then scale and shift it.

    In training, and without running statistics, the mean and biased variance are those of the
    batch; else they are the running ones. Training also updates the running statistics, which must
    be state, towards the batch's mean and unbiased variance.

    Args:
        x: The input [n, c, ...].
        running_mean: The running means [c].
        running_var: The running variances [c].
        weight: The scales [c].
        bias: The shifts [c].
        training: Whether to use the batch's statistics; by default as the program or the calling
            module says.
        momentum: The weight of the batch in the running statistics.
        eps: Added to the variance.

    Raises:
        GraphError: The shapes do not fit, only one running statistic is given, or in training a
            channel has one element.

    Example:
        >>> graphc.compile(lambda: graphc.batch_norm([[1.0], [3.0]], training=True, eps=0.0))()
        array([[-1.],
               [ 1.]], dtype=float32)
    """
    tensor = floating(x)
    if tensor.ndim < 2:
        raise error(f"batch_norm: expected x of 2 axes or more, got {tensor.value.type}")
    if (running_mean is None) != (running_var is None):
        raise error("batch_norm: running_mean and running_var go together, only one is given")
    training = current_builder().training if training is None else training
    old_mean = _per_channel("batch_norm", "running_mean", running_mean, tensor)
    old_variance = _per_channel("batch_norm", "running_var", running_var, tensor)
    scale = _per_channel("batch_norm", "weight", weight, tensor)
    shift = _per_channel("batch_norm", "bias", bias, tensor)
    if not training and old_mean is not None and old_variance is not None:
        factor = rsqrt(add(old_variance, eps))
        factor = factor if scale is None else multiply(factor, scale)
        return _shifted(multiply(subtract(tensor, old_mean), factor), shift)
    axes = (0, *range(2, tensor.ndim))
    ranks = current_builder().ranks
    together = ranks.ranks if training and ranks.synchronizes else 1
    y, average, variance = _normalized(tensor, axes, eps, scale, shift, together)
    if training and running_mean is not None:
        count = math.prod(tensor.shape[a] for a in axes) * together
        if count < 2:
            raise error(
                "batch_norm: expected more than 1 element per channel in training, "
                f"got x {tensor.value.type}"
            )
        _move("batch_norm: running_mean", running_mean, average, momentum)
        unbiased = multiply(variance, count / (count - 1))
        _move("batch_norm: running_var", running_var, unbiased, momentum)
    return y


@in_float32
def layer_norm(
    x: TensorLike,
    normalized_shape: int | Sequence[int],
    weight: TensorLike | None = None,
    bias: TensorLike | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """Normalize over the last axes, then scale and shift.

    Args:
        x: The input [..., *normalized_shape].
        normalized_shape: The sizes of the axes to normalize over.
        weight: The scales, of that shape.
        bias: The shifts, of that shape.
        eps: Added to the variance.

    Raises:
        GraphError: The shapes do not fit.

    Example:
        >>> graphc.compile(lambda: graphc.layer_norm([[1.0, 3.0]], 2, eps=0.0))()
        array([[-1.,  1.]], dtype=float32)
    """
    tensor = floating(x)
    shape = shape_of("layer_norm", normalized_shape)
    first = tensor.ndim - len(shape)
    if not shape or first < 0 or tensor.shape[first:] != shape:
        raise error(
            f"layer_norm: x {tensor.value.type} does not end in normalized_shape {list(shape)}"
        )
    y, _, _ = _normalized(tensor, tuple(range(first, tensor.ndim)), eps)
    w, b = (None if t is None else as_tensor(t) for t in (weight, bias))
    for name, t in (("weight", w), ("bias", b)):
        if t is not None and t.shape != shape:
            raise error(
                f"layer_norm: {name} {t.value.type} does not have normalized_shape {list(shape)}"
            )
    return _shifted(y if w is None else multiply(y, w), b)


@in_float32
def group_norm(
    x: TensorLike,
    num_groups: int,
    weight: TensorLike | None = None,
    bias: TensorLike | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """Normalize over groups of channels of each sample, then scale and shift each channel.

    Args:
        x: The input [n, c, ...].
        num_groups: The number of groups.
        weight: The scales [c].
        bias: The shifts [c].
        eps: Added to the variance.

    Raises:
        GraphError: The groups do not divide the channels.

    Example:
        >>> graphc.compile(lambda: graphc.group_norm([[1.0, 3.0, 2.0, 4.0]], 2, eps=0.0))()
        array([[-1.,  1., -1.,  1.]], dtype=float32)
    """
    tensor = floating(x)
    if tensor.ndim < 2 or num_groups < 1 or tensor.shape[1] % num_groups:
        raise error(
            f"group_norm: {num_groups} groups do not divide the channels of x {tensor.value.type}"
        )
    n, c, *pixels = tensor.shape
    grouped = reshape(tensor, (n, num_groups, c // num_groups * math.prod(pixels)))
    y = reshape(_normalized(grouped, (2,), eps)[0], tensor.shape)
    scale = _per_channel("group_norm", "weight", weight, tensor)
    shift = _per_channel("group_norm", "bias", bias, tensor)
    return _shifted(y if scale is None else multiply(y, scale), shift)


@in_float32
def instance_norm(
    x: TensorLike,
    running_mean: TensorLike | None = None,
    running_var: TensorLike | None = None,
    weight: TensorLike | None = None,
    bias: TensorLike | None = None,
    use_input_stats: bool | None = None,
    momentum: TensorLike = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """Normalize each channel of each sample, then scale and shift it.

    Running statistics, which must be state, are updated towards the means over n of each channel's
    mean and unbiased variance.

    Args:
        x: The input [n, c, ...].
        running_mean: The running means [c].
        running_var: The running variances [c].
        weight: The scales [c].
        bias: The shifts [c].
        use_input_stats: Whether to use the statistics of `x`; by default, unless there are running
            ones and the program does not train.
        momentum: The weight of the batch in the running statistics.
        eps: Added to the variance.

    Raises:
        GraphError: `x` has fewer than three axes, or in training a channel has one element.

    Example:
        >>> graphc.compile(lambda: graphc.instance_norm([[[1.0, 3.0]]], eps=0.0))()
        array([[[-1.,  1.]]], dtype=float32)
    """
    tensor = floating(x)
    if tensor.ndim < 3:
        raise error(f"instance_norm: expected x of 3 axes or more, got {tensor.value.type}")
    if use_input_stats is None:
        use_input_stats = running_mean is None or current_builder().training
    if not use_input_stats:
        return batch_norm(tensor, running_mean, running_var, weight, bias, False, 0.0, eps)
    _, c, *pixels = tensor.shape
    if running_mean is not None:
        count = math.prod(pixels)
        if count < 2:
            raise error(
                "instance_norm: expected more than 1 element per channel in training, "
                f"got x {tensor.value.type}"
            )
        axes = tuple(range(2, tensor.ndim))
        average = mean(tensor, axes, keepdims=True)
        variance = multiply(biased_variance(tensor, average, axes), count / (count - 1))
        _move("instance_norm: running_mean", running_mean, mean(average, 0), momentum)
        _move("instance_norm: running_var", running_var, mean(variance, 0), momentum)
    return group_norm(tensor, c, weight, bias, eps)


@in_float32
def rms_norm(
    x: TensorLike,
    normalized_shape: int | Sequence[int],
    weight: TensorLike | None = None,
    eps: float | None = None,
) -> Tensor:
    """Divide by the root mean square over the last axes, then scale.

    Args:
        x: The input [..., *normalized_shape].
        normalized_shape: The sizes of the axes to normalize over.
        weight: The scales, of that shape.
        eps: Added to the mean square; by default the machine epsilon of the dtype.

    Raises:
        GraphError: The shapes do not fit.

    Example:
        >>> graphc.compile(lambda: graphc.rms_norm([[1.0, -1.0]], 2, eps=0.0))()
        array([[ 1., -1.]], dtype=float32)
    """
    tensor = floating(x)
    shape = shape_of("rms_norm", normalized_shape)
    first = tensor.ndim - len(shape)
    if not shape or first < 0 or tensor.shape[first:] != shape:
        raise error(
            f"rms_norm: x {tensor.value.type} does not end in normalized_shape {list(shape)}"
        )
    small = float(np.finfo(DTYPES[tensor.dtype]).eps) if eps is None else eps
    power = mean(square(tensor), tuple(range(first, tensor.ndim)), keepdims=True)
    y = multiply(tensor, rsqrt(add(power, small)))
    if weight is None:
        return y
    w = as_tensor(weight)
    if w.shape != shape:
        raise error(f"rms_norm: weight {w.value.type} does not have normalized_shape {list(shape)}")
    return multiply(y, w)


def _normalized(
    x: Tensor,
    axes: tuple[int, ...],
    eps: float,
    scale: Tensor | None = None,
    shift: Tensor | None = None,
    ranks: int = 1,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return (x - mean) / sqrt(variance + eps) * scale + shift over `axes`, mean and variance.

    Mean and biased variance keep the axes, along which `scale` and `shift` have size 1. With the
    constant c = mean, (x - mean) * f is written as (x - c) * f - (mean - c) * f. The second part is
    0 and small, and the gradient of the mean flows through it, so that the backward pass needs the
    sums of dy and dy * (x - c) and no other pass over the data, as in `biased_variance`. With
    several `ranks`, mean and variance are those of all of them.
    """
    average = _over_ranks(mean(x, axes, keepdims=True), ranks)
    centre = stop_gradient(average)
    if ranks == 1:
        variance = biased_variance(x, average, axes)
    else:
        spread = _over_ranks(mean(square(subtract(x, centre)), axes, keepdims=True), ranks)
        variance = subtract(spread, square(subtract(average, centre)))
    factor = rsqrt(add(variance, eps))
    factor = factor if scale is None else multiply(factor, scale)
    slack = multiply(subtract(average, centre), factor)
    offset = negative(slack) if shift is None else subtract(shift, slack)
    return add(multiply(subtract(x, centre), factor), offset), average, variance


def _over_ranks(x: Tensor, ranks: int) -> Tensor:
    """The mean of `x` over the processes that train together."""
    builder = current_builder()
    if ranks == 1:
        return x
    if builder.in_loop:
        raise error(
            "batch_norm: with sync_batch_norm=True expected no loop around it, such as scan, "
            "accumulate= or shards="
        )
    (total,) = builder.emit(ops.AllReduce(ranks, early=True), x, name="synchronized")
    return multiply(total, 1 / ranks)


def _shifted(y: Tensor, shift: Tensor | None) -> Tensor:
    return y if shift is None else add(y, shift)


def _per_channel(name: str, argument: str, value: TensorLike | None, x: Tensor) -> Tensor | None:
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


def _move(name: str, running: Any, batch: Tensor, momentum: TensorLike) -> None:
    """Let the state `running` become (1 - momentum) * running + momentum * batch."""
    builder, held = current_builder(), getattr(running, "state", None)
    if isinstance(held, StateBuffer):
        latest, state = builder.contents(held), builder.read_state(held)
    else:
        latest = state = as_tensor(running)
    if not builder.keeps(state):
        raise error(f"{name} {state.value.type} is not a parameter, so nothing keeps it")
    part = multiply(reshape(batch, state.shape), momentum)
    moved = add(multiply(cast(latest, batch.dtype), subtract(1, momentum)), part)
    builder.update(state, cast(moved, state.dtype))
