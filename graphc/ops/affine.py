"""Affine maps from one index space to another: how views and contractions read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from graphc.ir import Type
from graphc.ops.axes import SUMMED, Axes


@dataclass(frozen=True)
class Affine:
    """An input index from output indices: sum of `coefficients[d] * i[d]`, plus `offset`."""

    coefficients: tuple[int, ...]
    offset: int = 0


@dataclass(frozen=True)
class Operand:
    """How a contraction reads an operand: one affine index per axis of the operand, over the
    iteration axes of the contraction. Reads outside the operand's extents give zero.

    `divisors[d]` > 1 says that the affine index of axis d is divided; where it does not divide
    exactly the read gives zero (the gradient of a strided convolution).
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


def unit(axis: int, rank: int, coefficient: int = 1, offset: int = 0) -> Affine:
    """The affine map coefficient * i[axis] + offset over `rank` indices."""
    return Affine(tuple(coefficient if d == axis else 0 for d in range(rank)), offset)


def whole_axes(index: Sequence[Affine], x: Type, y: Type) -> Axes:
    """Where the axes of x go that `index`, from the indices of y, reads whole and in order."""
    axes: list[int | None] = []
    for extent, own in zip(x.shape, index, strict=True):
        uses = [d for d, c in enumerate(own.coefficients) if c]
        alone = len(uses) == 1 and sum(bool(a.coefficients[uses[0]]) for a in index) == 1
        whole = alone and own == unit(uses[0], y.rank) and y.shape[uses[0]] == extent
        axes.append(uses[0] if whole else None)
    return tuple(axes)


def iteration_axes(nest: Iteration, *operands: Type) -> tuple[Axes, ...]:
    """Where the axes of the two operands of `nest` go."""
    kept = {index: d for d, index in enumerate(nest.output)}
    return tuple(
        tuple(
            _named_axis(nest, kept, index, divisor, extent)
            for index, divisor, extent in zip(o.index, o.divisors, t.shape, strict=True)
        )
        for o, t in zip((nest.a, nest.b), operands, strict=True)
    )


def _named_axis(
    nest: Iteration, kept: Mapping[Affine, int], index: Affine, divisor: int, extent: int
) -> int | None:
    """The output axis of an operand's axis that one iteration axis names, and it alone."""
    names = [i for i, c in enumerate(index.coefficients) if c]
    if len(names) != 1 or index != unit(names[0], len(index.coefficients)) or divisor != 1:
        return None
    (axis,) = names
    reads = [r for o in (nest.a, nest.b) for r in o.index if r.coefficients[axis]]
    if any(r != index for r in reads) or nest.extents[axis] != extent:
        return None
    return kept.get(index) if axis < nest.kept else SUMMED
