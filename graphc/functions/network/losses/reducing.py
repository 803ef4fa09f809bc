"""Operands of one shape, and the reduction of losses."""

from __future__ import annotations

import math

from graphc.functions.array.elementwise.elementwise import divide, multiply
from graphc.functions.array.reductions import sum
from graphc.functions.array.tensors import error, floating, promoted
from graphc.ir import TensorLike
from graphc.trace import Tensor


def same_shape(name: str, input: TensorLike, target: TensorLike) -> list[Tensor]:
    """Return both as floats of one dtype, or raise GraphError unless their shapes are equal."""
    pair = [floating(t) for t in promoted(input, target)]
    if pair[0].shape != pair[1].shape:
        raise error(
            f"{name}: input {pair[0].value.type} and target {pair[1].value.type} differ in shape"
        )
    return pair


def reduced(name: str, loss: Tensor, reduction: str, weights: Tensor | None = None) -> Tensor:
    """Reduce the loss of each label; the mean divides by the sum of `weights`."""
    if reduction == "none":
        return loss
    if reduction == "sum":
        return sum(loss)
    if reduction != "mean":
        raise error(f'{name}: reduction expected "mean", "sum" or "none", got {reduction!r}')
    if weights is None:
        return multiply(sum(loss), 1 / loss.size if loss.size else math.nan)
    return divide(sum(loss), sum(weights))
