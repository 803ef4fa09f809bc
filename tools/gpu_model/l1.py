"""Simulate L1 for copies through it, by the blocks of one multiprocessor."""

from __future__ import annotations

import itertools
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tools.gpu_model.state import InstructionIndex
from tools.gpu_model.walk import Code, Sizes

MOST_COPIES = 4000
"""Accesses of a warp whose copies are simulated."""
SECTOR, LINE = 32, 128


@dataclass
class Lines:
    """An LRU cache of `most` lines, with a bit per present sector, that counts requested and missed
    sectors."""

    most: int
    resident: OrderedDict[int, int] = field(default_factory=OrderedDict)
    asked: int = 0
    missed: int = 0

    def ask(self, sectors: Iterable[int]) -> None:
        for sector in sectors:
            line, bit = divmod(sector, LINE // SECTOR)
            there = self.resident.pop(line, 0)
            self.asked += 1
            self.missed += not there >> bit & 1
            self.resident[line] = there | 1 << bit
            if len(self.resident) > self.most:
                self.resident.popitem(last=False)


def missed_share(
    code: Code,
    blocks: Sequence[Sizes],
    warps: Sequence[Sequence[Sizes]],
    sizes: Sizes,
    capacity: float,
) -> float:
    """The share of sectors of copies through L1 that miss its `capacity` bytes, where these blocks
    are on a multiprocessor and all their `warps`, given by their threads, take turns."""
    lanes = _lanes(code, blocks[0], warps[0], sizes)
    copies = [_copied(code, block, warp[0], sizes) for block in blocks for warp in warps]
    lines = Lines(int(capacity // LINE))
    for turn in itertools.zip_longest(*copies):
        for place, address in filter(None, turn):
            offsets = lanes.get(place, range(0, 512, 16))
            lines.ask({(address + offset) // SECTOR for offset in offsets})
    return lines.missed / lines.asked if lines.asked else 1.0


def _copied(
    code: Code, block: Sizes, thread: Sizes, sizes: Sizes
) -> list[tuple[InstructionIndex, int]]:
    """The copies of a warp's first thread, in order."""
    state = code.traced(block, thread, sizes, MOST_COPIES)
    return [(place, address) for place, address in state.order if code.keeps(place)]


def _lanes(
    code: Code, block: Sizes, threads: Sequence[Sizes], sizes: Sizes
) -> Mapping[InstructionIndex, Sequence[int]]:
    """For each copy instruction, the offsets of a warp's lanes from its first lane, from the first
    execution where all are known."""
    traces = [code.traced(block, thread, sizes).traced for thread in threads]
    found: dict[InstructionIndex, Sequence[int]] = {}
    for place in traces[0]:
        for row in zip(*(trace.get(place, []) for trace in traces), strict=False):
            known = [address for address in row if address is not None]
            if len(known) == len(traces):
                found[place] = [address - known[0] for address in known]
                break
    return found
