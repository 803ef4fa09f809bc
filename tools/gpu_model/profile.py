"""What a warp of a launch does, on average, from walks of some of its threads."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import Any

from tools.gpu_model.compiled import Launch, Sizes
from tools.gpu_model.counts import Counts, by_width, counted
from tools.gpu_model.l1 import missed_share
from tools.gpu_model.machine import LANES, Machine
from tools.gpu_model.walk import Walk


def resident_blocks(launch: Launch, machine: Machine) -> int:
    """Blocks of a launch that a multiprocessor holds, by registers, threads and shared memory."""
    threads = warps_of(launch) * LANES
    registers = max(1, -(-launch.registers // 8) * 8 * threads)
    shared = launch.static + launch.dynamic + 1024
    limits = machine.registers // registers, machine.threads // threads, machine.shared // shared
    return max(1, int(min(*limits, machine.blocks)))


def warps_of(launch: Launch) -> int:
    """Warps of a block."""
    return -(-math.prod(launch.block) // LANES)


def place_of(number: int, sizes: Sizes) -> Sizes:
    """Where the block or thread of this number lies."""
    x, y, _ = sizes
    return number % x, number // x % y, number // x // y


class Profile:
    """The walks of a launch on a machine."""

    def __init__(self, launch: Launch, machine: Machine) -> None:
        self.launch, self.machine, self.code = launch, machine, launch.code
        self.blocks = math.prod(launch.grid)
        self.sizes = (*launch.block, *launch.grid)
        threads = self._warp(0)
        accesses = self.code.accesses(self._block(int(self.blocks * 0.4)), threads, self.sizes)
        self.parts = counted(self.code, accesses, machine)

    def counts(self) -> Counts:
        walks = self._walks()
        total = Counts()
        for walk in walks:
            total.add(self._sum(walk), 1 / len(walks))
        total.missed = self._missed() if total.kept_sectors else 1.0
        total.hot = self._hot(max(walks, key=lambda w: (self._sum(w).flops, w.visits.total())))
        return total

    def _walks(self) -> list[Walk]:
        """Three warps if they do the same; else more, spread over grid and block at random: eight
        where they nearly do, thirty-two where they do not."""
        blocks, warps = self.blocks, max(1, math.prod(self.launch.block) // LANES)
        places = [(0, 0), (blocks // 2, warps - 1), (int(blocks * 0.77), warps // 2)]
        walks = [self._walk(*place) for place in dict.fromkeys(places)]
        if all(walk.visits == walks[0].visits for walk in walks):
            return walks
        lengths = [walk.visits.total() for walk in walks]
        count, draw = 8 if min(lengths) > 0.9 * max(lengths) else 32, random.Random(0)
        which = [i % warps for i in range(count)]
        draw.shuffle(which)
        more = [(int(blocks * (i + draw.random()) / count), w) for i, w in enumerate(which)]
        return [self._walk(*place) for place in dict.fromkeys(more)]

    def _walk(self, block: int, warp: int) -> Walk:
        thread = place_of(warp * LANES, self.launch.block)
        return self.code.walk(self._block(block), thread, self.sizes)

    def _sum(self, walk: Walk) -> Counts:
        total = Counts(unknown=walk.unknown, truncated=walk.truncated)
        for number, visits in walk.visits.items():
            total.add(self.parts[number], visits)
        return total

    def _missed(self) -> float:
        """The share of the sectors of copies by way of L1 that it has not."""
        launch, machine = self.launch, self.machine
        resident, first = resident_blocks(launch, machine), int(self.blocks * 0.4)
        beside = range(first, self.blocks, int(machine.multiprocessors))[:resident]
        blocks = [self._block(number) for number in beside]
        warps = [self._warp(number) for number in range(warps_of(launch))]
        shared = resident * (launch.static + launch.dynamic + 1024)
        room = machine.l1_share * (machine.l1_lines - shared)
        return missed_share(self.code, blocks, warps, self.sizes, room)

    def _block(self, number: int) -> Sizes:
        return place_of(number, self.launch.grid)

    def _warp(self, number: int) -> list[Sizes]:
        """The threads of a warp."""
        last = min((number + 1) * LANES, math.prod(self.launch.block))
        return [place_of(i, self.launch.block) for i in range(number * LANES, last)]

    def _hot(self, walk: Walk) -> dict[str, Any]:
        """The loop with the most arithmetic, or accesses, outside the loops in it: instructions of
        one turn by kind and width, and how often it turns; without a loop, all of the code."""
        loops = [(a, b) for a, b in self.code.loops() if walk.visits[b]]
        own: dict[tuple[int, int], Sequence[int]] = {(0, len(self.parts) - 1): ()}
        for a, b in loops:
            inside = [(c, d) for c, d in loops if (c, d) != (a, b) and a <= c and d <= b]
            own[a, b] = [i for i in range(a, b + 1) if not any(c <= i <= d for c, d in inside)]

        def weight(loop: tuple[int, int]) -> tuple[float, float, int]:
            mine = [(walk.visits[i], self.parts[i]) for i in own[loop]]
            flops = sum(visits * counts.flops for visits, counts in mine)
            moved = sum(visits * counts.moved_bytes for visits, counts in mine)
            return flops, moved, -len(own[loop])

        found, total = max(own, key=weight), Counts()
        for i in own[found] or range(len(self.parts)):
            total.add(self.parts[i], 1)
        return {"turns": walk.visits[found[1]] if own[found] else 0, **by_width(total.opcodes)}
