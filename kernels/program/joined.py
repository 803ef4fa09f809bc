"""Joined launches as data: parts, loops of parts, and rows that blocks keep in shared memory.

The planner creates them; `kernels/cuda/joined/` prints them.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from graphc.kernels.program.kernel import Kernel

THREADS = 256
"""Threads of a block of a joined launch and of most other kernels."""
RESIDENT = 2
"""The least number of blocks of `THREADS` per multiprocessor that kernels ask the compiler for.
Left to itself, ptxas aims for more and spills a few bytes."""
MOST_ARGUMENTS = 500
"""The most arguments of a joined launch: CUDA allows 4 KB of kernel parameters."""
COPIED_AT_ONCE = 16
"""Bytes that a thread copies at once where both addresses are aligned to it."""
MOST_BYTES = 24 * 1024
"""Bytes of shared memory for the staged rows of a block; its parts use the other half."""
MOST_MOVED = 2
"""Vectors of 16 bytes that a thread moves per iteration; each takes five registers."""
MOST_WHOLE = 1024
"""The largest argument, in bytes, that each block replicates in shared memory, such as a bias."""
VECTOR_BYTES = 16
"""Bytes that a thread moves at once between memory and shared memory."""


class StagingTime(Enum):
    """When a line moves between memory and shared memory: an iteration ahead or behind, before the
    loop or after it."""

    AHEAD = "ahead"
    BEHIND = "behind"
    BEFORE = "before"
    AFTER = "after"


@dataclass(frozen=True)
class StagedLine:
    """A block's share of an argument, double-buffered in shared memory."""

    moves: StagingTime
    """When it is loaded or stored."""
    argument: int
    """The number of the argument that it begins at in the first iteration."""
    step: int
    """Bytes from one iteration to the next."""
    nbytes: int
    """Bytes of the share."""
    slot: int
    """Byte offset of its first slot in shared memory."""
    replicated: bool = False
    """Whether every block holds the whole argument."""


@dataclass(frozen=True)
class StagedPlace:
    """Where a part finds its block's share of an argument in shared memory."""

    slot: int
    """Byte offset of the line's first slot."""
    nbytes: int
    """Bytes of the share."""
    previous: bool = False
    """Whether the previous iteration filled the slot; else the same iteration did."""
    replicated: bool = False
    """Whether the argument was loaded whole before the loop."""


@dataclass(frozen=True)
class StagedRows:
    """The staged lines of a loop whose blocks each run on rows of their own."""

    blocks: int
    """Blocks that run the loop."""
    lines: tuple[StagedLine, ...]
    """The lines."""
    places: tuple[tuple[StagedPlace | None, ...], ...]
    """For each part, the place of each argument; None for arguments in memory."""

    @property
    def nbytes(self) -> int:
        """Bytes of shared memory."""
        places = (place for part in self.places for place in part if place)
        return max((place.slot + 2 * place.nbytes for place in places), default=0)

    @property
    def fits(self) -> bool:
        """Whether shared memory and the threads' registers suffice."""
        moved = self.vector_count(StagingTime.AHEAD) + self.vector_count(StagingTime.BEHIND)
        return 0 < self.nbytes <= MOST_BYTES and moved <= MOST_MOVED * THREADS

    def vector_count(self, moves: StagingTime) -> int:
        """The number of 16-byte vectors that a block moves at that time."""
        return sum(line.nbytes for line in self.lines if line.moves is moves) // VECTOR_BYTES


@dataclass(frozen=True)
class ArgumentAddress:
    """The address of a value: `offset` bytes after an argument of the joined launch, plus its
    movement with the enclosing loops."""

    argument: int
    """The argument's number."""
    moves: tuple[tuple[int, int, int], ...] = ()
    """For each enclosing loop, the outermost first, (stride, period, count): in iteration t the
    address moves by (t mod period) * stride bytes."""
    offset: int = 0


@dataclass(frozen=True)
class JoinedPart:
    """A launch of `kernel` within a joined launch, or a copy if it is None."""

    kernel: Kernel | None
    launch: int
    """The number of the launch among the kernel's."""
    addresses: tuple[ArgumentAddress, ...]
    """The kernel's arguments; of a copy, source and target."""
    waits: bool
    """Whether all blocks wait for each other before the part."""
    nbytes: int = 0
    """Bytes of a copy."""
    aligned: bool = True
    """Whether a copy moves whole aligned vectors."""
    iterations: tuple[int, ...] = ()
    """(first, count) of the innermost loop's iterations in which the part runs; () for all."""
    owns_rows: bool = False
    """Whether its blocks own rows. Such parts all begin at block 0 of the joined launch."""

    @property
    def grid(self) -> tuple[int, int]:
        """Blocks along x and y."""
        if self.kernel is None:
            return -(-self.nbytes // (THREADS * (COPIED_AT_ONCE if self.aligned else 1))), 1
        x, y, _ = self.kernel.joined_launches[self.launch].grid
        return x, y

    @property
    def blocks(self) -> int:
        """Number of blocks."""
        return self.grid[0] * self.grid[1]


@dataclass(frozen=True)
class JoinedLoop:
    """A loop over `parts` that runs `count` times."""

    count: int
    """Iterations."""
    parts: tuple[JoinedPart | JoinedLoop, ...]
    """The parts of an iteration."""
    waits: bool = False
    """Whether all blocks wait for each other before the loop."""
    resident_part: JoinedPart | None = None
    """The part whose operand (`Kernel.resident_bytes`) blocks load once, before the loop."""
    staged_rows: StagedRows | None = None
    """The rows that blocks keep in shared memory; None if there are none."""


JoinedStep = JoinedPart | JoinedLoop
"""A step of a joined launch."""


def joinable(kernel: Kernel) -> bool:
    """Whether all launches of a kernel can be parts of a joined launch."""
    return kernel.device_functions is not None and all(
        not x.shared_bytes and x.grid[2] == 1 and x.block[0] <= THREADS
        for x in kernel.joined_launches
    )
