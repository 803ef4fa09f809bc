"""Find the taps of a convolution that a tile of rows meets, so that it leaves out the others.

Rows that lie side by side in a tile meet the same taps if they are the same pixel of neighbouring
images; and, where the operand is read at every stride-th place, pixels of one remainder. So rows
have the remainders first, then the pixel, or its line alone, then the image: the steps of k at
which no row of a tile meets anything, because it reads the padding or between the pixels, are known
beforehand.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from graphc.ir import ROW_MAJOR, Graph
from graphc.kernels.cuda.contract.contract import Problem, make_problem
from graphc.kernels.program.nest import Axis, Border, Nest, cut_axis
from graphc.ops.base import Array

MOST_TAPS = 31
"""Taps whose bits are one word."""
MOST_TILES = 8192
"""Tiles of rows whose taps are a table in a kernel's text."""
MOST_ROWS = 64 * MOST_TILES
"""Rows whose taps are computed one by one, in some ten milliseconds; tiles of 64 are few enough."""
MOST_PRODUCTS = 0.9
"""The share of a convolution's products that exist above which no steps are left out."""


@dataclass(frozen=True)
class Taps:
    """`count` equal parts of k, and for each row the bits of those that it meets."""

    count: int
    k: int
    rows: Array

    def tiles(self, m: int) -> Array:
        """The bits of the taps that any row of a tile of `m` rows meets."""
        whole = np.zeros(-(-len(self.rows) // m) * m, np.uint32)
        whole[: len(self.rows)] = self.rows
        bits: Array = np.bitwise_or.reduce(whole.reshape(-1, m), axis=1)
        return bits

    def share(self, m: int, depth: int) -> float:
        """The share of the steps, of `depth`, at which tiles of `m` rows meet something."""
        tiles, inner = self.tiles(m), self.k // self.count
        if len(tiles) > MOST_TILES:
            return math.inf
        starts = range(0, self.k, depth)
        lives = (
            np.mean(tiles & _bits(k // inner, min((k + depth - 1) // inner, self.count - 1)) != 0)
            for k in starts
        )
        return float(sum(lives)) / len(starts)


def _bits(low: int, high: int) -> np.uint32:
    return np.uint32((1 << high + 1) - (1 << low))


def problems_by_taps(nest: Nest, body: Graph) -> list[tuple[Problem, Taps]]:
    """The contraction with its rows in an order by the taps that they meet: by all that decides
    them, or by their remainders, or those and the lines of pixels, so that pixels whose taps read
    the same lie together. None where it has no such order, or where nearly all products exist."""
    channels_last = nest.a.type.layout != ROW_MAJOR
    if nest.sections is not None or not channels_last or not nest.a.borders:
        return []
    if nest.flops > MOST_PRODUCTS * 2 * nest.extents(range(len(nest.axes))):
        return []
    nest, limits, remainders = _by_remainders(nest)
    tests = [b for b in nest.a.borders if any(nest.axes[i].kept for i in b.axes)]
    pixels = [i for i in nest.kept if any(i in b.axes for b in tests) and i not in remainders]
    orders = dict.fromkeys((*remainders, *pixels[:count]) for count in (len(pixels), 1, 0))
    found = (_ordered(nest, body, limits, first, tests) for first in orders if first)
    return [each for each in found if each is not None]


def _ordered(
    nest: Nest,
    body: Graph,
    limits: tuple[Border, ...],
    first: tuple[int, ...],
    tests: Sequence[Border],
) -> tuple[Problem, Taps] | None:
    """The contraction whose rows have the axes `first` as the slowest, and what they meet."""
    problem = make_problem(nest, body, limits, first)
    if problem.a.read.input != nest.a.input or problem.nest.extents(problem.rows) > MOST_ROWS:
        return None
    depth = [i for i in problem.depth if nest.axes[i].extent > 1]
    taps = tuple(i for i in depth if any(i in b.axes for b in tests))
    count = problem.nest.extents(taps)
    if any(not b.axes <= {*problem.rows, *taps} for b in tests):
        return None
    if taps != tuple(depth[: len(taps)]) or count > MOST_TAPS:
        return None
    return problem, Taps(count, problem.sizes[3], _met(problem, tests, taps))


def _by_remainders(nest: Nest) -> tuple[Nest, tuple[Border, ...], list[int]]:
    """`nest` with axes cut whose remainder by a border's divisor decides which taps they meet; the
    limits of those that have got longer; and the axes of the remainders."""
    limits: list[Border] = []
    remainders: list[int] = []
    while (found := _undecided(nest, remainders)) is not None:
        axis, size = found
        name, extent = nest.axes[axis].name, nest.axes[axis].extent
        cut = (Axis(f"{name}_apart", -(-extent // size), True), Axis(name, size, True))
        nest = cut_axis(nest, axis, cut)
        remainders = [r + (r > axis) for r in remainders] + [axis + 1]
        limits = [_moved(b, axis) for b in limits]
        if extent % size:
            pair = {axis: size, axis + 1: 1}
            factors = tuple(pair.get(i, 0) for i in range(len(nest.axes)))
            limits.append(Border(factors, 0, extent))
    return nest, tuple(limits), remainders


def _undecided(nest: Nest, remainders: Sequence[int]) -> tuple[int, int] | None:
    """A kept axis, beside those of remainders, whose index changes the remainder of a border, and
    after how many steps that comes back."""
    for border in nest.a.borders:
        for axis in nest.kept:
            factor = border.coefficients[axis]
            if factor % border.divisor and axis not in remainders and nest.axes[axis].extent > 1:
                return axis, border.divisor // math.gcd(factor, border.divisor)
    return None


def _moved(border: Border, axis: int) -> Border:
    """A border that has nothing to do with `axis`, which has been cut in two."""
    factors = border.coefficients
    return Border((*factors[:axis], 0, *factors[axis:]), border.offset, border.extent)


def _met(problem: Problem, borders: Sequence[Border], taps: Sequence[int]) -> Array:
    """The bits of the taps that each row meets."""
    nest = problem.nest

    def values(border: Border, axes: Sequence[int]) -> Array:
        if not axes:
            return np.zeros(1, np.int32)
        extents = [nest.axes[i].extent for i in axes]
        indices = np.indices(extents, np.int32).reshape(len(axes), -1)
        factors = np.array([border.coefficients[i] for i in axes], np.int32)
        total: Array = factors @ indices
        return total

    rows = nest.extents(problem.rows)
    met = np.ones((rows, nest.extents(taps)), bool)
    for border in borders:
        at = values(border, problem.rows)[:, None] + values(border, taps)[None] + border.offset
        met &= (at >= 0) & (at < border.extent * border.divisor) & (at % border.divisor == 0)
    bits: Array = met @ (np.uint32(1) << np.arange(met.shape[1], dtype=np.uint32))
    return bits.astype(np.uint32)
