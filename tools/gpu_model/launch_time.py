"""Model the time of a launch: `machine.FORMULA` in code."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tools.gpu_model.compiled import CompiledLaunch
from tools.gpu_model.counts import WarpCounts
from tools.gpu_model.machine import LANES, Machine
from tools.gpu_model.profile import Share, average, resident_blocks, warps_of

PIPES = ("issue", "fma", "alu", "xu", "fp64", "tensor", "lsu")


@dataclass(frozen=True)
class Traffic:
    """Memory traffic of a launch."""

    reads: float
    """Distinct bytes that it reads."""
    memory: float
    """Bytes from and to memory."""
    planned: float
    """Bytes by the plan."""
    missed: float
    """The fraction of its reads that misses L2."""


@dataclass(frozen=True)
class Timed:
    """The modelled time of a launch: seconds, what bounds it, seconds of each pipe alone, fractions
    of the machine in use, and the totals executed and moved."""

    launch: CompiledLaunch
    counts: WarpCounts
    resident: int
    occupancy: float
    waves: float
    seconds: float
    bound: str
    terms: dict[str, float]
    pipe: float
    slots: float
    memory: float
    executed: float
    moved: float


def timed(
    launch: CompiledLaunch, shares: Sequence[Share], traffic: Traffic, machine: Machine
) -> Timed:
    """The time of a launch with the blocks of `shares`."""
    return _Timing(launch, shares, traffic, machine).timed()


def cycles(c: WarpCounts, warps: float, machine: Machine) -> dict[str, float]:
    """Cycles of each pipe of a multiprocessor for `warps` warps."""
    w = warps / 4
    tensor = c.mma_seconds / machine.mma_share + c.wgmma_seconds / machine.wgmma_share
    return {
        "issue": w * c.issued / machine.issue_share,
        "fma": w * max(c.fma + c.imad, 2 * c.imad),
        "alu": w * 2 * c.alu,
        "xu": w * 8 * c.xu,
        "fp64": w * 2 * c.fp64,
        "tensor": w * machine.clock * tensor,
        "lsu": warps * c.lsu,
    }


class _Timing:
    def __init__(
        self, launch: CompiledLaunch, shares: Sequence[Share], traffic: Traffic, machine: Machine
    ) -> None:
        self.launch, self.shares, self.traffic, self.machine = launch, shares, traffic, machine
        self.blocks, self.warps = math.prod(launch.grid), warps_of(launch)
        self.resident = resident_blocks(launch, machine)
        self.sectors = sum(share.total("load_sectors") for share in shares)
        self.copies = sum(share.total("copy_bytes") for share in shares)
        shared = launch.static + launch.dynamic
        together = min(self.resident, math.ceil(self.blocks / machine.multiprocessors))
        read = traffic.reads / self.blocks * together
        self.in_l1 = read <= machine.l1 - together * shared

    def timed(self) -> Timed:
        m, slots = self.machine, self.machine.multiprocessors * self.resident
        terms = self.alike(self.shares[0]) if len(self.shares) == 1 else self.members()
        seconds = terms.pop("all")
        busy = max(terms[pipe] for pipe in PIPES if pipe in terms)
        busy = min(busy, self.mean())
        if last := max((self.last(share) for share in self.shares), default=0.0):
            terms["last"] = last
            seconds += last
        moved = self.moved()
        terms |= {"dram": self.traffic.memory / m.copy, "l2": moved / m.l2}
        work = max(seconds, terms["dram"], terms["l2"])
        total = max(m.node, m.gap + work)
        span = max(total - m.gap, 1e-9)
        waves = self.blocks / slots
        occupancy = self.resident * self.warps * LANES / m.threads
        parts = (
            min(1.0, busy / span),
            min(1.0, waves / math.ceil(waves) * seconds / span),
            min(1.0, max(terms["dram"], terms["l2"]) / span),
        )
        bound = self.bound(terms, seconds, work, busy)
        executed = sum(share.total("flops") for share in self.shares)
        taken = self.resident, occupancy, waves
        counts = average(self.shares)
        return Timed(self.launch, counts, *taken, total, bound, terms, *parts, executed, moved)

    def alike(self, share: Share) -> dict[str, float]:
        """Seconds by pipe and in total if all blocks do the same: whole rounds of resident blocks,
        and the rest."""
        m = self.machine
        rounds, rest = divmod(self.blocks, m.multiprocessors * self.resident)
        sizes = [(rounds, self.resident)] if rounds else []
        sizes += [(1, math.ceil(rest / m.multiprocessors))] if rest else []
        alone = self.alone(share)
        found = [
            (n, {**cycles(share.counts, r * self.warps, m), "latency": alone}) for n, r in sizes
        ]
        terms = {k: sum(n * t[k] for n, t in found) / m.clock for k in found[0][1]}
        return {**terms, "all": sum(n * max(t.values()) for n, t in found) / m.clock}

    def members(self) -> dict[str, float]:
        """Seconds by pipe of the busiest multiprocessor and in total if blocks differ.
        Multiprocessors get blocks in turn while they have space, then each block goes to the least
        busy one."""
        m, count = self.machine, int(self.machine.multiprocessors)
        loads, alone, longest = np.zeros((count, len(PIPES))), np.zeros(count), np.zeros(count)
        for share in self.shares:
            work = np.array([*cycles(share.counts, self.warps, m).values()])
            latency = self.alone(share)
            for number in range(share.first, share.first + share.blocks):
                least = loads.max(axis=1) + alone / self.resident
                at = number % count if number < count * self.resident else int(least.argmin())
                loads[at] += work
                alone[at] += latency
                longest[at] = max(longest[at], latency)
        waits = np.maximum(alone / self.resident, longest)
        terms = dict(zip(PIPES, loads.max(axis=0) / m.clock, strict=True))
        terms["latency"] = float(waits.max()) / m.clock
        terms["all"] = float(np.maximum(loads.max(axis=1), waits).max()) / m.clock
        return {name: float(value) for name, value in terms.items()}

    def mean(self) -> float:
        """Seconds of the busiest pipe if all multiprocessors had equal work."""
        m, sums = self.machine, dict.fromkeys(PIPES, 0.0)
        for share in self.shares:
            found = cycles(share.counts, share.blocks * self.warps / m.multiprocessors, m)
            sums = {pipe: value + found[pipe] for pipe, value in sums.items()}
        return max(sums.values()) / m.clock

    def last(self, share: Share) -> float:
        """Seconds that last blocks take after all others, each on its own multiprocessor."""
        m, found = self.machine, 0.0
        for last in share.lasts:
            c = last.counts
            moved = self.warps * (c.load_sectors + c.other_sectors + c.kept_sectors)
            work = max(*cycles(c, self.warps, m).values(), moved / m.l2_of_one)
            rounds = math.ceil(last.groups / m.multiprocessors)
            found += rounds * work + 2 * m.l2_latency + m.ticket + 2 * m.fence
        return found / m.clock

    def alone(self, share: Share) -> float:
        """Cycles of a warp by itself."""
        c, m, traffic = share.counts, self.machine, self.traffic
        asked = self.sectors + self.copies
        first = min(1.0, traffic.reads / asked) if asked else 1.0
        wait = first * (m.l2_latency + (m.memory_latency - m.l2_latency) * traffic.missed)
        again = m.l1_latency if self.in_l1 and not c.copy_bytes else m.l2_latency
        wait += (1 - first) * again
        rings = c.ring * wait + (wait if c.ring_steps else 0)
        return max(c.alone + c.waits * wait, rings)

    def moved(self) -> float:
        """Bytes between L2 and all multiprocessors."""
        moved = min(self.sectors, self.traffic.reads) if self.in_l1 else self.sectors
        for share in self.shares:
            moved += share.total("other_sectors")
            moved += share.total("kept_sectors") * share.counts.missed
        bulk = any(share.counts.bulk for share in self.shares)
        return moved + (self.traffic.planned if bulk else 0)

    def bound(self, terms: dict[str, float], seconds: float, work: float, busy: float) -> str:
        """The largest term, and the fraction of multiprocessors that idle because of it."""
        if work <= self.machine.node - self.machine.gap or work < self.machine.gap:
            return "launch"
        bound = max(terms, key=lambda k: terms[k])
        if work == seconds and terms.get("last", 0.0) > 0.15 * seconds:
            return f"{bound}, last blocks {100 * terms['last'] / seconds:.0f} %"
        if work == seconds and busy < 0.85 * seconds and bound != "latency":
            return f"{bound}, tail {100 * (1 - busy / seconds):.0f} %"
        return bound
