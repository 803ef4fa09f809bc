"""Helpers for the rules `axis_map` and `batched`: where axes go, and tensors of many samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from graphc.ir import Axes as Axes
from graphc.ir import Type
from graphc.ir.affine import Affine, Iteration, unit
from graphc.ir.vocabulary import Tensor, Vocabulary

SUMMED = -1
"""In place of an axis: the output combines the elements along it, in whatever order they lie."""


def broadcast_axes(shape: tuple[int, ...], result: tuple[int, ...]) -> Axes:
    """Where the axes of `shape` go that is broadcast to `result`."""
    first = len(result) - len(shape)
    return tuple(d if n == result[d] else None for d, n in enumerate(shape, first))


def all_but(axis: int, rank: int) -> Axes:
    """Every axis goes to itself, but for one."""
    return tuple(None if d == axis else d for d in range(rank))


def unsliced_axes(index: Sequence[Affine], x: Type, y: Type) -> Axes:
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


def aligned(f: Vocabulary, x: Tensor, rank: int) -> Tensor:
    """Samples along the first axis of x, each with axes of extent 1 in front up to `rank`."""
    size, *shape = x.shape
    return f.reshape(x, (size, *(1,) * (rank - len(shape)), *shape))


def repeated(f: Vocabulary, x: Tensor, size: int) -> Tensor:
    """x for each of `size` samples."""
    return f.broadcast_to(x, (size, *x.shape))


def all_stacked(
    f: Vocabulary, inputs: Sequence[Tensor], stacked: Sequence[bool], size: int
) -> list[Tensor]:
    """The inputs, each with an axis for the samples."""
    return [x if s else repeated(f, x, size) for x, s in zip(inputs, stacked, strict=True)]


def from_front(f: Vocabulary, x: Tensor, axis: int) -> Tensor:
    """x with its first axis as axis `axis` and the others in order."""
    order = (*range(1, axis + 1), 0, *range(axis + 1, x.ndim))
    return f.permute_dims(x, order) if axis else x


def to_front(f: Vocabulary, x: Tensor, axis: int) -> Tensor:
    """x with axis `axis` as its first and the others in order."""
    order = (axis, *(d for d in range(x.ndim) if d != axis))
    return f.permute_dims(x, order) if axis else x


def folded(f: Vocabulary, x: Tensor, axis: int = 0) -> Tensor:
    """x with the samples, its first axis, as the slower part of what was axis `axis`."""
    size, *shape = x.shape
    moved = from_front(f, x, axis) if any(n != 1 for n in shape[:axis]) else x
    return f.reshape(moved, (*shape[:axis], size * shape[axis], *shape[axis + 1 :]))


def unfolded(f: Vocabulary, x: Tensor, size: int, axis: int = 0) -> Tensor:
    """What `folded` folds."""
    shape = (*x.shape[:axis], size, x.shape[axis] // size, *x.shape[axis + 1 :])
    return to_front(f, f.reshape(x, shape), axis)
