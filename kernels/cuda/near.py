"""The text of a joined launch's loop whose blocks have their rows in shared memory (near.cuh)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from graphc.kernels.cuda.shell import THREADS

MOST_BYTES = 24 * 1024
"""Of shared memory, that a block has for its rows; the other half is for its parts."""
MOST_MOVED = 2
"""Sixteens that a thread moves in an iteration, for each of which it holds five registers."""
MOST_WHOLE = 1024
"""Bytes of an argument that each block has whole, as of biases."""
SIXTEEN = 16
"""Bytes that a thread moves at once."""


class Moves(Enum):
    """When a line moves between memory and shared memory, as in near.cuh."""

    AHEAD = "ahead"
    BEHIND = "behind"
    BEFORE = "before"
    AFTER = "after"


@dataclass(frozen=True)
class Line:
    """The share of a block, of so many bytes, in what begins at an argument in the first iteration,
    `step` bytes further in each; its first slot begins at `slot`. All blocks have a `whole` one."""

    moves: Moves
    argument: int
    step: int
    nbytes: int
    slot: int
    whole: bool = False

    @property
    def text(self) -> str:
        apart = 0 if self.whole else self.nbytes
        numbers = f"p{self.argument}, {self.step}, {self.nbytes}, {apart}, {self.slot}"
        return f"{{Moves::{self.moves.value}, {numbers}}}"


@dataclass(frozen=True)
class NearPlace:
    """Where a part finds its block's share of an argument: in a slot of a line, that of the same
    iteration or, if it is `late`, the one that the iteration before filled; or where the `whole` of
    an argument came before the loop."""

    slot: int
    nbytes: int
    late: bool = False
    whole: bool = False

    def text(self, t: str) -> str:
        if self.whole:
            return f"near.whole({self.slot}, {self.nbytes})"
        return f"near.line({self.slot}, {self.nbytes}, {t}{' + 1' * self.late})"


@dataclass(frozen=True)
class NearRows:
    """The lines of a loop that each of so many `blocks` plays for itself; `places` are those of the
    arguments of each part, None where it is not a line."""

    blocks: int
    lines: tuple[Line, ...]
    places: tuple[tuple[NearPlace | None, ...], ...]

    @property
    def nbytes(self) -> int:
        """Of shared memory."""
        places = (place for part in self.places for place in part if place)
        return max((place.slot + 2 * place.nbytes for place in places), default=0)

    @property
    def fits(self) -> bool:
        moved = self.sixteens(Moves.AHEAD) + self.sixteens(Moves.BEHIND)
        return 0 < self.nbytes <= MOST_BYTES and moved <= MOST_MOVED * THREADS

    def sixteens(self, moves: Moves) -> int:
        """How many times 16 bytes of a block move so."""
        return sum(line.nbytes for line in self.lines if line.moves is moves) // SIXTEEN


def loop_text(
    near: NearRows, count: int, t: str, shared: int, calls: Sequence[Sequence[str]]
) -> list[str]:
    """The loop over `t` of which `calls` are the parts' statements; `shared` bytes of shared memory
    are the parts', and the lines lie behind them."""
    ahead, behind = (near.sixteens(moves) for moves in (Moves.AHEAD, Moves.BEHIND))
    lines = [f"    {line.text}," for line in near.lines]
    body: list[str] = []
    for call in calls:
        body += [*(["__syncthreads();"] if body else []), *call]
    return [
        f"play<256, {shared}, {near.blocks}, 1>(0, dynamic_shared, [&](const auto& own) {{",
        "  const Line lines[] = {",
        *lines,
        "  };",
        f"  Near<{ahead}, {behind}> near(dynamic_shared + {shared}, lines, own.x(), {count});",
        "  #pragma unroll 1",
        f"  for (int {t} = 0; {t} < {count}; {t}++) {{",
        f"    near.begin({t});",
        *(f"    {x}" for x in body),
        "  }",
        "  near.end(lines);",
        "});",
    ]
