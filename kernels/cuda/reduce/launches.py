"""Add the launches of a kernel with reductions; see stage_text.py."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

from graphc.kernels.cuda.reduce.stage_text import ReduceText
from graphc.kernels.cuda.shared.kernel_source import BLOCKS, RESIDENT, THREADS
from graphc.kernels.cuda.shared.launches import Launches, LaunchMode
from graphc.kernels.loops.language import Nest


@dataclass(frozen=True)
class ReductionLoops:
    """What one launch does of the loops over rows."""

    text: ReduceText
    part: str
    """Which of the launches."""
    lines: list[str]

    @property
    def nests(self) -> tuple[Nest, ...]:
        return (self.text.rows.nest,)

    @property
    def settings(self) -> Hashable:
        text = self.text
        given = text.partial_count, text.partial_offset, text.prologue
        return self.part, text.shape, text.index, given


def add_reduction(text: ReduceText, launches: Launches, name: str = "{}") -> None:
    """Add the launches of `text`; `name` is the pattern of their names.

    Blocks that draw tickets have launches of their own. A joined launch has a barrier of all blocks
    instead, and a further part combines the same partial results in the same order.
    """
    if not text.draws_tickets:
        return _add(text, launches, name, "", LaunchMode.EITHER)
    counters = launches.counters(text.shape.blocks, LaunchMode.ALONE)
    _add(text, launches, name, counters, LaunchMode.ALONE)
    _add(text, launches, name, "", LaunchMode.JOINED)


def _add(
    text: ReduceText, launches: Launches, name: str, counters: str, played: LaunchMode
) -> None:
    """Add one variant of the launches. If there are no more blocks than multiprocessors, one large
    block per multiprocessor suffices."""
    shape, resident = text.shape, RESIDENT * THREADS // text.shape.threads
    for part, lines, splits in text.launches(counters):
        blocks = text.gathering.blocks if part == "gather" else shape.blocks
        if resident == 1 and blocks * splits > BLOCKS // RESIDENT:
            resident = 0
        more = splits, shape.threads, resident, text.shared_bytes
        loops = ReductionLoops(text, part, lines)
        launches.add(loops, blocks, name.format(part), *more, mode=played)
