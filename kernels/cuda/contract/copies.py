"""Estimate the bytes that a tile's copies bring from the second-level cache: copies by way of L1
find there what another copy of the tile has read not long before."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from graphc.kernels.cuda.contract.access import UNTESTED, Factor, OperandAccess, position
from graphc.kernels.cuda.contract.contract import Problem
from graphc.kernels.cuda.contract.tiles.tensor_tiles import GeneralTile, room_in_l1
from graphc.kernels.cuda.shared.gpu_model import GPU
from graphc.ops.base import Array

TILES = 4
"""Of all tiles so many are looked at."""
WINDOW = 128
"""Of k: how many of its indices, or runs of them, are looked at."""
NEAR = 64
"""As `WINDOW`, where copies are not along k: what two steps read again L1 is to hold."""
PAIRS = 32
"""Of neighbouring indices of k, or runs, so many are looked at: of two taps L1 is to hold all."""
AT_ONCE = 16
"""Bytes of a copy that need not pass through L1."""


@dataclass(frozen=True)
class Copies:
    """Called with a tile: the bytes of a step that come from the second-level cache. What it has
    found out of an operand is remembered by the tile's width there."""

    problem: Problem
    _found: dict[tuple[bool, int], tuple[float, float, int]] = field(default_factory=dict)

    def __call__(self, tile: GeneralTile) -> float:
        problem, total = self.problem, 0.0
        for access, width in ((problem.a, tile.m), (problem.b, tile.n)):
            size = access.read.type.numpy_dtype.itemsize
            key = access is problem.a, width
            if key not in self._found:
                self._found[key] = _shares(access, width)
            every, first, held = self._found[key]
            share = first if held <= room_in_l1(tile, size) else every
            together = 1 if access is problem.a else tile.cluster
            total += share * width * tile.k * size / together
        return total


def _shares(access: OperandAccess, width: int) -> tuple[float, float, int]:
    """Of all bytes that the copies of a tile's steps write those that exist, and those that no copy
    before has read; and how many L1 is to hold so that only the latter are read."""
    size = access.read.type.numpy_dtype.itemsize
    extent, depth = (_extent(f) for f in (access.outer, access.depth))
    if not extent or not depth:
        return 1, 1, 0
    whole, run = access.vector * size >= AT_ONCE, _run(access)
    together = 1 if access.along_k else access.vector
    steps = WINDOW if access.along_k else NEAR
    k = np.arange(0, min(depth, run * steps), run)
    copies = live_copies = read = held = 0
    for part in range(1, TILES + 1):
        first = (extent - 1) * part // (TILES + 1) // width * width
        outer = np.unique(np.minimum(np.arange(first, first + width), extent - 1))
        places, exist = _places(access, outer[::together], k)
        copies += int(exist.any(axis=0).sum()) * width // together
        live_copies += int(exist.sum())
        grain = 1 if whole else GPU.l2_sector // size
        read += grain * len(np.unique(places[exist] // grain))
        held = max(held, run * size * _of_two(places, exist))
    if not copies:
        return 1, 1, 0
    more = 1.0 if _aligned(access) or not whole else 1 + GPU.l2_sector / GPU.l1_line
    live, distinct = live_copies / copies, read / copies
    if whole and not access.again:
        return more * live, more * live, 0
    if not whole or not access.along_k:
        held = int(size * len(k) * distinct * width)
    return more * live, more * min(distinct, live), held


def _of_two(places: Array, exist: Array) -> int:
    """How many places two neighbouring indices of k have together: of most pairs not more."""
    pairs = (slice(i, i + 2) for i in range(min(places.shape[1] - 1, PAIRS)))
    counts = [len(np.unique(places[:, pair][exist[:, pair]])) for pair in pairs]
    return int(np.median(counts)) if counts else 0


def _aligned(access: OperandAccess) -> bool:
    """Whether what lies side by side begins with a sector wherever it lies: else a line of it
    touches one sector more."""
    factors = (*access.batch, *access.outer, *access.depth)
    strides = [f.stride for f in factors if f.stride != 1]
    step = math.gcd(access.read.offset, *strides) * access.read.type.numpy_dtype.itemsize
    return step % GPU.l2_sector == 0


def _run(access: OperandAccess) -> int:
    """How many elements along k lie side by side, wherever a copy along k begins: of them one
    stands for all."""
    whole = access.vector * access.read.type.numpy_dtype.itemsize >= AT_ONCE
    if not whole or not access.along_k:
        return 1
    factors = (*access.outer, *access.depth[:-1])
    return math.gcd(access.depth[-1].extent, *(f.stride for f in factors))


def _places(access: OperandAccess, outer: Array, k: Array) -> tuple[Array, Array]:
    """Where the elements lie, and whether they exist, for pairs of an outer index and one of k."""
    rows = _sums(access.outer, outer, len(access.borders))
    depths = _sums(access.depth, k, len(access.borders))
    sums = [r[:, None] + d[None] for r, d in zip(rows, depths, strict=True)]
    live = np.ones(sums[0].shape, bool)
    for border, at in zip(access.borders, sums[1:], strict=True):
        at += border.offset
        if border.extent != UNTESTED:
            high = border.extent * border.divisor
            live &= (at >= 0) & (at < high) & (at % border.divisor == 0)
    places = sums[0]
    for quotient in access.read.quotients:
        number = position(quotient.border, access.borders)
        assert number is not None, "the sums of quotients are kept"
        places = places + sums[1 + number] // quotient.border.divisor * quotient.stride
    return places, live


def _sums(factors: Sequence[Factor], index: Array, borders: int) -> list[Array]:
    """The offset of each index, and its part of each border's sum."""
    parts = [index // f.step % f.extent for f in factors]
    offset: Array = sum((p * f.stride for p, f in zip(parts, factors, strict=True)), index * 0)
    found = [offset]
    for number in range(borders):
        terms = (p * f.borders[number] for p, f in zip(parts, factors, strict=True))
        found.append(sum(terms, index * 0))
    return found


def _extent(factors: Sequence[Factor]) -> int:
    return factors[0].extent * factors[0].step if factors else 0
