"""Add the launches of a kernel with reductions; see stage_text.py."""

from __future__ import annotations

from graphc.kernels.cuda.reduce.stage_text import ReduceText
from graphc.kernels.cuda.shared.kernel_source import BLOCKS, RESIDENT, THREADS, Launches, LaunchMode


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
        launches.add(lines, blocks, name.format(part), *more, mode=played)
