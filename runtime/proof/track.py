"""Ranges of a loop's body in all iterations at once, and the relations between two of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from graphc.base.cached import cached_property
from graphc.runtime.plan.plan import STILL, Move, Range
from graphc.runtime.proof.shadow import range_text

Times = np.ndarray[Any, np.dtype[np.int64]]
Flags = np.ndarray[Any, np.dtype[np.bool_]]


@dataclass(frozen=True)
class Track:
    """A range in iterations `begin` to `end` (exclusive) of a loop."""

    place: Range
    """The range."""
    depth: int
    """The number of loops around the loop."""
    count: int
    """Iterations of the loop."""
    begin: int
    """The first iteration in which it is used."""
    end: int
    """The iteration after the last."""

    @property
    def size(self) -> int:
        """Bytes of the range."""
        return self.place.stop - self.place.start

    @property
    def outer(self) -> tuple[Move, ...]:
        """Its movement with the enclosing loops."""
        moves = [m if m.stride and m.period > 1 else STILL for m in self.place.moves[: self.depth]]
        return (*moves, *[STILL] * (self.depth - len(moves)))

    @property
    def move(self) -> Move:
        """Its movement with the loop."""
        move = self.place.moves[self.depth] if len(self.place.moves) > self.depth else STILL
        return move if move.stride and move.period > 1 and self.count > 1 else STILL

    @cached_property
    def starts(self) -> Times:
        """The first byte in each iteration of the loop, in the first one of the enclosing loops."""
        times = np.arange(self.count, dtype=np.int64)
        return self.place.start + times % self.move.period * self.move.stride

    @cached_property
    def times(self) -> Times:
        """The iterations in which it is used."""
        return np.arange(self.begin, self.end, dtype=np.int64)

    @cached_property
    def at(self) -> Times:
        """The first byte in each of these."""
        return self.starts[self.begin : self.end]

    @cached_property
    def hull(self) -> tuple[int, int]:
        """The first byte in any iteration, and the end."""
        return int(self.at.min()), int(self.at.max()) + self.size

    def may_meet(self, other: Track) -> bool:
        """Whether the two could share a byte in some iterations, by their hulls."""
        (a, b), (c, d) = self.hull, other.hull
        return self.place.segment == other.place.segment and a < d and c < b

    def meets(self, other: Track) -> bool:
        """Whether the two share a byte in one and the same iteration."""
        if not self.may_meet(other):
            return False
        begin, end = max(self.begin, other.begin), min(self.end, other.end)
        apart = self.starts[begin:end] - other.starts[begin:end]
        return bool(((apart < other.size) & (-apart < self.size)).any())

    def covers(self, track: Track, at: Times, begin: int) -> bool:
        """Whether it covers the bytes at `at`, as many as `track` has, in as many iterations from
        `begin`."""
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


@dataclass(frozen=True)
class Use:
    """A read or write by a step of a loop's body."""

    step: int
    """The step's number in the body."""
    value: str
    """The value's name."""
    track: Track
    """Its bytes in all iterations."""

    @property
    def text(self) -> str:
        """Text such as `h=work+0..1152`, with the range of the first iteration of all loops."""
        return range_text(self.track.place)


def is_within(track: Track, whole: Track) -> bool:
    """Whether all bytes of `track` are within `whole`."""
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
    """Whether two ranges meet in some iterations of the enclosing loops and of their own."""
    if a.place.segment != b.place.segment:
        return False
    apart = np.zeros(1, np.int64)
    for one, other, count in zip(a.outer, b.outer, around, strict=True):
        times = np.arange(count, dtype=np.int64)
        moved = times % one.period * one.stride - times % other.period * other.stride
        apart = np.unique(apart[:, None] + np.unique(moved)[None, :])
    (low, high), (other_low, other_high) = a.hull, b.hull
    return bool(((low + apart < other_high) & (other_low < high + apart)).any())
