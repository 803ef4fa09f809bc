"""Random draws from which the public random functions are built."""

from __future__ import annotations

from graphc import ops
from graphc.functions.array.elementwise.elementwise import log, maximum, negative
from graphc.trace import Tensor, current_builder, emit

MOST = 2**24
"""So many different numbers has a uniform draw."""


def uniform(shape: tuple[int, ...]) -> Tensor:
    """Draw f32 numbers in [0, 1): multiples of 2^-24."""
    seed, number, counter = current_builder().random_key()
    return emit(ops.PhiloxUniform(seed, number, shape), counter)


def uniforms(shape: tuple[int, ...]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Draw four independent tensors like `uniform`, in a kernel at the cost of one."""
    seed, number, counter = current_builder().random_key()
    a, b, c, d = (emit(ops.PhiloxUniform(seed, number, shape, w), counter) for w in range(4))
    return a, b, c, d


def gumbel(shape: tuple[int, ...]) -> Tensor:
    """Draw f32 numbers from the Gumbel distribution: -log(-log(u)) of uniform u.

    The argmax of logits plus these is a draw from softmax(logits).
    """
    return negative(log(negative(log(maximum(uniform(shape), 0.5 / MOST)))))
