"""Initial values of parameters, as PyTorch's layers draw them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from graphc.nn import check
from graphc.nn.parameter import Parameter

_generator: np.random.Generator | None = None
_keys: np.random.Generator | None = None
"""Where programs draw their keys: apart, so that compiling changes no later module's weights."""


def seed(number: int = 0) -> None:
    """Let the modules made and the programs compiled from here on be those of `number`: equal
    numbers, equal weights and equal draws of dropout and other random functions.

    In a process that does not call it they are those of 0. GraphError unless `number` is
    an integer of at least 0.
    """
    global _generator, _keys
    checked = check.integer("seed", "number", number, at_least=0)
    _generator, _keys = np.random.default_rng(checked), np.random.default_rng([checked, 1])


def generator() -> np.random.Generator:
    """The source of all initial values."""
    if _generator is None:
        seed()
    assert _generator is not None
    return _generator


def draw_key() -> int:
    """The key of the next program with random ops: another one at each call."""
    if _keys is None:
        seed()
    assert _keys is not None
    return int(_keys.integers(1, 2**30))


def uniform(shape: tuple[int, ...], fan_in: int) -> Parameter:
    """A parameter f32[shape], uniform within 1 / sqrt(fan_in) of zero."""
    bound = 1 / math.sqrt(fan_in) if fan_in else 0.0
    return Parameter(generator().uniform(-bound, bound, shape).astype(np.float32))


def xavier(shape: tuple[int, int]) -> Parameter:
    """A parameter f32[out, in], uniform within sqrt(6 / (in + out)) of zero."""
    bound = math.sqrt(6 / sum(shape))
    return Parameter(generator().uniform(-bound, bound, shape).astype(np.float32))


def normal(shape: tuple[int, ...]) -> Parameter:
    """A parameter f32[shape], standard normal."""
    return Parameter(generator().standard_normal(shape, np.float32))


def full(shape: tuple[int, ...], value: float, dtype: Any = np.float32) -> Parameter:
    """A parameter of equal elements."""
    return Parameter(np.full(shape, value, dtype))
