"""Reductions in NumPy, combined in the order that a schedule states."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import numpy as np

from graphc.base.multiply_add import fma
from graphc.ir.ordered_sum import ordered_reduction
from graphc.ir.sum_order import SumLoop, SumOrder
from graphc.kernels.program.body.reduce import Reduce, ThreadOrder
from graphc.ops.base import COMBINES, Array


def reduced_rows(reduce: Reduce, x: Array, extents: Sequence[int]) -> Array:
    """The results [rows] of the elements `x` [rows, n], with indices along the axes of `reduce` in
    a domain of these `extents`, the last one fastest."""
    order, neutral = reduce.order or ThreadOrder(1), reduce.identity
    if reduce.combine == "products":
        return _products(reduce, x, extents)
    if isinstance(order, ThreadOrder):
        return _by_threads(order, reduce.combine, x, neutral)
    inside = [n if d in reduce.axes else 1 for d, n in enumerate(extents)]
    whole, join = np.moveaxis(x.reshape(len(x), *inside), 0, -1), COMBINES[reduce.combine]
    return ordered_reduction(order, whole, reduce.axes, join, neutral).reshape(len(x))


def _products(reduce: Reduce, x: Array, extents: Sequence[int]) -> Array:
    """The sums of products, of which `x` [rows, n, 3] has the factors and whether they exist."""
    sizes = {str(d): extents[d] for d in reduce.axes}
    order = reduce.order or SumOrder((SumLoop(tuple(sizes)),))
    assert isinstance(order, SumOrder), f"products in an order of threads: {order}"

    def add(total: Array, index: dict[str, int]) -> Array:
        number = 0
        for axis, size in sizes.items():
            number = number * size + index[axis]
        one, other, exists = x[:, number].T
        joined = fma(one, other, total) if x.dtype.kind == "f" else one * other + total
        return np.where(exists != 0, joined, total)

    return order.total(sizes, np.zeros(len(x), x.dtype), add, np.add)


def _by_threads(order: ThreadOrder, combine: str, x: Array, neutral: float) -> Array:
    """As reduce.cuh combines: threads, their trees, and parts."""
    (rows, length), threads = x.shape, order.threads
    join = add = COMBINES.get(combine, _joined_deviations)
    fields = 1
    if combine == "deviations":
        add, fields = _deviating, 4
    empty = np.full((fields, rows, threads), neutral, x.dtype)

    def in_turn(terms: Array, run: int, add: Callable[[Array, Array], Array]) -> Array:
        """What threads have that take runs of the terms [.., n] in turn, then all of them."""
        found = empty.copy()
        for first in range(0, terms.shape[-1], threads * run):
            for step in range(run):
                some = terms[..., first + step : first + threads * run : run]
                own = found[..., : some.shape[-1]]
                found[..., : some.shape[-1]] = add(own, some)
        for tree in order.trees:
            distance = 1
            while distance < tree:
                place = np.arange(found.shape[-1]) ^ distance
                found, distance = join(found, found[..., place]), 2 * distance
            found = found[..., ::tree]
        total = found[..., :1]
        for thread in range(1, found.shape[-1]):
            total = join(total, found[..., thread : thread + 1])
        return total

    steps = length // order.run
    ends = [steps * part // order.parts * order.run for part in range(order.parts + 1)]
    parts = [in_turn(x[None, :, a:b], order.run, add) for a, b in itertools.pairwise(ends)]
    total = parts[0] if order.parts == 1 else in_turn(np.concatenate(parts, axis=-1), 1, join)
    return _spread(total[..., 0]) if combine == "deviations" else total[0, :, 0]


def _deviating(one: Array, x: Array) -> Array:
    """As one_pass_variance.cuh adds an element: the first one, the sum and the sum of squares of
    differences from it, and their number."""
    first, total, squares, count = one
    first = np.where(count == 0, x[0], first)
    apart = x[0] - first
    return np.stack([first, total + apart, fma(apart, apart, squares), count + 1])


def _joined_deviations(one: Array, other: Array) -> Array:
    """As it adds what other elements come to."""
    first, total, squares, count = one
    first = np.where(count == 0, other[0], first)
    apart = other[0] - first
    shift = fma(other[3], apart, 2 * other[1])
    squares = squares + fma(apart, shift, other[2])
    return np.stack([first, total + fma(other[3], apart, other[1]), squares, count + other[3]])


def _spread(state: Array) -> Array:
    _, total, squares, count = state
    spread = fma(-total, total / count, squares)
    return np.where(spread < 0, 0, spread)
