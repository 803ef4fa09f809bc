"""The average work of a launch's warps, from walks of some of its threads.

Blocks of a launch that do different things (its shares) are walked separately. Where one of several
blocks continues alone, as the last of them, that is counted separately too.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from tools.gpu_model.compiled import CompiledLaunch, Sizes
from tools.gpu_model.counts import WarpCounts, by_width, counted
from tools.gpu_model.l1 import missed_share
from tools.gpu_model.machine import LANES, Machine
from tools.gpu_model.walk import ThreadWalk


@dataclass(frozen=True)
class Last:
    """The work that the last block of each group does alone: its warps' counts, and the number of
    groups."""

    counts: WarpCounts
    groups: float


@dataclass(frozen=True)
class Share:
    """Blocks of a launch that do the same: `blocks` from `first` on with `warps` each, the average
    work of a warp, and the additional work of last blocks."""

    first: int
    blocks: int
    warps: int
    counts: WarpCounts
    lasts: tuple[Last, ...] = ()

    def all(self) -> Iterator[tuple[WarpCounts, float]]:
        """Counts, each with the number of warps that have them."""
        yield self.counts, self.blocks * self.warps
        for last in self.lasts:
            yield last.counts, last.groups * self.warps

    def total(self, name: str) -> float:
        """The sum of a count over all warps."""
        return sum(float(getattr(counts, name)) * warps for counts, warps in self.all())


def resident_blocks(launch: CompiledLaunch, machine: Machine) -> int:
    """Blocks of a launch that a multiprocessor holds, by registers, threads and shared memory."""
    threads = warps_of(launch) * LANES
    registers = max(1, -(-launch.registers // 8) * 8 * threads)
    shared = launch.static + launch.dynamic + 1024
    limits = machine.registers // registers, machine.threads // threads, machine.shared // shared
    return max(1, int(min(*limits, machine.blocks)))


def warps_of(launch: CompiledLaunch) -> int:
    """Warps of a block."""
    return -(-math.prod(launch.block) // LANES)


def place_of(number: int, sizes: Sizes) -> Sizes:
    """The coordinates of block or thread `number`."""
    x, y, _ = sizes
    return number % x, number // x % y, number // x // y


def warp_of(launch: CompiledLaunch, number: int) -> list[Sizes]:
    """The threads of warp `number`."""
    last = min((number + 1) * LANES, math.prod(launch.block))
    return [place_of(i, launch.block) for i in range(number * LANES, last)]


def shares_of(launch: CompiledLaunch, machine: Machine) -> list[Share]:
    """The shares of a launch, as its text defines them."""
    edges = [0, *launch.edges, math.prod(launch.grid)]
    profiles = [
        LaunchProfile(launch, machine, first, stop - first) for first, stop in pairwise(edges)
    ]
    return [profile.share() for profile in profiles]


def average(shares: Sequence[Share]) -> WarpCounts:
    """The average work of a warp over all shares."""
    total = WarpCounts(hot=max(shares, key=lambda share: share.total("issued")).counts.hot)
    warps = sum(share.blocks * share.warps for share in shares)
    for counts, count in (each for share in shares for each in share.all()):
        total.add(counts, count / warps)
    return total


class LaunchProfile:
    """The walks of `blocks` blocks of a launch, from number `first` on."""

    def __init__(self, launch: CompiledLaunch, machine: Machine, first: int, blocks: int) -> None:
        self.launch, self.machine, self.code = launch, machine, launch.code
        self.first, self.blocks = first, blocks
        self.sizes = (*launch.block, *launch.grid)
        self.middle = self._block(int(blocks * 0.4))
        accesses = self.code.accesses(self.middle, warp_of(launch, 0), self.sizes)
        self.parts = counted(self.code, accesses, machine)

    def share(self) -> Share:
        walks = self._walks()
        stretches = max(len(walk.stretches) for walk in walks)
        counts, *alone = (self._average(walks, i) for i in range(stretches))
        counts.missed = self._missed() if counts.kept_sectors else 1.0
        counts.hot = self._hot(max(walks, key=self._weight))
        lasts, groups = [], float(self.blocks)
        drawn = self.code.draws(self.middle, self.sizes) if alone else ()
        for i, each in enumerate(alone):
            groups /= drawn[i] if i < len(drawn) else self.launch.grid[1]
            lasts.append(Last(each, groups))
        return Share(self.first, self.blocks, warps_of(self.launch), counts, tuple(lasts))

    def _average(self, walks: Sequence[ThreadWalk], stretch: int) -> WarpCounts:
        """The average over the walks that have this stretch."""
        there = [walk for walk in walks if stretch < len(walk.stretches)]
        total = WarpCounts()
        for walk in there:
            total.add(self._sum(walk, walk.stretches[stretch]), 1 / len(there))
        return total

    def _weight(self, walk: ThreadWalk) -> tuple[float, int]:
        return self._sum(walk, walk.visits).flops, walk.visits.total()

    def _walks(self) -> list[ThreadWalk]:
        """Three warps if they do the same; else eight others where they nearly do, or sixty-four
        where they do not, chosen by Hammersley points, which spread over patterns that repeat every
        few blocks, and over warps at random."""
        blocks, warps = self.blocks, max(1, math.prod(self.launch.block) // LANES)
        places = [(0, 0), (blocks // 2, warps - 1), (int(blocks * 0.77), warps // 2)]
        walks = [self._walk(*place) for place in dict.fromkeys(places)]
        if all(walk.stretches == walks[0].stretches for walk in walks):
            return walks
        lengths = [walk.visits.total() for walk in walks]
        count = 8 if min(lengths) > 0.9 * max(lengths) else 64
        which = [i % warps for i in range(count)]
        random.Random(0).shuffle(which)
        more = [(int(blocks * (i + _reversed(i, count)) / count), w) for i, w in enumerate(which)]
        return [self._walk(*place) for place in more]

    def _walk(self, block: int, warp: int) -> ThreadWalk:
        thread = place_of(warp * LANES, self.launch.block)
        return self.code.walk(self._block(block), thread, self.sizes)

    def _sum(self, walk: ThreadWalk, visited: Counter[int]) -> WarpCounts:
        total = WarpCounts(unknown=walk.unknown, truncated=walk.truncated)
        for number, visits in visited.items():
            total.add(self.parts[number], visits)
        return total

    def _missed(self) -> float:
        """The fraction of the sectors of copies through L1 that miss."""
        launch, machine = self.launch, self.machine
        resident, first = resident_blocks(launch, machine), int(self.blocks * 0.4)
        beside = range(first, self.blocks, int(machine.multiprocessors))[:resident]
        blocks = [self._block(number) for number in beside]
        warps = [warp_of(launch, number) for number in range(warps_of(launch))]
        shared = resident * (launch.static + launch.dynamic + 1024)
        room = machine.l1_share * (machine.l1_lines - shared)
        return missed_share(self.code, blocks, warps, self.sizes, room)

    def _block(self, number: int) -> Sizes:
        return place_of(self.first + number, self.launch.grid)

    def _hot(self, walk: ThreadWalk) -> dict[str, Any]:
        """The loop with the most arithmetic, or accesses, outside its inner loops: instructions of
        one iteration by kind and width, and the number of iterations; without a loop, all of the
        code."""
        entered = walk.visits
        loops = [(a, b) for a, b in self.code.loops() if entered[b]]
        own: dict[tuple[int, int], Sequence[int]] = {(0, len(self.parts) - 1): ()}
        for a, b in loops:
            inside = [(c, d) for c, d in loops if (c, d) != (a, b) and a <= c and d <= b]
            own[a, b] = [i for i in range(a, b + 1) if not any(c <= i <= d for c, d in inside)]

        def weight(loop: tuple[int, int]) -> tuple[float, float, int]:
            mine = [(entered[i], self.parts[i]) for i in own[loop]]
            flops = sum(visits * counts.flops for visits, counts in mine)
            moved = sum(visits * counts.moved_bytes for visits, counts in mine)
            return flops, moved, -len(own[loop])

        found, total = max(own, key=weight), WarpCounts()
        for i in own[found] or range(len(self.parts)):
            total.add(self.parts[i], 1)
        return {"turns": entered[found[1]] if own[found] else 0, **by_width(total.opcodes)}


def _reversed(number: int, count: int) -> float:
    """The bits of a number below `count`, a power of two, in reverse, as a fraction."""
    bits = f"{number:0{count.bit_length() - 1}b}"
    return (int(bits[::-1], 2) + 0.5) / count
