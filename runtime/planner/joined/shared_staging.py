"""Choose the loops of a joined launch that keep their blocks' rows in shared memory, and which
rows.

`kernels/cuda/joined/shared_staging.py` prints such a loop.

Where blocks own rows (`block_partition.py`), only the block itself touches its share of what the
loop writes. So the next part, or the next iteration, may read what a part wrote from shared memory
while it is stored to memory, and what no part writes may be loaded an iteration ahead. The loop is
simulated once, iteration by iteration, to find which part last wrote what each argument reads, and
which writes are not overwritten.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from graphc.kernels.program.joined import (
    MOST_WHOLE,
    VECTOR_BYTES,
    StagedLine,
    StagedPlace,
    StagedRows,
    StagingTime,
)
from graphc.runtime.plan.plan import STILL, Launch, Move, Plan, Range
from graphc.runtime.planner.joined.block_partition import hull

Key = tuple[int, int]
"""The number of a part and of one of its arguments."""
Source = tuple[int, Key]
"""How many iterations ago a value was written, and by which argument."""


@dataclass(frozen=True)
class _Share:
    """A block's share of an argument."""

    place: Range
    nbytes: int
    """Bytes of the share."""
    writes: bool
    """Whether the part writes it."""

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

    def is_uniform(self, count: int) -> bool:
        """Whether it is whole vectors and advances by the same step in all iterations."""
        even = not self.step or self.move.period >= count
        return even and not any(
            x % VECTOR_BYTES for x in (self.place.start, self.step, self.nbytes)
        )


def staged_rows(
    plan: Plan, steps: Sequence[Launch], count: int, number: Callable[[Range], int]
) -> StagedRows | None:
    """How shared memory holds the rows of `steps`, which a loop of owned rows runs `count` times.

    None if the values that iterations hand on cannot be staged or do not fit. `number` gives the
    joined launch's argument for a range.
    """
    launches = [x for step in steps for x in plan.kernels[step.kernel].joined_launches]
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
    writes = [key for key, share in shares.items() if share.writes]
    reads = [key for key, share in shares.items() if not share.writes]
    if not all(map(lines.can_stage_write, writes)) or not all(map(lines.can_read, reads)):
        return None
    for key in writes:
        lines.stage_write(key)
    for key in reads:
        lines.stage_read(key)
    for part, (step, launch) in enumerate(zip(steps, launches, strict=True)):
        for i, place in enumerate(step.reads):
            if i not in launch.owned and is_constant(place, steps):
                lines.replicate((part, i), place)
    places = tuple(
        tuple(lines.places.get((part, i)) for i in range(len(step.arguments)))
        for part, step in enumerate(steps)
    )
    near = StagedRows(blocks, tuple(lines.lines), places)
    return near if near.fits else None


def is_constant(place: Range, steps: Sequence[Launch]) -> bool:
    """Whether an argument is small and no step moves or changes it."""
    size = place.stop - place.start
    small = size <= MOST_WHOLE and size % VECTOR_BYTES == 0 == place.start % VECTOR_BYTES
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
        """The source of each read, by iteration."""
        self.stays: dict[Key, set[int]] = defaultdict(set)
        """The iterations whose writes are not overwritten."""
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

    def can_stage_write(self, key: Key) -> bool:
        """Whether a line can hold what a part writes to an argument."""
        share, stays = self.shares[key], self.stays[key]
        at_last = stays <= {self.count - 1} and not share.step
        return share.is_uniform(self.count) and (stays == {*range(self.count)} or at_last)

    def stage_write(self, key: Key) -> None:
        """Hold what a part writes in a line, which moves to memory what no write replaces."""
        share, stays = self.shares[key], self.stays[key]
        self.places[key] = StagedPlace(self.slot(share), share.nbytes)
        if stays:
            always = stays == {*range(self.count)}
            self.line(StagingTime.BEHIND if always else StagingTime.AFTER, key)

    def can_read(self, key: Key) -> bool:
        """Whether a part can read an argument from a line or from memory in all iterations."""
        share, (first, *others) = self.shares[key], self.sources[key]
        source = others[0] if others else first
        if any(each != source for each in others):
            return False
        if source is None:
            return True
        same_size = self.shares[source[1]].nbytes == share.nbytes
        return source[0] == (first is None) and share.is_uniform(self.count) and same_size

    def stage_read(self, key: Key) -> None:
        """Let a part read an argument from the line of its writer, or ahead of the iteration from
        memory where no part writes it."""
        share, (first, *others) = self.shares[key], self.sources[key]
        source = others[0] if others else first
        if source is not None:
            previous = first is None
            self.places[key] = replace(self.places[source[1]], previous=previous)
            if previous:
                self.line(StagingTime.BEFORE, key)
        elif share.is_uniform(self.count):
            self.places[key] = StagedPlace(self.slot(share), share.nbytes)
            self.line(StagingTime.AHEAD, key)

    def replicate(self, key: Key, place: Range) -> None:
        """Load a whole argument into every block's shared memory before the loop."""
        share = _Share(place, place.stop - place.start, False)
        self.places[key] = StagedPlace(self.slot(share), share.nbytes, replicated=True)
        number, slot = self.number(place), self.places[key].slot
        line = StagedLine(StagingTime.BEFORE, number, 0, share.nbytes, slot, replicated=True)
        self.lines.append(line)

    def slot(self, share: _Share) -> int:
        """Allocate two slots for a share."""
        self.end += 2 * share.nbytes
        return self.end - 2 * share.nbytes

    def line(self, moves: StagingTime, key: Key) -> None:
        """Add a line that moves at that time."""
        share, slot = self.shares[key], self.places[key].slot
        line = StagedLine(moves, self.number(share.place), share.step, share.nbytes, slot)
        self.lines.append(line)
