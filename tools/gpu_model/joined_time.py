"""Model the time of a joined launch, whose blocks all wait for each other where a part reads what
others wrote.

Its own text is walked in every block, and the walks are cut at the barriers of all blocks. Parts
between two barriers run concurrently on blocks of their own, and take as long as the busiest
multiprocessor; loops count as often as they iterate, with their barriers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from graphc.kernels.cuda.shared.kernel_source import RESIDENT
from tools.gpu_model.compiled import CompiledLaunch, Sizes
from tools.gpu_model.counts import SUMMED, Array, WarpCounts, counted, counts_of, row_of
from tools.gpu_model.launch_time import PIPES, Timed, Traffic, cycles
from tools.gpu_model.machine import LANES, Machine
from tools.gpu_model.profile import resident_blocks, warp_of, warps_of
from tools.gpu_model.state import InstructionIndex
from tools.gpu_model.walk import ThreadWalk, WarpAccess

WALKED = 2
"""Warps walked per block, different ones in the next block."""
LONG, ALIKE = 3000, 16
"""Basic blocks that a thread enters from which on only one of so many neighbouring blocks of a
launch is walked: loops that take all of it do the same in all of them."""
MOST_ACCESSES, FEW_ACCESSES = 20_000, 3000
"""Traced accesses per lane, the second in long walks."""


@dataclass(frozen=True)
class Work:
    """Counts of the walked warps by [block, walk, stretch, count]."""

    walked: Array

    @property
    def blocks(self) -> Array:
        """Counts of all warps of each block by [block, stretch, count]."""
        found: Array = self.walked.mean(axis=1)
        return found

    @property
    def waits(self) -> int:
        """The number of barriers of all blocks, those in loops counted per iteration."""
        return int(self.walked.shape[2]) - 1


def launched(launch: CompiledLaunch, multiple: int, machine: Machine) -> CompiledLaunch:
    """A joined launch with as many blocks as the machine holds at once."""
    together = min(RESIDENT, resident_blocks(launch, machine)) * int(machine.multiprocessors)
    blocks = min(launch.grid[0], together) // multiple * multiple
    return replace(launch, grid=(max(blocks, multiple), 1, 1))


def work_of(launch: CompiledLaunch, machine: Machine) -> Work:
    """The work of a joined launch's blocks."""
    return _Walking(launch, machine).work()


def joined_timed(launch: CompiledLaunch, work: Work, traffic: Traffic, machine: Machine) -> Timed:
    """The time of a joined launch. Its `terms` are seconds of work and of waits, and of the work
    those bounded by each pipe, latency or L2."""
    m, warps, blocks = machine, warps_of(launch), launch.grid[0]
    wait = m.l2_latency + (m.memory_latency - m.l2_latency) * traffic.missed
    terms = dict.fromkeys((*PIPES, "latency", "l2"), 0.0)
    for stretch in range(work.waits + 1):
        each = _stretch(work.walked[:, :, stretch], warps, wait, m)
        bound = max(each, key=lambda name: each[name])
        terms[bound] += each[bound]
    bound = max(terms, key=lambda name: terms[name])
    memory, waits = traffic.memory / m.copy, work.waits * m.wait
    terms |= {"dram": memory, "work": max(sum(terms.values()), memory), "waits": waits}
    seconds, average = terms["work"], counts_of(work.blocks.sum(axis=1).mean(axis=0))
    resident = math.ceil(blocks / m.multiprocessors)
    return Timed(
        launch,
        average,
        resident,
        resident * warps * LANES / m.threads,
        blocks / m.multiprocessors / resident,
        m.node + seconds + waits,
        f"{work.waits} waits" if waits > seconds else bound,
        terms,
        1.0,
        1.0,
        min(1.0, memory / seconds),
        average.flops * warps * blocks,
        _moved(average) * warps * blocks,
    )


def _stretch(walked: Array, warps: int, wait: float, m: Machine) -> dict[str, float]:
    """Seconds between two barriers by bound: each pipe of the busiest multiprocessor, the slowest
    warp alone, and L2."""
    blocks, count = walked.mean(axis=1) * warps, int(m.multiprocessors)
    found = dict.fromkeys(PIPES, 0.0)
    held = [blocks[at::count].sum(axis=0) for at in range(min(count, len(blocks)))]
    for row in np.unique(held, axis=0):
        each = cycles(counts_of(row), 1, m)
        found = {pipe: max(found[pipe], each[pipe] / m.clock) for pipe in PIPES}
    found["latency"] = max(_alone(counts_of(row), wait) for row in _rows(walked)) / m.clock
    found["l2"] = _moved(counts_of(blocks.sum(axis=0))) / m.l2
    return found


def _rows(walked: Array) -> Array:
    """The distinct rows of one stretch."""
    return np.unique(walked.reshape(-1, walked.shape[-1]), axis=0)


def _alone(c: WarpCounts, wait: float) -> float:
    """Cycles of a warp by itself that waits `wait` cycles for loads."""
    return max(c.alone + c.waits * wait, c.ring * wait + (wait if c.ring_steps else 0))


def _moved(c: WarpCounts) -> float:
    return c.load_sectors + c.other_sectors + c.kept_sectors


class _Walking:
    def __init__(self, launch: CompiledLaunch, machine: Machine) -> None:
        self.launch, self.machine, self.code = launch, machine, launch.code
        self.sizes = (*launch.block, *launch.grid)
        self.warps = warps_of(launch)

    def work(self) -> Work:
        count, first = self.launch.grid[0], self.walk(0, 0)
        every = ALIKE if first.visits.total() > LONG else 1
        chosen = {
            block: [self.walk(block, warp) for warp in self.chosen(block)]
            for block in range(0, count, every)
        }
        accesses = self.accesses(chosen, MOST_ACCESSES if every == 1 else FEW_ACCESSES)
        walks = [chosen[block - block % every] for block in range(count)]
        parts = np.array([row_of(c) for c in counted(self.code, accesses, self.machine)])
        parts[[*self.code.waiting]] = 0  # which are counted as waits
        stretches = max(len(walk.stretches) for pair in walks for walk in pair)
        found = np.zeros((len(walks), WALKED, stretches, len(SUMMED)))
        for b, pair in enumerate(walks):
            for w, walk in enumerate(pair):
                for s, visits in enumerate(walk.stretches):
                    times = np.array([*visits.values()])
                    found[b, w, s] = times @ parts[[*visits]] if visits else 0
        return Work(found)

    def chosen(self, block: int) -> list[int]:
        return [(block + i * self.warps // WALKED) % self.warps for i in range(WALKED)]

    def walk(self, block: int, warp: int) -> ThreadWalk:
        return self.code.walk((block, 0, 0), self.threads(warp)[0], self.sizes)

    def threads(self, warp: int) -> list[Sizes]:
        return warp_of(self.launch, warp)

    def accesses(
        self, walks: dict[int, list[ThreadWalk]], most: int
    ) -> dict[InstructionIndex, WarpAccess]:
        """Of warps which together enter all code that any does."""
        entered = {
            (block, warp): set(walk.visits)
            for block, pair in walks.items()
            for warp, walk in zip(self.chosen(block), pair, strict=True)
        }
        found: dict[InstructionIndex, WarpAccess] = {}
        left = set().union(*entered.values())
        while left:
            best = max(entered, key=lambda place: len(entered[place] & left))
            left -= entered[best]
            traced = self.code.accesses((best[0], 0, 0), self.threads(best[1]), self.sizes, most)
            found = {**traced, **found}
        return found
