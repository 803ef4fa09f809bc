"""The launches of a kernel with reductions: see reduce_text.py."""

from __future__ import annotations

from graphc.kernels.cuda.reduce_text import ReduceText
from graphc.kernels.cuda.shell import BLOCKS, RESIDENT, THREADS, Launches


def add_reduction(text: ReduceText, launches: Launches, name: str = "{}") -> None:
    """Add the launches of `text`, of which each is called by what it does in `name`. Of large
    blocks one per multiprocessor is enough where there are no more."""
    shape, resident = text.shape, RESIDENT * THREADS // text.shape.threads
    counters = launches.counters(shape.blocks) if text.draws else ""
    for part, lines, splits in text.launches(counters):
        blocks = text.gathering.blocks if part == "gather" else shape.blocks
        if resident == 1 and blocks * splits > BLOCKS // RESIDENT:
            resident = 0
        more = splits, shape.threads, resident, text.shared_bytes
        launches.add(lines, blocks, name.format(part), *more)
