"""What the proof of loops asks of two ranges, beside looking at every iteration."""

from __future__ import annotations

import random

import numpy as np
import pytest

from graphc.runtime.plan.plan import Move, Range
from graphc.runtime.proof.track import Track


def some_track(dice: random.Random, count: int) -> Track:
    move = Move(8 * dice.randint(-3, 3), dice.choice([1, 2, count]))
    begin = dice.randrange(count)
    start, size = 8 * dice.randrange(16), dice.choice([4, 8, 24])
    place = Range("work", start, start + size, "v", (move,))
    return Track(place, 0, count, begin, dice.randint(begin + 1, count))


def touched(track: Track, iteration: int) -> set[int]:
    """Its bytes in one iteration."""
    start = int(track.starts[iteration])
    return set(range(start, start + track.size))


@pytest.mark.parametrize("seed", range(300))
def test_ranges_meet_where_some_iteration_says_so(seed: int) -> None:
    dice = random.Random(seed)
    count = dice.randint(1, 7)
    a, b = some_track(dice, count), some_track(dice, count)
    both = range(max(a.begin, b.begin), min(a.end, b.end))
    assert a.meets(b) == any(touched(a, t) & touched(b, t) for t in both)

    many, size = dice.randint(1, 4), dice.choice([4, 8, 24])
    starts, first, last = (
        np.array([n * dice.randrange(limit) for _ in range(many)], np.int64)
        for n, limit in ((8, 16), (1, count), (1, count))
    )
    assert a.crosses(starts, size, first, last) == any(
        touched(a, t) & set(range(start, start + size))
        for start, begin, end in zip(starts, first, last, strict=True)
        for t in range(max(begin, a.begin), min(end + 1, a.end))
    )


@pytest.mark.parametrize("seed", range(50))
def test_a_range_covers_what_it_touches_in_each_of_its_iterations_alone(seed: int) -> None:
    dice = random.Random(seed)
    track = some_track(dice, 7)
    for begin in range(-1, 8):
        for end in range(max(begin, 0) + 1, 8):
            at = track.place.start + np.array(
                [t % track.move.period * track.move.stride for t in range(begin, end)], np.int64
            )
            wanted = track.begin <= begin and end <= track.end
            assert track.covers(track, at, begin) == wanted
            if wanted:
                at[dice.randrange(len(at))] += 4
                assert not track.covers(track, at, begin)
