"""Concurrency cost model: the time of a kernel on a device, alone and concurrently with others.

`slowdown` is the model. It assumes:

1. A device has places, which are a CPU's workers or a GPU's multiprocessors, and a memory
   bandwidth. A kernel alone uses a constant fraction of both: the average over the rounds in which
   its chunks or blocks get a place, the last of which may leave places empty.
2. Concurrent kernels run at full speed while their fractions add up to at most one. Beyond that all
   slow down equally, so that places or bandwidth are exactly used up. Two kernels that each fill
   the device therefore gain nothing from concurrency; what is gained is empty places, of small
   kernels and of last rounds.
3. A CPU core uses the bandwidth of a core, and two cores use up the memory's bandwidth. A third of
   a GPU's multiprocessors do. `full_threads` fill a multiprocessor.
4. Not modelled: caches, which concurrent kernels share and successive ones inherit; priorities,
   which decide who slows down but not how much work is done; clock frequencies.

A measured time replaces the estimate of that kernel, but not its fractions. The times rank launches
and streams; they are not predictions.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from graphc.base.target import Kind, kind_of
from graphc.kernels.program.kernel import GridLaunch, Kernel

MEMORY_PLACES = 2
"""CPU cores that together use up the memory bandwidth."""
MEMORY_SHARE = 3
"""One part in this many of a GPU's multiprocessors uses up the memory bandwidth."""


@dataclass(frozen=True)
class Demand:
    """What a kernel needs of a device."""

    microseconds: float
    """Its time alone."""
    places: float = 1.0
    """The fraction of places that it occupies meanwhile."""
    memory: float = 0.0
    """The fraction of the memory bandwidth that it uses meanwhile."""


def slowdown(demands: Iterable[Demand]) -> float:
    """The factor by which concurrent kernels slow down; at least 1."""
    places = memory = 0.0
    for demand in demands:
        places += demand.places
        memory += demand.memory
    return max(1.0, places, memory)


@dataclass(frozen=True)
class DeviceModel:
    """The device that a plan is made for."""

    device: str
    """The kind of device, such as "cuda"."""
    workers: int = 1
    """The workers of a CPU."""
    measured: Mapping[str, float] = field(default_factory=dict)
    """Measured microseconds of kernels alone, by name."""

    @property
    def event(self) -> float:
        """Microseconds until one stream sees another's event."""
        return kind_of(self.device).rates.event

    @property
    def barrier(self) -> float:
        """Microseconds of a barrier of all blocks of a launch; 0 where there is none."""
        return kind_of(self.device).rates.barrier

    def kernel(self, kernel: Kernel) -> Demand:
        """The demand of a run of the kernel."""
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
        """The demand of a copy of `nbytes`: the whole memory bandwidth."""
        kind = kind_of(self.device)
        rate = kind.rates.bytes * (1 if kind.multiprocessors else min(self.workers, MEMORY_PLACES))
        return Demand(kind.rates.launch + 2 * nbytes / rate, 1.0, 1.0)


class OverlapSimulation:
    """Simulates concurrent kernels on one device over time."""

    def __init__(self, demands: Sequence[Demand]) -> None:
        self.demands = demands
        self.now = 0.0
        self.left: dict[int, float] = {}
        """Remaining microseconds of each running kernel, as if it ran alone."""

    def start(self, i: int, delay: float = 0.0) -> None:
        """Start kernel i `delay` microseconds from now."""
        self.left[i] = self.demands[i].microseconds + delay

    def slowdown(self) -> float:
        """The factor by which the running kernels are slowed down."""
        return slowdown([self.demands[i] for i in self.left])

    def full(self) -> bool:
        """Whether the running kernels leave nothing to others."""
        running = [self.demands[i] for i in self.left]
        return sum(d.places for d in running) >= 1 or sum(d.memory for d in running) >= 1

    def advance(self) -> list[int]:
        """Advance to the next completion; returns the kernels that complete."""
        slow = self.slowdown()
        step = min(self.left.values())
        ended = [i for i, left in self.left.items() if left <= step]
        self.now += step * slow
        self.left = {i: left - step for i, left in self.left.items() if left > step}
        return ended


def spent(runs: Iterable[tuple[float, Demand]], until: float = math.inf) -> float:
    """Microseconds until concurrent kernels, given as (remaining microseconds alone, demand),
    complete, or until one has done `until` microseconds of its work."""
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
    """Microseconds until the last kernel completes.

    Each starts when those `before` it have completed, its stream's predecessor among them, and
    `event` later if one of them is on another stream.
    """
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
    """The demand of several kernels, run in any order within `microseconds`, as one."""
    whole = max(microseconds, 1e-9)

    def share(shares: Iterable[float]) -> float:
        spent = zip(demands, shares, strict=True)
        return min(1.0, sum(d.microseconds * part for d, part in spent) / whole)

    return Demand(microseconds, share(d.places for d in demands), share(d.memory for d in demands))


def _places(kind: Kind, threads: int) -> int:
    """Blocks of `threads` that run at once where multiprocessors are full."""
    return kind.multiprocessors * max(1, kind.full_threads // threads)


def _fill(kind: Kind, launch: GridLaunch) -> float:
    """The fraction of a GPU that a launch uses, averaged over its rounds."""
    if not kind.multiprocessors:
        return 1.0
    x, y, z = launch.block
    places = _places(kind, x * y * z)
    x, y, z = launch.grid
    blocks = max(1, x * y * z)
    return blocks / (-(-blocks // places) * places)
