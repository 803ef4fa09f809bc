"""Functions that draw random numbers: the same ones for the same seed, place and step."""

from __future__ import annotations

from typing import Any

from graphc import ops
from graphc.functions.creation import zeros_like
from graphc.functions.elementwise import greater_equal, multiply, where
from graphc.functions.tensors import error, floating
from graphc.trace import Tensor, current_builder, emit

__all__ = ["dropout"]


def dropout(x: Any, p: float = 0.5, training: bool | None = None) -> Tensor:
    """In training, x / (1 - p) with each element set to 0 with probability p; else x.

    `training` defaults to whether the program updates parameters. Other elements are drawn at each
    call of the program.
    """
    tensor = floating(x)
    if isinstance(p, bool) or not isinstance(p, int | float) or not 0 <= p <= 1:
        raise error(f"dropout: p expected a probability from 0 to 1, got {p!r}")
    builder = current_builder()
    if not (builder.training if training is None else training) or p == 0:
        return tensor
    if p == 1:
        return zeros_like(tensor)
    seed, number, counter = builder.random_key()
    uniform = emit(ops.PhiloxUniform(seed, number, tensor.shape), counter)
    return where(greater_equal(uniform, p), multiply(tensor, 1 / (1 - p)), 0)
