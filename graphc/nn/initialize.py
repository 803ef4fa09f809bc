"""Initial values of parameters, drawn as PyTorch's layers draw them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from graphc.nn import check
from graphc.nn.parameter import Parameter

_generator: np.random.Generator | None = None
_keys: np.random.Generator | None = None
"""Where programs draw their keys: apart, so that compiling changes no later module's weights."""


def seed(number: int = 0) -> None:
    """Set the seed of the modules made and the programs compiled from here on.

    Equal seeds give equal weights and equal draws of dropout and other random functions. The seed
    of a process is 0 until it is set.

    Args:
        number: The seed.

    Raises:
        GraphError: `number` is not an integer of 0 or more.

    Example:
        >>> graphc.seed(1)
        >>> first = nn.Linear(2, 1).weight.numpy()
        >>> graphc.seed(1)
        >>> bool((nn.Linear(2, 1).weight.numpy() == first).all())
        True
    """
    global _generator, _keys
    checked = check.integer("seed", "number", number, at_least=0)
    _generator, _keys = np.random.default_rng(checked), np.random.default_rng([checked, 1])


@contextmanager
def seeded(number: int) -> Iterator[None]:
    """Use a seed within a block, and go on behind it as if the block had drawn nothing."""
    global _generator, _keys
    before = _generator, _keys
    seed(number)
    try:
        yield
    finally:
        _generator, _keys = before


def generator() -> np.random.Generator:
    """Return the generator of all initial values."""
    if _generator is None:
        seed()
    assert _generator is not None
    return _generator


def draw_key() -> int:
    """Return the key of the next program with random ops, another one at each call."""
    if _keys is None:
        seed()
    assert _keys is not None
    return int(_keys.integers(1, 2**30))


def uniform(shape: tuple[int, ...], fan_in: int) -> Parameter:
    """Return a parameter f32[shape], uniform in [-1, 1] / sqrt(fan_in)."""
    bound = 1 / math.sqrt(fan_in) if fan_in else 0.0
    return Parameter(generator().uniform(-bound, bound, shape).astype(np.float32))


def xavier(shape: tuple[int, int]) -> Parameter:
    """Return a parameter f32[out, in], uniform in [-1, 1] * sqrt(6 / (in + out))."""
    bound = math.sqrt(6 / sum(shape))
    return Parameter(generator().uniform(-bound, bound, shape).astype(np.float32))


def normal(shape: tuple[int, ...]) -> Parameter:
    """Return a parameter f32[shape] of standard normal numbers."""
    return Parameter(generator().standard_normal(shape, np.float32))


def full(shape: tuple[int, ...], value: float, dtype: Any = np.float32) -> Parameter:
    """Return a parameter with all elements equal to `value`."""
    return Parameter(np.full(shape, value, dtype))
