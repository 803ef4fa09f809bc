"""Joined launches as data: parts, loops of parts, and rows that blocks keep in shared memory.

The planner makes them; `kernels/cuda/joined/` prints them.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from graphc.kernels.program.kernel import Kernel

THREADS = 256
"""Of a block of a joined launch, and of most other kernels."""
RESIDENT = 2
"""Blocks of `THREADS` that a multiprocessor holds at least, where kernels say so: left to itself,
ptxas aims at so many that it spills a few bytes."""
MOST_ARGUMENTS = 500
"""Of a joined launch: CUDA's programming guide has 4 KB for a kernel's."""
COPIED_AT_ONCE = 16
"""Bytes that a thread copies at once, where both addresses are a multiple of as many."""
MOST_BYTES = 24 * 1024
"""Of shared memory, that a block has for its rows; the other half is for its parts."""
MOST_MOVED = 2
"""Sixteens that a thread moves in an iteration, for each of which it holds five registers."""
MOST_WHOLE = 1024
"""Bytes of an argument that each block has whole, as of biases."""
SIXTEEN = 16
"""Bytes that a thread moves at once."""


class StagingTime(Enum):
    """When a line moves between memory and shared memory."""

    AHEAD = "ahead"
    BEHIND = "behind"
    BEFORE = "before"
    AFTER = "after"


@dataclass(frozen=True)
class StagedLine:
    """The share of a block, of so many bytes, in what begins at an argument in the first iteration,
    `step` bytes further in each; its first slot begins at `slot`. All blocks have a `whole` one."""

    moves: StagingTime
    argument: int
    step: int
    nbytes: int
    slot: int
    whole: bool = False


@dataclass(frozen=True)
class StagedPlace:
    """Where a part finds its block's share of an argument: in a slot of a line, that of the same
    iteration or, if it is `late`, the one that the iteration before filled; or where the `whole` of
    an argument came before the loop."""

    slot: int
    nbytes: int
    late: bool = False
    whole: bool = False


@dataclass(frozen=True)
class StagedRows:
    """The lines of a loop that each of so many `blocks` plays for itself; `places` are those of the
    arguments of each part, None where it is not a line."""

    blocks: int
    lines: tuple[StagedLine, ...]
    places: tuple[tuple[StagedPlace | None, ...], ...]

    @property
    def nbytes(self) -> int:
        """Of shared memory."""
        places = (place for part in self.places for place in part if place)
        return max((place.slot + 2 * place.nbytes for place in places), default=0)

    @property
    def fits(self) -> bool:
        moved = self.sixteens(StagingTime.AHEAD) + self.sixteens(StagingTime.BEHIND)
        return 0 < self.nbytes <= MOST_BYTES and moved <= MOST_MOVED * THREADS

    def sixteens(self, moves: StagingTime) -> int:
        """How many times 16 bytes of a block move so."""
        return sum(line.nbytes for line in self.lines if line.moves is moves) // SIXTEEN


@dataclass(frozen=True)
class ArgumentAddress:
    """Where a value begins: `offset` bytes behind an argument, and how far it moves in the loops
    around, the outermost first: in iteration t by (t mod period) * stride bytes, as (stride,
    period, count)."""

    argument: int
    moves: tuple[tuple[int, int, int], ...] = ()
    offset: int = 0


@dataclass(frozen=True)
class JoinedPart:
    """A launch of `kernel`, or, without one, a copy of so many bytes from the first to the second
    of `places`. `plays` are the first iteration of the innermost loop in which it plays, and how
    many of them it does; () if it does in all. A part whose blocks own rows (`own`) begins at
    block 0 of the launch, as all of those do."""

    kernel: Kernel | None
    launch: int
    places: tuple[ArgumentAddress, ...]
    waits: bool
    nbytes: int = 0
    aligned: bool = True
    plays: tuple[int, ...] = ()
    own: bool = False

    @property
    def grid(self) -> tuple[int, int]:
        """Blocks along x and y."""
        if self.kernel is None:
            return -(-self.nbytes // (THREADS * (COPIED_AT_ONCE if self.aligned else 1))), 1
        x, y, _ = self.kernel.joined[self.launch].grid
        return x, y

    @property
    def blocks(self) -> int:
        return self.grid[0] * self.grid[1]


@dataclass(frozen=True)
class JoinedLoop:
    """`parts`, `count` times, before which all blocks wait for each other if it `waits`. What the
    part `holds` would read again (`Kernel.held`) blocks read before; what is `near` they have in
    shared memory."""

    count: int
    parts: tuple[JoinedPart | JoinedLoop, ...]
    waits: bool = False
    holds: JoinedPart | None = None
    near: StagedRows | None = None


JoinedStep = JoinedPart | JoinedLoop


def joinable(kernel: Kernel) -> bool:
    """Whether the launches of a kernel can be parts of one."""
    return kernel.parts is not None and all(
        not x.shared_bytes and x.grid[2] == 1 and x.block[0] <= THREADS for x in kernel.joined
    )
