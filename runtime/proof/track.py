"""A range of a loop's body in all iterations at once, and what two of them have to do with each
other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from graphc.runtime.plan.plan import STILL, Move, Range

Times = np.ndarray[Any, np.dtype[np.int64]]
Flags = np.ndarray[Any, np.dtype[np.bool_]]


@dataclass(frozen=True)
class Track:
    """A range in the iterations `begin` to `end` (exclusive) of the `count` ones of a loop that is
    inside `depth` others."""

    place: Range
    depth: int
    count: int
    begin: int
    end: int

    @property
    def size(self) -> int:
        return self.place.stop - self.place.start

    @property
    def outer(self) -> tuple[Move, ...]:
        """How it moves with the loops around."""
        moves = [m if m.stride and m.period > 1 else STILL for m in self.place.moves[: self.depth]]
        return (*moves, *[STILL] * (self.depth - len(moves)))

    @property
    def move(self) -> Move:
        """How it moves with the loop."""
        move = self.place.moves[self.depth] if len(self.place.moves) > self.depth else STILL
        return move if move.stride and move.period > 1 and self.count > 1 else STILL

    @cached_property
    def starts(self) -> Times:
        """The first byte in each of all iterations, in the first one of the loops around."""
        times = np.arange(self.count, dtype=np.int64)
        return self.place.start + times % self.move.period * self.move.stride

    @cached_property
    def times(self) -> Times:
        """The iterations in which it is used."""
        return np.arange(self.begin, self.end, dtype=np.int64)

    @cached_property
    def at(self) -> Times:
        """The first byte in each of those."""
        return self.starts[self.begin : self.end]

    @cached_property
    def hull(self) -> tuple[int, int]:
        """From the first byte in any iteration to the last."""
        return int(self.at.min()), int(self.at.max()) + self.size

    def may_meet(self, other: Track) -> bool:
        """Whether the two could meet in some iterations."""
        (a, b), (c, d) = self.hull, other.hull
        return self.place.segment == other.place.segment and a < d and c < b

    def meets(self, other: Track) -> bool:
        """Whether the two touch a byte in one and the same iteration."""
        if not self.may_meet(other):
            return False
        begin, end = max(self.begin, other.begin), min(self.end, other.end)
        apart = self.starts[begin:end] - other.starts[begin:end]
        return bool(((apart < other.size) & (-apart < self.size)).any())

    def covers(self, track: Track, at: Times, begin: int) -> bool:
        """Whether it lies at `at`, as many bytes as `track`, in as many iterations from `begin`."""
        end = begin + len(at)
        return (
            self.place.segment == track.place.segment
            and self.size == track.size
            and self.outer == track.outer
            and self.begin <= begin
            and end <= self.end
            and bool((self.starts[begin:end] == at).all())
        )

    def crosses(self, starts: Times, size: int, first: Times, last: Times) -> bool:
        """Whether for some k it touches bytes `starts[k]` to `starts[k] + size` of its segment in
        an iteration from `first[k]` to `last[k]`."""
        at, move = self.place.start, self.move
        first, last = np.maximum(first, self.begin), np.minimum(last, self.end - 1)
        if move.period == self.count and move.stride:
            step, lower, upper = move.stride, starts - self.size - at, starts + size - at
            if step < 0:
                step, lower, upper = -step, -upper, -lower
            begin, end = lower // step + 1, -(-upper // step) - 1
            return bool((np.maximum(first, begin) <= np.minimum(last, end)).any())
        for phase in range(move.period):
            apart = at + phase * move.stride - starts
            there = (apart < size) & (-apart < self.size)
            begin = first + (phase - first) % move.period
            if (there & (begin <= last)).any():
                return True
        return False


def is_within(track: Track, whole: Track) -> bool:
    (a, b), (c, d) = track.hull, whole.hull
    same = track.place.segment == whole.place.segment and track.outer == whole.outer
    return same and c <= a and b <= d


def same_place(whole: Track, track: Track, start: int) -> bool:
    """Whether the still range `whole` begins at `start`, where `track` does in one iteration."""
    return (
        whole.place.segment == track.place.segment
        and whole.outer == track.outer
        and whole.place.start == start
        and whole.size == track.size
    )


def could_meet(a: Track, b: Track, around: Sequence[int]) -> bool:
    """Whether two ranges meet in some iterations of the loops around and of their own."""
    if a.place.segment != b.place.segment:
        return False
    apart = np.zeros(1, np.int64)
    for one, other, count in zip(a.outer, b.outer, around, strict=True):
        times = np.arange(count, dtype=np.int64)
        moved = times % one.period * one.stride - times % other.period * other.stride
        apart = np.unique(apart[:, None] + np.unique(moved)[None, :])
    (low, high), (other_low, other_high) = a.hull, b.hull
    return bool(((low + apart < other_high) & (other_low < high + apart)).any())
