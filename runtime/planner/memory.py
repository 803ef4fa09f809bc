"""Where each work buffer lies in the arena.

Two buffers may share bytes if every use of one ends before the first use of the other: a conflict
graph, which on one stream is one of intervals. With several streams the order is that of streams
and dependencies, and besides of tasks that by their estimated times will have ended anyway: such
an order, where the packing relies on it, becomes a dependency and gets an event.
An output that may overwrite a dying input of its task becomes one buffer with it.

Packing is NP-hard. Buffers are placed one by one into the gap between placed conflicting buffers
that they fill best, or the lowest. The sequence decides: by size, by conflicts, by both; then a
local search moves the buffers at the top of the arena, and what they conflict with, forward in
the sequence for a fixed number of tries, with a fixed seed. It stops at the lower bound.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from graphc.runtime.planner.order import overwrites
from graphc.runtime.planner.tasks import Tasks, aligned, bits

SEARCH = 2_000_000
"""Buffers and conflicts that the local search may look at: a third of a second."""
TRIES = 1000
"""Packings that it may try."""


@dataclass(frozen=True)
class Packing:
    """The start of each work buffer and the end of the last, in bytes, with alignment."""

    starts: Mapping[int, int]
    peak_bytes: int


def plan_memory(tasks: Tasks, order: Sequence[int], before: Sequence[int], bound: int) -> Packing:
    """Place the work buffers. `before` has all that comes before each task, in any way, as bits;
    no search goes on below `bound` bytes."""
    uses, merged = share_in_place(tasks, order, before)
    writer = tasks.first_writers()
    buffers = list(uses)
    conflicts = [set[int]() for _ in buffers]
    for a, old in enumerate(buffers):
        for b, new in enumerate(buffers[:a]):
            apart = not uses[old] & ~before[writer[new]]
            apart = apart or not uses[new] & ~before[writer[old]]
            if not apart:
                conflicts[a].add(b)
                conflicts[b].add(a)
    starts = pack([tasks.buffers[b].room for b in buffers], conflicts, bound)
    placed = dict(zip(buffers, starts, strict=True))
    for buffer, into in merged.items():
        placed[buffer] = placed[into]
    peak = max((placed[b] + tasks.buffers[b].room for b in buffers), default=0)
    empty = {
        b: 0
        for b, buffer in enumerate(tasks.buffers)
        if buffer.segment == "work" and b not in placed
    }
    return Packing(placed | empty, peak)


def share_in_place(
    tasks: Tasks, order: Sequence[int], before: Sequence[int]
) -> tuple[dict[int, int], dict[int, int]]:
    """(uses, merged): the tasks that touch each buffer, as bits, when outputs overwrite dying
    inputs where they may; and for each buffer that went into another, which."""
    uses = tasks.work_uses()
    merged: dict[int, int] = {}
    for i in order:
        done = before[i] | 1 << i

        def last_use(buffer: int, done: int = done) -> bool:
            return not uses[merged.get(buffer, buffer)] & ~done

        for old, new in overwrites(tasks, i, last_use):
            into = merged[new] = merged.get(old, old)
            uses[into] |= uses.pop(new)
    return uses, merged


def reuse_edges(tasks: Tasks, starts: Mapping[int, int], before: Sequence[int]) -> list[int]:
    """For each task those that must end before it, as bits, because it is the first to write
    bytes that they use. `before` is what the packing relied on."""
    uses = tasks.work_uses()
    writer = tasks.first_writers()
    spans = sorted((starts[b], starts[b] + tasks.buffers[b].nbytes, b) for b in uses)
    edges = [0] * len(tasks.tasks)
    for n, (_, stop, a) in enumerate(spans):
        for start, _, b in spans[n + 1 :]:
            if start >= stop:
                break
            for old, new in ((a, b), (b, a)):
                own = 1 << writer[new]
                if not uses[old] & ~(before[writer[new]] | own):
                    edges[writer[new]] |= uses[old] & ~own
    return edges


def lower_bound(tasks: Tasks, order: Sequence[int], before: Sequence[int]) -> int:
    """The most bytes live at once when the tasks run in `order`, one after another."""
    uses, _ = share_in_place(tasks, order, before)
    place = {i: n for n, i in enumerate(order)}
    change = [0] * (len(order) + 1)
    for buffer, users in uses.items():
        places = [place[i] for i in bits(users)]
        change[min(places)] += tasks.buffers[buffer].least_room
        change[max(places) + 1] -= tasks.buffers[buffer].least_room
    live = peak = 0
    for step in change:
        live += step
        peak = max(peak, live)
    return peak


def pack(sizes: Sequence[int], conflicts: Sequence[set[int]], bound: int) -> list[int]:
    """Starts such that conflicting buffers lie apart; the arena is as small as the search finds.

    `sizes` are bytes, multiples of the alignment; `conflicts[b]` are the buffers that b must not
    overlap.
    """
    count = len(sizes)
    assert all(size == aligned(size) for size in sizes)
    crowd = [sizes[b] + sum(sizes[c] for c in conflicts[b]) for b in range(count)]
    sequences = [
        sorted(range(count), key=lambda b: (-sizes[b], -crowd[b], b)),
        sorted(range(count), key=lambda b: (-crowd[b], -sizes[b], b)),
        sorted(range(count), key=lambda b: (-crowd[b] * sizes[b], b)),
        sorted(range(count), key=lambda b: (-len(conflicts[b]) * sizes[b], b)),
    ]
    tries = [(sequence, best_fit) for sequence in sequences for best_fit in (True, False)]
    best: list[int] = []
    best_top, best_try = -1, tries[0]
    for sequence, best_fit in tries:
        starts = _place(sequence, sizes, conflicts, best_fit)
        top = _top(starts, sizes)
        if best_top < 0 or top < best_top:
            best, best_top, best_try = starts, top, (sequence, best_fit)
    if best_top > bound:
        best = _search(best, *best_try, sizes, conflicts, bound)
    return best


def _search(
    best: list[int],
    sequence: list[int],
    best_fit: bool,
    sizes: Sequence[int],
    conflicts: Sequence[set[int]],
    bound: int,
) -> list[int]:
    """Move a buffer at the top, or one that it conflicts with, to an earlier place."""
    dice = random.Random(0)
    work_per_try = len(sizes) + sum(map(len, conflicts))
    current = best_top = _top(best, sizes)
    starts = best
    for _ in range(min(TRIES, SEARCH // work_per_try)):
        tops = [b for b in sequence if starts[b] + sizes[b] == current]
        buffer = dice.choice(tops)
        if dice.random() < 0.5 and conflicts[buffer]:
            buffer = dice.choice(sorted(conflicts[buffer]))
        place = sequence.index(buffer)
        moved = sequence[:place] + sequence[place + 1 :]
        moved.insert(dice.randint(0, place), buffer)
        new_starts = _place(moved, sizes, conflicts, best_fit)
        top = _top(new_starts, sizes)
        if top > current:
            continue
        sequence, starts, current = moved, new_starts, top
        if top < best_top:
            best, best_top = new_starts, top
        if best_top <= bound:
            break
    return best


def _place(
    sequence: Sequence[int], sizes: Sequence[int], conflicts: Sequence[set[int]], best_fit: bool
) -> list[int]:
    """Starts when each buffer of `sequence` takes the smallest gap that holds it (the lowest one
    if not `best_fit`), else the lowest place above its conflicts."""
    starts = [-1] * len(sizes)
    for buffer in sequence:
        size = sizes[buffer]
        taken = sorted(
            (starts[c], starts[c] + sizes[c]) for c in conflicts[buffer] if starts[c] >= 0
        )
        end, chosen, slack = 0, -1, -1
        for start, stop in taken:
            gap = start - end - size
            if gap >= 0 and (slack < 0 or gap < slack):
                chosen, slack = end, gap
                if not best_fit or not gap:
                    break
            end = max(end, stop)
        starts[buffer] = chosen if slack >= 0 else end
    return starts


def _top(starts: Sequence[int], sizes: Sequence[int]) -> int:
    return max((start + size for start, size in zip(starts, sizes, strict=True)), default=0)
