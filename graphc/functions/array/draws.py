"""The draws that functions of random numbers are made of."""

from __future__ import annotations

from graphc import ops
from graphc.functions.array.elementwise.elementwise import log, maximum, negative
from graphc.trace import Tensor, current_builder, emit

MOST = 2**24
"""So many different numbers has a uniform draw."""


def uniform(shape: tuple[int, ...]) -> Tensor:
    """f32 of `shape`, uniform in [0, 1): multiples of 2^-24."""
    seed, number, counter = current_builder().random_key()
    return emit(ops.PhiloxUniform(seed, number, shape), counter)


def gumbel(shape: tuple[int, ...]) -> Tensor:
    """f32 of `shape`: -log(-log(u)) of uniform u, which added to logarithms of weights makes the
    largest place a draw by these weights."""
    return negative(log(negative(log(maximum(uniform(shape), 0.5 / MOST)))))
