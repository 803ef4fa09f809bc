"""Draw random numbers. No gradient flows through a draw.

The numbers depend on the seed, on which random op of the program draws them and on the number of
the call, and are the same on every device. Each call of a program draws new ones.
"""

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
    """Draw uniform numbers in [0, 1).

    Args:
        shape: The shape of the result.
        dtype: The dtype of the result, a float.

    Example:
        >>> graphc.trace(lambda: graphc.rand((2, 3))).outputs[0].type.shape
        (2, 3)
    """
    return cast(uniform(shape_of("rand", shape)), dtype_of(dtype))


def rand_like(x: TensorLike, dtype: DTypeLike | None = None) -> Tensor:
    """Draw uniform numbers in [0, 1) in the shape of `x`.

    Args:
        x: The tensor whose shape is used.
        dtype: The dtype of the result; by default that of `x`.

    Example:
        >>> graphc.trace(lambda: graphc.rand_like(np.zeros((2, 3)))).outputs[0].type.shape
        (2, 3)
    """
    tensor = as_tensor(x)
    return rand(tensor.shape, tensor.dtype if dtype is None else dtype)


def randn(shape: Shape, dtype: DTypeLike = "f32") -> Tensor:
    """Draw normal numbers of mean 0 and variance 1.

    They come from uniform ones by Box and Muller (Ann. Math. Stat. 29, 1958), so that none is more
    than 5.8 from 0.

    Args:
        shape: The shape of the result.
        dtype: The dtype of the result, a float.

    Example:
        >>> graphc.trace(lambda: graphc.randn((2, 3))).outputs[0].type.shape
        (2, 3)
    """
    extents = shape_of("randn", shape)
    radius = sqrt(multiply(log(subtract(1, uniform(extents))), -2))
    return cast(multiply(radius, cos(multiply(uniform(extents), 2 * math.pi))), dtype_of(dtype))


def randn_like(x: TensorLike, dtype: DTypeLike | None = None) -> Tensor:
    """Draw normal numbers of mean 0 and variance 1 in the shape of `x`.

    Args:
        x: The tensor whose shape is used.
        dtype: The dtype of the result; by default that of `x`.

    Example:
        >>> graphc.trace(lambda: graphc.randn_like(np.zeros((2, 3)))).outputs[0].type.shape
        (2, 3)
    """
    tensor = as_tensor(x)
    return randn(tensor.shape, tensor.dtype if dtype is None else dtype)


def normal(mean: TensorLike, std: TensorLike, shape: Shape | None = None) -> Tensor:
    """Draw normal numbers of given means and standard deviations: mean + std * randn(shape).

    Gradients flow to `mean` and `std`.

    Args:
        mean: The means.
        std: The standard deviations; they broadcast with `mean`.
        shape: The shape of the result; by default the broadcast shape of `mean` and `std`.

    Example:
        >>> graphc.trace(lambda: graphc.normal(0.0, [1.0, 2.0])).outputs[0].type.shape
        (2,)
    """
    centre, spread = map(floating, promoted(mean, std))
    if shape is None:
        extents = add(centre, spread).shape
    else:
        extents = shape_of("normal", shape)
    return add(multiply(randn(extents, centre.dtype), spread), centre)


def randint(low: int, high: int, shape: Shape, dtype: DTypeLike = "i64") -> Tensor:
    """Draw integers in [low, high), each with the same probability.

    Args:
        low: The smallest integer drawn.
        high: The end of the range, which is never drawn.
        shape: The shape of the result.
        dtype: The dtype of the result.

    Raises:
        GraphError: `high` is not above `low`, or is more than 2^24 above it.

    Example:
        >>> graphc.compile(lambda: graphc.all(graphc.randint(0, 6, (100,)) < 6))()
        array(True)
    """
    if not all(isinstance(n, int) for n in (low, high)) or not 0 < high - low <= MOST:
        raise error(f"randint: expected low below high, by 2^24 at most, got {low!r} and {high!r}")
    drawn = floor(multiply(uniform(shape_of("randint", shape)), high - low))
    return add(cast(drawn, dtype_of(dtype)), low)


def randint_like(x: TensorLike, low: int, high: int, dtype: DTypeLike | None = None) -> Tensor:
    """Draw integers in [low, high) in the shape of `x`.

    Args:
        x: The tensor whose shape is used.
        low: The smallest integer drawn.
        high: The end of the range, which is never drawn.
        dtype: The dtype of the result; by default that of `x`.

    Raises:
        GraphError: `high` is not above `low`, or is more than 2^24 above it.

    Example:
        >>> graphc.trace(lambda: graphc.randint_like(np.zeros((2, 3)), 0, 6)).outputs[0].type.shape
        (2, 3)
    """
    tensor = as_tensor(x)
    return randint(low, high, tensor.shape, tensor.dtype if dtype is None else dtype)


def bernoulli(x: TensorLike) -> Tensor:
    """Draw 1 with probability `x` and 0 otherwise, for each element.

    Args:
        x: Probabilities, floats in [0, 1].

    Returns:
        A tensor of the shape and dtype of `x`.

    Example:
        >>> graphc.compile(lambda: graphc.bernoulli([0.0, 1.0]))()
        array([0., 1.], dtype=float32)
    """
    tensor = floating(x)
    drawn = less(cast(uniform(tensor.shape), tensor.dtype), stop_gradient(tensor))
    return cast(drawn, tensor.dtype)


def randperm(n: int, dtype: DTypeLike = "i64") -> Tensor:
    """Draw a random permutation of 0, ..., n - 1.

    Args:
        n: The number of elements.
        dtype: The dtype of the result.

    Returns:
        A tensor [n].

    Example:
        >>> graphc.compile(lambda: graphc.sort(graphc.randperm(4)))()
        array([0, 1, 2, 3])
    """
    (extent,) = shape_of("randperm", n)
    return cast(argsort(uniform((extent,))), dtype_of(dtype))


def multinomial(x: TensorLike, num_samples: int, replacement: bool = False) -> Tensor:
    """Draw indices with probabilities proportional to `x`.

    Args:
        x: Weights [n] or [..., n], not negative.
        num_samples: The number of indices drawn from each row.
        replacement: Whether an index may be drawn more than once. Without it, all drawn indices
            have a weight above 0.

    Returns:
        Indices i64 [..., num_samples] into the last axis of `x`.

    Raises:
        GraphError: `x` is a scalar, or there are fewer than `num_samples` weights without
            `replacement`.

    Example:
        >>> graphc.compile(lambda: graphc.multinomial([0.0, 1.0], 3, replacement=True))()
        array([1, 1, 1])
    """
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
