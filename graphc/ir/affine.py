"""Affine index maps, by which views and contractions read, and sections of an axis."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Affine:
    """An input index from output indices: sum of `coefficients[d] * i[d]`, plus `offset`."""

    coefficients: tuple[int, ...]
    offset: int = 0


@dataclass(frozen=True)
class Operand:
    """How a contraction reads an operand: an affine index per axis, over the iteration axes.

    Reads outside of the operand give zero. `divisors[d]` > 1 divides the index of axis d; where the
    division is not exact the read gives zero, as in the gradient of a strided convolution.
    """

    index: tuple[Affine, ...]
    divisors: tuple[int, ...]


@dataclass(frozen=True)
class Iteration:
    """`out[o(i)] += A[a(i)] * B[b(i)]` over all iteration axes i, by name and extent.

    `output` is the output's index per axis, with no offset: each output element is named by the
    first `kept` iteration axes alone, and the others are summed over. (A grouped convolution
    keeps n, g, k, p, q, and the output's channel is g * (K / G) + k.)
    """

    names: tuple[str, ...]
    extents: tuple[int, ...]
    kept: int
    output: tuple[Affine, ...]
    a: Operand
    b: Operand


@dataclass(frozen=True)
class Sections:
    """`count` runs of `size` elements along `axis`."""

    axis: int
    count: int
    size: int

    def shape(self, whole: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of one section of a value of shape `whole`."""
        return (*whole[: self.axis], self.size, *whole[self.axis + 1 :])


def unit(axis: int, rank: int, coefficient: int = 1, offset: int = 0) -> Affine:
    """The affine map coefficient * i[axis] + offset over `rank` indices."""
    return Affine(tuple(coefficient if d == axis else 0 for d in range(rank)), offset)
