"""Allocate each work buffer in the arena.

Two buffers may share bytes if every use of one ends before the first use of the other. This gives a
conflict graph, on one stream an interval graph. With several streams, streams and dependencies
order the uses; so do estimated times, for tasks that should have ended long before. Where the
packing relies on the latter, the order becomes a dependency and gets an event. An output that may
overwrite a dying input of its task shares one buffer with it.

`packing.py` then computes the offsets.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from graphc.base.bits import bits
from graphc.runtime.planner.memory.packing import BRIEF, Flags, pack
from graphc.runtime.planner.serial_order import overwrites
from graphc.runtime.planner.tasks import Tasks

Bytes = np.ndarray[Any, np.dtype[np.uint8]]
"""An array of bytes."""


@dataclass(frozen=True)
class Packing:
    """The start of each work buffer and the end of the last, in aligned bytes."""

    starts: Mapping[int, int]
    """The byte offset of each work buffer, by number."""
    peak_bytes: int
    """The end of the last buffer."""


def plan_memory(
    tasks: Tasks, order: Sequence[int], before: Sequence[int], bound: int, work: int = BRIEF
) -> Packing:
    """Place the work buffers.

    `before` has, for each task, a bit set of all tasks ordered before it. The search does `work`
    comparisons and stops at `bound` bytes.
    """
    uses, merged = share_in_place(tasks, order, before)
    buffers = list(uses)
    conflicts = conflicting(tasks, [uses[b] for b in buffers], buffers, before)
    starts = pack([tasks.buffers[b].aligned_bytes for b in buffers], conflicts, bound, work)
    placed = dict(zip(buffers, starts, strict=True))
    for buffer, into in merged.items():
        placed[buffer] = placed[into]
    peak = max((placed[b] + tasks.buffers[b].aligned_bytes for b in buffers), default=0)
    empty = {
        b: 0
        for b, buffer in enumerate(tasks.buffers)
        if buffer.segment == "work" and b not in placed
    }
    return Packing(placed | empty, peak)


def share_in_place(
    tasks: Tasks, order: Sequence[int], before: Sequence[int]
) -> tuple[dict[int, int], dict[int, int]]:
    """(uses, merged): the tasks that touch each buffer, as bit sets, with outputs overwriting dying
    inputs where they may; and for each merged buffer the one that it became part of."""
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


def conflicting(
    tasks: Tasks, uses: Sequence[int], buffers: Sequence[int], before: Sequence[int]
) -> Flags:
    """For each pair of `buffers`, whether they must not overlap: neither is dead before the other
    is first written."""
    writer, size = tasks.first_writers(), len(tasks.tasks) // 8 + 1
    masks = b"".join(before[writer[b]].to_bytes(size, "little") for b in buffers)
    # A row for each task: the buffers before whose first writing it has ended, as bits.
    done = _transposed(np.frombuffer(masks, np.uint8).reshape(len(buffers), size))
    ended = np.full((len(buffers), done.shape[1]), 255, np.uint8)
    for row, mask in zip(ended, uses, strict=True):
        for task in bits(mask):
            row &= done[task]
    apart = ended | _transposed(ended)[: len(buffers)]
    conflicts: Flags = np.unpackbits(~apart, axis=1, count=len(buffers), bitorder="little").view(
        np.bool_
    )
    np.fill_diagonal(conflicts, False)
    return conflicts


def _transposed(packed: Bytes) -> Bytes:
    """A packed bit matrix, eight columns per byte, transposed. Each 8 x 8 block is a 64-bit number
    whose halves, quarters and eighths are swapped (Warren, Hacker's Delight, 2012, 7-3)."""
    rows, size = -(-len(packed) // 8), packed.shape[1]
    padded = np.zeros((rows * 8, size), np.uint8)
    padded[: len(packed)] = packed
    blocks = np.ascontiguousarray(padded.reshape(rows, 8, size).transpose(2, 0, 1)).view("<u8")
    for shift, mask in ((7, 0x00AA00AA00AA00AA), (14, 0x0000CCCC0000CCCC), (28, 0xF0F0F0F0)):
        moving = (blocks ^ blocks >> np.uint64(shift)) & np.uint64(mask)
        blocks ^= moving ^ moving << np.uint64(shift)
    turned = blocks.view(np.uint8).reshape(size, rows, 8).transpose(0, 2, 1)
    return np.ascontiguousarray(turned).reshape(size * 8, rows)


def reuse_edges(tasks: Tasks, starts: Mapping[int, int], order: Sequence[int]) -> list[int]:
    """For each task, a bit set of the tasks that must end before it because it first writes bytes
    that they last used. `order` is the issue order."""
    uses, writer = tasks.work_uses(), tasks.first_writers()
    place = {i: n for n, i in enumerate(order)}
    spans = {b: (starts[b], starts[b] + tasks.buffers[b].nbytes) for b in uses}
    cuts = {
        cut: n for n, cut in enumerate(sorted({cut for span in spans.values() for cut in span}))
    }
    owner = np.full(len(cuts), -1)
    edges = [0] * len(tasks.tasks)
    for new in sorted(uses, key=lambda b: place[writer[b]]):
        span = slice(*(cuts[cut] for cut in spans[new]))
        for old in set(owner[span].tolist()) - {-1}:
            edges[writer[new]] |= uses[old] & ~(1 << writer[new])
        owner[span] = new
    return edges


def lower_bound(tasks: Tasks, order: Sequence[int], before: Sequence[int]) -> int:
    """The most bytes live at once when the tasks run serially in `order`."""
    uses, _ = share_in_place(tasks, order, before)
    place = {i: n for n, i in enumerate(order)}
    change = [0] * (len(order) + 1)
    for buffer, users in uses.items():
        places = [place[i] for i in bits(users)]
        change[min(places)] += tasks.buffers[buffer].least_aligned_bytes
        change[max(places) + 1] -= tasks.buffers[buffer].least_aligned_bytes
    live = peak = 0
    for step in change:
        live += step
        peak = max(peak, live)
    return peak
