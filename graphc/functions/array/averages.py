"""Means and variances over axes, for arguments that were checked."""

from __future__ import annotations

import math

from graphc import ops
from graphc.functions.array.elementwise.elementwise import multiply, square, stop_gradient, subtract
from graphc.trace import Tensor, emit


def average(x: Tensor, axes: tuple[int, ...], keepdims: bool = False) -> Tensor:
    """Average over `axes`; the mean of no elements is NaN."""
    count = math.prod(x.shape[a] for a in axes)
    return multiply(emit(ops.Sum(axes, keepdims), x), 1 / count if count else math.nan)


def biased_variance(x: Tensor, mean: Tensor, axes: tuple[int, ...]) -> Tensor:
    """Return the mean squared deviation from `mean` over `axes`, which are kept with size 1.

    It is written as E[(x - c)^2] - (E[x] - c)^2 for the constant c = E[x]. The second term is 0,
    but makes gradients of any order exact without a sum over x; the gradient of (x - E[x])^2 itself
    needs one more pass over the data for a sum that is 0.
    """
    centre = stop_gradient(mean)
    spread = average(square(subtract(x, centre)), axes, keepdims=True)
    return subtract(spread, square(subtract(mean, centre)))
