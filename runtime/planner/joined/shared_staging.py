"""Choose the loops of a joined launch that keep their blocks' rows in shared memory, and what they
keep.

The text of such a loop is that of `kernels/cuda/joined/shared_staging.py`.

Where blocks own rows (`block_partition.py`), nobody but the block itself touches its share of what
the loop writes. So what a part writes may be read from shared memory by the next part, or in the
next iteration, and go to memory meanwhile; and what none has written may come from memory an
iteration ahead. The loop is gone through once, iteration by iteration, to see which part wrote last
what each argument reads, and which writes are not written over.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from graphc.kernels.program.joined import (
    MOST_WHOLE,
    SIXTEEN,
    StagedLine,
    StagedPlace,
    StagedRows,
    StagingTime,
)
from graphc.runtime.plan.plan import STILL, Launch, Move, Plan, Range
from graphc.runtime.planner.joined.block_partition import hull

Key = tuple[int, int]
"""A part, and one of its arguments."""
Source = tuple[int, Key]
"""How many iterations ago something was written, and as what."""


@dataclass(frozen=True)
class _Share:
    """What each block has of an argument, `nbytes`, which the part `writes` or reads."""

    place: Range
    nbytes: int
    writes: bool

    @property
    def move(self) -> Move:
        return self.place.moves[0] if self.place.moves else STILL

    @property
    def step(self) -> int:
        """Bytes from one iteration to the next."""
        return self.move.stride if self.move.period > 1 else 0

    def at(self, t: int) -> tuple[str, int]:
        """Where the argument begins in iteration t."""
        return self.place.segment, self.place.start + self.move.at(t)

    def goes(self, count: int) -> bool:
        """Whether it is whole sixteens, and goes on by the same step in all iterations."""
        even = not self.step or self.move.period >= count
        return even and not any(x % SIXTEEN for x in (self.place.start, self.step, self.nbytes))


def staged_rows(
    plan: Plan, steps: Sequence[Launch], count: int, number: Callable[[Range], int]
) -> StagedRows | None:
    """How the rows of the arguments of `steps`, which a loop of owned rows plays `count` times, lie
    in shared memory; None if what they hand on cannot, or there is not enough. `number` gives that
    of an argument of the joined launch."""
    launches = [x for step in steps for x in plan.kernels[step.kernel].joined]
    grids = {launch.grid for launch in launches}
    if len(grids) > 1 or len(launches) > len(steps) or any(x.patches for x in launches):
        return None
    ((blocks, *_),) = grids
    shares = {
        (part, i): _Share(place, (place.stop - place.start) // blocks, i >= len(step.reads))
        for part, (step, launch) in enumerate(zip(steps, launches, strict=True))
        for i, place in enumerate(step.arguments)
        if i in launch.owned
    }
    lines = _StagedLines(shares, count, number)
    if not all(lines.written(key) for key, share in shares.items() if share.writes):
        return None
    if not all(lines.read(key) for key, share in shares.items() if not share.writes):
        return None
    for part, (step, launch) in enumerate(zip(steps, launches, strict=True)):
        for i, place in enumerate(step.reads):
            if i not in launch.owned and is_constant(place, steps):
                lines.whole((part, i), place)
    places = tuple(
        tuple(lines.places.get((part, i)) for i in range(len(step.arguments)))
        for part, step in enumerate(steps)
    )
    near = StagedRows(blocks, tuple(lines.lines), places)
    return near if near.fits else None


def is_constant(place: Range, steps: Sequence[Launch]) -> bool:
    """Whether an argument is small, and none of the steps moves or changes it."""
    size = place.stop - place.start
    small = size <= MOST_WHOLE and size % SIXTEEN == 0 == place.start % SIXTEEN
    still = all(move.stride == 0 for move in place.moves)
    written = (hull(write) for step in steps for write in step.writes)
    return small and still and not any(place.overlaps(write) for write in written)


class _StagedLines:
    """The lines of shares, and where parts find them."""

    def __init__(
        self, shares: Mapping[Key, _Share], count: int, number: Callable[[Range], int]
    ) -> None:
        self.shares, self.count, self.number = shares, count, number
        self.lines: list[StagedLine] = []
        self.places: dict[Key, StagedPlace] = {}
        self.sources: dict[Key, list[Source | None]] = defaultdict(list)
        """By iteration."""
        self.stays: dict[Key, set[int]] = defaultdict(set)
        """The iterations whose writes nothing writes over."""
        self.end = 0
        last: dict[tuple[str, int], tuple[int, Key]] = {}
        for t in range(count):
            for key, share in shares.items():  # of each part what is read before what is written
                if share.writes:
                    last[share.at(t)] = t, key
                else:
                    found = last.get(share.at(t))
                    self.sources[key].append((t - found[0], found[1]) if found else None)
        for t, key in last.values():
            self.stays[key].add(t)

    def written(self, key: Key) -> bool:
        """Whether what is written so can lie in a line, which it then does."""
        share, stays = self.shares[key], self.stays[key]
        always = stays == {*range(self.count)}
        at_last = stays <= {self.count - 1} and not share.step
        if not share.goes(self.count) or not (always or at_last):
            return False
        self.places[key] = StagedPlace(self.slot(share), share.nbytes)
        if stays:
            self.line(StagingTime.BEHIND if always else StagingTime.AFTER, key)
        return True

    def read(self, key: Key) -> bool:
        """Whether what is read so lies in a line, or can be read where it is."""
        share, (first, *others) = self.shares[key], self.sources[key]
        source = others[0] if others else first
        late = first is None and source is not None
        if any(each != source for each in others) or (source and source[0] != late):
            return False
        if source is None:
            if share.goes(self.count):
                self.places[key] = StagedPlace(self.slot(share), share.nbytes)
                self.line(StagingTime.AHEAD, key)
        elif share.goes(self.count) and self.shares[source[1]].nbytes == share.nbytes:
            self.places[key] = replace(self.places[source[1]], late=late)
            if late:
                self.line(StagingTime.BEFORE, key)
        else:
            return False
        return True

    def whole(self, key: Key, place: Range) -> None:
        """Let all blocks have an argument whole, before the loop."""
        share = _Share(place, place.stop - place.start, False)
        self.places[key] = StagedPlace(self.slot(share), share.nbytes, whole=True)
        number, slot = self.number(place), self.places[key].slot
        self.lines.append(StagedLine(StagingTime.BEFORE, number, 0, share.nbytes, slot, whole=True))

    def slot(self, share: _Share) -> int:
        """Room for two of them."""
        self.end += 2 * share.nbytes
        return self.end - 2 * share.nbytes

    def line(self, moves: StagingTime, key: Key) -> None:
        share, slot = self.shares[key], self.places[key].slot
        line = StagedLine(moves, self.number(share.place), share.step, share.nbytes, slot)
        self.lines.append(line)
