"""Contractions and reductions in NumPy whose terms are added in a stated order."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from graphc.base.dtypes import Array
from graphc.base.multiply_add import fma
from graphc.ir.affine import Affine, Iteration, Operand
from graphc.ir.sum_order import SumOrder


def ordered_contraction(order: SumOrder, iteration: Iteration, a: Array, b: Array) -> Array:
    """Return the contraction of two operands of one float dtype, added in `order`.

    Terms outside of an operand are left out.
    """
    kept = iteration.kept
    extents = dict(zip(iteration.names[kept:], iteration.extents[kept:], strict=True))
    shape = iteration.extents[:kept]
    reads = [_Read(x, o, iteration) for x, o in ((a, iteration.a), (b, iteration.b))]

    def add(total: Array, index: dict[str, int]) -> Array:
        summed = tuple(index[name] for name in iteration.names[kept:])
        (x, inside), (y, also) = (read.at(summed) for read in reads)
        return np.asarray(np.where(inside & also, fma(x, y, total), total))

    zero = np.zeros(shape, np.result_type(a, b))
    with np.errstate(all="ignore"):
        total = order.total(extents, zero, add, np.add)
    places = [_sum_of(place, shape, (0,) * len(extents), 0) for place in iteration.output]
    result = np.zeros([int(p.max(initial=-1)) + 1 for p in places], total.dtype)
    result[tuple(np.broadcast_to(p, shape) for p in places)] = total
    return result


class _Read:
    """An operand at the kept indices, for one summed index at a time."""

    def __init__(self, x: Array, operand: Operand, iteration: Iteration) -> None:
        self.x, self.kept = x, iteration.kept
        self.index, self.divisors = operand.index, operand.divisors
        self.shape = iteration.extents[: iteration.kept]

    def at(self, summed: tuple[int, ...]) -> tuple[Array, Array]:
        """The elements, and which of them exist."""
        inside, places = np.ones((), bool), []
        for place, divisor, extent in zip(self.index, self.divisors, self.x.shape, strict=True):
            value = _sum_of(place, self.shape, summed, place.offset)
            inside = inside & (value % divisor == 0) & (value >= 0) & (value // divisor < extent)
            places.append(np.clip(value // divisor, 0, extent - 1))
        found = self.x[tuple(places)]
        return np.broadcast_to(found, self.shape), np.broadcast_to(inside, self.shape)


def _sum_of(place: Affine, shape: tuple[int, ...], summed: tuple[int, ...], offset: int) -> Array:
    """An affine index at all kept indices of `shape` and one summed index."""
    rank, factors = len(shape), place.coefficients
    value = np.full(
        (1,) * rank, offset + sum(f * i for f, i in zip(factors[rank:], summed, strict=True))
    )
    for axis, extent in enumerate(shape):
        if factors[axis]:
            steps = (1,) * axis + (extent,) + (1,) * (rank - axis - 1)
            value = value + factors[axis] * np.arange(extent).reshape(steps)
    return np.asarray(value)


def ordered_reduction(
    order: SumOrder,
    x: Array,
    axes: tuple[int, ...],
    join: Callable[[Array, Array], Array],
    zero: float,
) -> Array:
    """Return `x` with `axes`, by their numbers in `order`, combined by `join` and kept as 1."""
    extents = {str(a): x.shape[a] for a in axes}
    shape = tuple(1 if a in axes else n for a, n in enumerate(x.shape))
    terms = np.moveaxis(x, axes, range(len(axes)))
    terms = terms.reshape(math.prod(extents.values()), math.prod(shape))
    total = None
    with np.errstate(all="ignore"):
        for part in range(order.parts):
            places: list[list[int]] = [[] for _ in range(order.lanes)]
            for lane, index in order.terms(extents, part):
                place = 0
                for axis, extent in extents.items():
                    place = place * extent + index[axis]
                places[lane].append(place)
            lanes = np.full((order.lanes, terms.shape[1]), zero, x.dtype)
            for step in range(max(map(len, places))):  # all lanes at once
                own = [lane for lane, mine in enumerate(places) if step < len(mine)]
                lanes[own] = join(lanes[own], terms[[places[lane][step] for lane in own]])
            while len(lanes) > 1:
                lanes = join(*np.split(lanes, 2))
            total = lanes[0] if total is None else join(total, lanes[0])
    assert total is not None
    return np.asarray(total.reshape(shape))
