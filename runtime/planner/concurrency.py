"""Concurrency cost model: the time of a kernel on a device, alone and beside others.

The model is `slowdown`, and what it assumes is this:

1. A device has places, the workers of a CPU or the multiprocessors of a GPU, and a rate at which
   its memory moves bytes. A kernel alone takes a share of both, the same from its beginning to its
   end: the average over the rounds in which its chunks or blocks come to a place, the last of which
   may leave places empty.
2. Kernels beside each other run as fast as alone while their shares add up to at most one. Where
   they add up to more, all slow down alike, until places and memory are just used up. So two
   kernels that each fill the device take as long beside each other as one after the other, and what
   is gained is empty places: of kernels that are too small, and of last rounds.
3. A place on a CPU gives the rate of a core; two cores use up what memory moves. A third of a
   GPU's multiprocessors do. `full_threads` of a multiprocessor fill it.
4. Left out: caches, which kernels beside each other share and one after another inherit;
   priorities, which decide who slows down and not how much is done; clocks.

A time that was measured takes the place of the estimate of that kernel, shares stay as they are.
The times rank launches and streams. They are no predictions.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from graphc.base.target import Kind, kind_of
from graphc.kernels.program.kernel import GridLaunch, Kernel

MEMORY_PLACES = 2
"""Cores that together use up the rate at which a CPU's memory moves bytes."""
MEMORY_SHARE = 3
"""One part in so many of a GPU's multiprocessors uses up the rate of its memory."""


@dataclass(frozen=True)
class Demand:
    """What a kernel takes of a device: `microseconds` alone, the share of the `places` and of the
    `memory`'s rate meanwhile."""

    microseconds: float
    places: float = 1.0
    memory: float = 0.0


def slowdown(demands: Iterable[Demand]) -> float:
    """How many times as long kernels take beside each other as alone; at least 1."""
    places = memory = 0.0
    for demand in demands:
        places += demand.places
        memory += demand.memory
    return max(1.0, places, memory)


@dataclass(frozen=True)
class DeviceModel:
    """A device that plays plans: its name, the workers of a CPU, and the microseconds of kernels
    that were measured on it, alone."""

    device: str
    workers: int = 1
    measured: Mapping[str, float] = field(default_factory=dict)

    @property
    def event(self) -> float:
        """Microseconds until one stream sees another's event."""
        return kind_of(self.device).rates.event

    @property
    def barrier(self) -> float:
        """Microseconds that all blocks of a launch wait for each other; 0 where they cannot."""
        return kind_of(self.device).rates.barrier

    def kernel(self, kernel: Kernel) -> Demand:
        """What a launch of the kernel takes."""
        kind = kind_of(self.device)
        fills = [_fill(kind, launch) for launch in kernel.launches]
        if kind.multiprocessors:
            fill = max(fills, default=max((1, *kernel.phases)) / _places(kind, kind.full_threads))
            places, reach = fill, min(1.0, MEMORY_SHARE * fill)
            rate, count = kind.rates.bytes, max(1, len(fills))
            speed = kind.rates.flops * fill
        else:
            chunks = max((1, *kernel.phases))
            used = chunks / -(-chunks // self.workers)  # workers, averaged over the rounds
            places, reach = used / self.workers, min(1.0, used / MEMORY_PLACES)
            rate, count = kind.rates.bytes * MEMORY_PLACES, 1
            speed = kind.rates.flops * used
        work = max(kernel.flops / speed, kernel.bytes / (rate * reach))
        alone = self.measured.get(kernel.name, count * kind.rates.launch + work)
        return Demand(alone, min(1.0, places), min(reach, kernel.bytes / rate / max(alone, 1e-9)))

    def copy(self, nbytes: int) -> Demand:
        """What a copy of so many bytes takes: all of the memory's rate."""
        kind = kind_of(self.device)
        rate = kind.rates.bytes * (1 if kind.multiprocessors else min(self.workers, MEMORY_PLACES))
        return Demand(kind.rates.launch + 2 * nbytes / rate, 1.0, 1.0)


class OverlapSimulation:
    """Kernels beside each other on one device, as time goes on."""

    def __init__(self, demands: Sequence[Demand]) -> None:
        self.demands = demands
        self.now = 0.0
        self.left: dict[int, float] = {}
        """Of each kernel that runs what is left to do, in microseconds alone."""

    def start(self, i: int, delay: float = 0.0) -> None:
        """Let kernel i begin `delay` microseconds from now."""
        self.left[i] = self.demands[i].microseconds + delay

    def slowdown(self) -> float:
        return slowdown([self.demands[i] for i in self.left])

    def full(self) -> bool:
        """Whether what runs leaves nothing to others."""
        running = [self.demands[i] for i in self.left]
        return sum(d.places for d in running) >= 1 or sum(d.memory for d in running) >= 1

    def advance(self) -> list[int]:
        """Go on to the next end; the kernels that end there."""
        slow = self.slowdown()
        step = min(self.left.values())
        ended = [i for i, left in self.left.items() if left <= step]
        self.now += step * slow
        self.left = {i: left - step for i, left in self.left.items() if left > step}
        return ended


def spent(runs: Iterable[tuple[float, Demand]], until: float = math.inf) -> float:
    """Microseconds in which kernels that run beside each other, with so much left to do alone, end
    or have done `until` microseconds of it."""
    in_turn = sorted(runs, key=lambda run: run[0])
    places, memory = sum(d.places for _, d in in_turn), sum(d.memory for _, d in in_turn)
    done = total = 0.0
    for left, demand in in_turn:
        step = min(left, until) - done
        total, done = total + step * max(1.0, places, memory), done + step
        places, memory = places - demand.places, memory - demand.memory
        if left >= until:
            break
    return total


def makespan(
    before: Sequence[Sequence[int]], streams: Sequence[int], demands: Sequence[Demand], event: float
) -> float:
    """Microseconds until the last kernel ends. Each begins when those `before` it have ended, those
    of its own stream among them, and `event` later if one of them is of another stream."""
    after: list[list[int]] = [[] for _ in before]
    for i, earlier in enumerate(before):
        for j in earlier:
            after[j].append(i)
    late = [any(streams[j] != streams[i] for j in earlier) for i, earlier in enumerate(before)]
    missing = [len(earlier) for earlier in before]
    clock = OverlapSimulation(demands)
    begin = [i for i, count in enumerate(missing) if not count]
    while begin or clock.left:
        for i in begin:
            clock.start(i, event * late[i])
        begin = []
        for j in clock.advance():
            for i in after[j]:
                missing[i] -= 1
                if not missing[i]:
                    begin.append(i)
    return clock.now


def joined(demands: Sequence[Demand], microseconds: float) -> Demand:
    """What kernels that take so long together, in any order, take as one."""
    whole = max(microseconds, 1e-9)

    def share(shares: Iterable[float]) -> float:
        spent = zip(demands, shares, strict=True)
        return min(1.0, sum(d.microseconds * part for d, part in spent) / whole)

    return Demand(microseconds, share(d.places for d in demands), share(d.memory for d in demands))


def _places(kind: Kind, threads: int) -> int:
    """Blocks of so many threads that run at once where multiprocessors are full."""
    return kind.multiprocessors * max(1, kind.full_threads // threads)


def _fill(kind: Kind, launch: GridLaunch) -> float:
    """The share of a GPU that a launch uses, averaged over its rounds."""
    if not kind.multiprocessors:
        return 1.0
    x, y, z = launch.block
    places = _places(kind, x * y * z)
    x, y, z = launch.grid
    blocks = max(1, x * y * z)
    return blocks / (-(-blocks // places) * places)
