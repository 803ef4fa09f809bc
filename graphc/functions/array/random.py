"""Functions that draw random numbers: the same ones for the same seed, place and step, on every
device. Other numbers are drawn at each call of a program. No gradient flows through a draw."""

from __future__ import annotations

import math

from graphc.functions.array.draws import MOST, gumbel, uniform
from graphc.functions.array.elementwise.elementwise import (
    add,
    cos,
    floor,
    greater,
    less,
    log,
    multiply,
    sqrt,
    stop_gradient,
    subtract,
    where,
)
from graphc.functions.array.ordering import argsort, topk
from graphc.functions.array.reductions import argmax
from graphc.functions.array.shape.shapes import broadcast_to, expand_dims
from graphc.functions.array.tensors import (
    Shape,
    as_tensor,
    cast,
    dtype_of,
    error,
    floating,
    promoted,
    shape_of,
)
from graphc.ir import DTypeLike, TensorLike
from graphc.trace import Tensor


def rand(shape: Shape, dtype: DTypeLike = "f32") -> Tensor:
    """Uniform in [0, 1)."""
    return cast(uniform(shape_of("rand", shape)), dtype_of(dtype))


def rand_like(x: TensorLike, dtype: DTypeLike | None = None) -> Tensor:
    """Uniform in [0, 1), in the shape of x, and in its dtype unless `dtype` says otherwise."""
    tensor = as_tensor(x)
    return rand(tensor.shape, tensor.dtype if dtype is None else dtype)


def randn(shape: Shape, dtype: DTypeLike = "f32") -> Tensor:
    """Normal, of mean 0 and variance 1 (by Box and Muller, Ann. Math. Stat. 29, 1958): at most 5.8
    from 0."""
    extents = shape_of("randn", shape)
    radius = sqrt(multiply(log(subtract(1, uniform(extents))), -2))
    return cast(multiply(radius, cos(multiply(uniform(extents), 2 * math.pi))), dtype_of(dtype))


def randn_like(x: TensorLike, dtype: DTypeLike | None = None) -> Tensor:
    """Normal, in the shape of x, and in its dtype unless `dtype` says otherwise."""
    tensor = as_tensor(x)
    return randn(tensor.shape, tensor.dtype if dtype is None else dtype)


def normal(mean: TensorLike, std: TensorLike, shape: Shape | None = None) -> Tensor:
    """mean + std * randn(shape); the shape is that of mean and std together unless given. The
    gradients of mean and std are those of this sum."""
    centre, spread = map(floating, promoted(mean, std))
    if shape is None:
        extents = add(centre, spread).shape
    else:
        extents = shape_of("normal", shape)
    return add(multiply(randn(extents, centre.dtype), spread), centre)


def randint(low: int, high: int, shape: Shape, dtype: DTypeLike = "i64") -> Tensor:
    """Integers from `low` to below `high`, at most 2^24 different ones, each as often as any."""
    if not all(isinstance(n, int) for n in (low, high)) or not 0 < high - low <= MOST:
        raise error(f"randint: expected low below high, by 2^24 at most, got {low!r} and {high!r}")
    drawn = floor(multiply(uniform(shape_of("randint", shape)), high - low))
    return add(cast(drawn, dtype_of(dtype)), low)


def randint_like(x: TensorLike, low: int, high: int, dtype: DTypeLike | None = None) -> Tensor:
    """Integers from `low` to below `high` in the shape of x, and in its dtype unless `dtype` says
    otherwise."""
    tensor = as_tensor(x)
    return randint(low, high, tensor.shape, tensor.dtype if dtype is None else dtype)


def bernoulli(x: TensorLike) -> Tensor:
    """1 with probability x, else 0, for each element of x (floats)."""
    tensor = floating(x)
    drawn = less(cast(uniform(tensor.shape), tensor.dtype), stop_gradient(tensor))
    return cast(drawn, tensor.dtype)


def randperm(n: int, dtype: DTypeLike = "i64") -> Tensor:
    """[n]: the numbers 0 to n - 1 in a random order, that of n uniform numbers."""
    (extent,) = shape_of("randperm", n)
    return cast(argsort(uniform((extent,))), dtype_of(dtype))


def multinomial(x: TensorLike, num_samples: int, replacement: bool = False) -> Tensor:
    """[..., num_samples] places along the last axis of x [..., n], drawn with the weights x (not
    negative), i64; without `replacement` all different, of weights that are not 0."""
    tensor = stop_gradient(floating(x))
    if not tensor.ndim or not isinstance(num_samples, int) or num_samples < 1:
        raise error(
            f"multinomial: expected weights of 1 axis or more and 1 sample or more, got "
            f"{tensor.value.type} and {num_samples!r}"
        )
    *batch, n = tensor.shape
    weights = where(greater(tensor, 0), log(where(greater(tensor, 0), tensor, 1)), -math.inf)
    if replacement:
        shape = (*batch, num_samples, n)
        keys = add(cast(gumbel(shape), tensor.dtype), expand_dims(weights, -2))
        return argmax(broadcast_to(keys, shape), -1)
    if num_samples > n:
        raise error(
            f"multinomial: {num_samples} different samples of {n} places of {tensor.value.type}"
        )
    return topk(add(cast(gumbel(tensor.shape), tensor.dtype), weights), num_samples)[1]
