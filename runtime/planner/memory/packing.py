"""Choose offsets for buffers in one arena: conflicting buffers do not overlap, and the arena is
small.

This is dynamic storage allocation, which is NP-hard. A packing in which no buffer can move down is
like a pile: each buffer is at 0 or on one that it conflicts with, so the pile can be built from the
bottom. The next buffer is always the one that can be placed lowest, and among equals the one of
first rank. (This is the best fit of Burke, Kendall and Whitwell, 2004, which Sekiyama et al., 2018,
applied to the memory of networks, here for any conflict graph instead of lifetimes on a line; that
a pile can be an optimal packing is the canonical form of MiniMalloc: Moffitt, ASPLOS 2023.)

A few ranks give greedy piles: by the bytes that a buffer conflicts with, by the number of these
buffers, by its size, and by products of these. The search is a local one on ranks, in several rows
at once. Each round gives one or two buffers another rank in every row (a buffer at the top of the
pile, a neighbour of one, or any) and keeps what is not worse; from time to time the best row
replaces the worst. Its effort is counted in work, not in seconds, so that equal buffers always get
equal offsets.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from graphc.ir.state import ALIGNMENT
from graphc.runtime.planner.tasks import aligned

Numbers = np.ndarray[Any, np.dtype[np.int64]]
Flags = np.ndarray[Any, np.dtype[np.bool_]]

BRIEF, LONG = 3_000_000, 400_000_000
"""The work of a brief and a long search in comparisons of buffers, with `STEP` more per step: 30 ms
or 3 seconds of a core."""
STEP = 500
"""Comparisons that a step costs besides those of its buffers."""
ROWS = 8
"""Piles that the search builds at a time: more of them cost less time each, but learn more slowly
from one another."""
EXCHANGE = 50
"""Rounds between replacements of the worst row."""
MANY = 2000
"""The number of buffers beyond which piles are built from lists of neighbours, not from rows of
flags: a step then costs as much as a buffer has conflicts."""
PLACED = np.iinfo(np.int64).max


def pack(sizes: Sequence[int], conflicts: Flags, bound: int, work: int = BRIEF) -> list[int]:
    """Byte offsets at which conflicting buffers do not overlap.

    `sizes` are bytes, multiples of the alignment; `conflicts[a, b]` tells whether a and b must not
    overlap. After the greedy piles, a search of `work` comparisons continues until the arena ends
    at `bound`.
    """
    assert all(size == aligned(size) for size in sizes)
    if not sizes:
        return []
    units = np.array(sizes, np.int64) // ALIGNMENT
    ranks = _greedy_ranks(units, conflicts)
    starts, heights = _greedy_piles(ranks, units, conflicts, bound // ALIGNMENT)
    best = starts[heights.argmin()]
    rounds = work // (ROWS * len(sizes) * (len(sizes) + STEP))
    if heights.min() * ALIGNMENT > bound and rounds:
        best = _search(ranks[heights.argmin()], units, conflicts, bound // ALIGNMENT, rounds)
    return [int(start) * ALIGNMENT for start in best]


def _greedy_piles(
    ranks: Numbers, sizes: Numbers, conflicts: Flags, bound: int
) -> tuple[Numbers, Numbers]:
    """Starts and height of the pile of each row of `ranks`. Stops at a pile that ends at `bound`:
    after the first, or with many buffers after any."""
    if len(sizes) <= MANY:
        starts = _piles(ranks[:1], sizes, conflicts)
        if (starts + sizes).max() > bound:
            starts = _piles(ranks, sizes, conflicts)
    else:
        neighbours = [np.flatnonzero(row) for row in conflicts]
        piles: list[Numbers] = []
        for rank in ranks:
            piles.append(_pile(rank, sizes, neighbours))
            if (piles[-1] + sizes).max() <= bound:
                break
        starts = np.stack(piles)
    return starts, (starts + sizes).max(1)


def _greedy_ranks(sizes: Numbers, conflicts: Flags) -> Numbers:
    """A row of ranks for each rule, from 0 (first)."""
    crowd = sizes + np.broadcast_to(sizes, conflicts.shape).sum(1, where=conflicts)
    degree = conflicts.sum(1)
    rules = np.stack([crowd, degree, sizes, degree * sizes, crowd * sizes])
    return ranks_of(-rules)


def ranks_of(keys: np.ndarray[Any, Any]) -> Numbers:
    """The rank of each key in its row, from 0 (least); equal keys in order."""
    order = np.argsort(keys, axis=1, kind="stable")
    return np.argsort(order, axis=1, kind="stable").astype(np.int64)


def _pile(rank: Numbers, sizes: Numbers, neighbours: Sequence[np.ndarray[Any, Any]]) -> Numbers:
    """As `_piles` for one row, with `neighbours`, the numbers of conflicting buffers, in place of
    rows of flags; for many buffers with few conflicts each."""
    count = len(rank)
    keys, starts = rank.copy(), np.empty_like(rank)
    for _ in range(count):
        chosen = int(keys.argmin())
        starts[chosen] = start = keys[chosen] // count
        near = neighbours[chosen]
        near = near[keys[near] != PLACED]
        keys[near] = np.maximum(keys[near], (start + sizes[chosen]) * count + rank[near])
        keys[chosen] = PLACED
    return starts


def _piles(ranks: Numbers, sizes: Numbers, conflicts: Flags) -> Numbers:
    """Starts [rows, buffers] of the pile of each row of ranks.

    A buffer's key is its least possible start times the number of buffers, plus its rank; the
    buffer with the least key is placed next.
    """
    rows, count = ranks.shape
    each = np.arange(rows)
    keys, starts = ranks.copy(), np.empty_like(ranks)
    for _ in range(count):
        chosen = keys.argmin(1)
        start = keys[each, chosen] // count
        starts[each, chosen] = start
        above = ((start + sizes[chosen]) * count)[:, None] + ranks
        np.maximum(keys, above, out=keys, where=conflicts[chosen])
        keys[each, chosen] = PLACED
    return starts


def _search(rank: Numbers, sizes: Numbers, conflicts: Flags, bound: int, rounds: int) -> Numbers:
    """The lowest pile found from `rank` in `rounds` rounds."""
    dice = np.random.default_rng(0)
    count, each = len(sizes), np.arange(ROWS)
    ranks = np.tile(rank, (ROWS, 1))
    starts = _piles(ranks, sizes, conflicts)
    heights: Numbers = (starts + sizes).max(1)
    rows = ranks, starts, heights
    for turn in range(rounds):
        keys = ranks.astype(np.float64)
        for moved in _movable(starts + sizes, conflicts, dice):
            keys[each, moved] = dice.random(ROWS) * count - 0.5
        tried = ranks_of(keys)
        new_starts = _piles(tried, sizes, conflicts)
        new_heights = (new_starts + sizes).max(1)
        kept = new_heights <= heights
        for row, new in zip(rows, (tried, new_starts, new_heights), strict=True):
            row[kept] = new[kept]
        if heights.min() <= bound:
            break
        if turn % EXCHANGE == EXCHANGE - 1:
            worst, best = np.argmax(heights), np.argmin(heights)
            for row in rows:
                row[worst] = row[best]
    lowest: Numbers = starts[np.argmin(heights)]
    return lowest


def _movable(tops: Numbers, conflicts: Flags, dice: np.random.Generator) -> tuple[Numbers, Numbers]:
    """Two buffers for each row: one at the top, or one that conflicts with it, or any; and any."""
    order = np.asarray(dice.random(tops.shape))
    highest = np.where(tops == tops.max(1)[:, None], order, -1.0).argmax(1)
    beside = np.where(conflicts[highest], order, -1.0).argmax(1)
    first = np.choose(dice.integers(3, size=ROWS), (highest, beside, order.argmin(1)))
    return first, np.where(dice.random(ROWS) < 0.3, order.argmax(1), first)
