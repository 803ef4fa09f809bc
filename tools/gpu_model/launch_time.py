"""How long a launch takes: `machine.FORMULA` in code."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tools.gpu_model.compiled import Launch
from tools.gpu_model.counts import Counts
from tools.gpu_model.machine import LANES, Machine
from tools.gpu_model.profile import resident_blocks, warps_of


@dataclass(frozen=True)
class Traffic:
    """Of a launch: the different bytes that it reads, those that come from and go to memory, those
    that the plan says, and the share of what it reads that is not in L2."""

    reads: float
    memory: float
    planned: float
    missed: float


@dataclass(frozen=True)
class Timed:
    """Seconds of a launch, what bounds it, the seconds that each pipe alone would take, the shares
    of the machine that it uses, and what it executes and moves in all."""

    launch: Launch
    counts: Counts
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


def timed(launch: Launch, counts: Counts, traffic: Traffic, machine: Machine) -> Timed:
    """A launch whose warps do what `counts` say."""
    return _Timing(launch, counts, traffic, machine).timed()


class _Timing:
    def __init__(self, launch: Launch, counts: Counts, traffic: Traffic, machine: Machine) -> None:
        self.launch, self.counts, self.traffic, self.machine = launch, counts, traffic, machine
        self.blocks, self.warps = math.prod(launch.grid), warps_of(launch)
        self.all_warps = self.warps * self.blocks
        self.resident = resident_blocks(launch, machine)
        self.sectors = counts.load_sectors * self.all_warps
        shared = launch.static + launch.dynamic
        together = min(self.resident, math.ceil(self.blocks / machine.multiprocessors))
        read = traffic.reads / self.blocks * together
        self.in_l1 = read <= machine.l1 - together * shared

    def timed(self) -> Timed:
        m, c, launch = self.machine, self.counts, self.launch
        slots = m.multiprocessors * self.resident
        rounds, rest = divmod(self.blocks, slots)
        parts = [(rounds, self.round_of(self.resident))] if rounds else []
        if rest:
            parts.append((1, self.round_of(math.ceil(rest / m.multiprocessors))))
        seconds = sum(n * max(terms.values()) for n, terms in parts) / m.clock
        terms = {k: sum(n * t[k] for n, t in parts) / m.clock for k in parts[0][1]}
        ideal = self.round_of(self.resident)
        busy = max(v for k, v in ideal.items() if k != "latency") * self.blocks / slots / m.clock
        moved = self.moved()
        terms |= {"dram": self.traffic.memory / m.copy, "l2": moved / m.l2}
        work = max(seconds, terms["dram"], terms["l2"])
        total = max(m.node, m.gap + work)
        span = max(total - m.gap, 1e-9)
        waves = self.blocks / slots
        occupancy = self.resident * self.warps * LANES / m.threads
        shares = (
            min(1.0, busy / span),
            min(1.0, waves / math.ceil(waves) * seconds / span),
            min(1.0, max(terms["dram"], terms["l2"]) / span),
        )
        bound = self.bound(terms, seconds, work, busy)
        executed = c.flops * self.all_warps
        taken = self.resident, occupancy, waves
        return Timed(launch, c, *taken, total, bound, terms, *shares, executed, moved)

    def round_of(self, blocks: int) -> dict[str, float]:
        """Cycles by pipe of so many blocks on a multiprocessor, and of a warp alone."""
        c, m, warps = self.counts, self.machine, blocks * self.warps / 4
        return {
            "issue": warps * c.issued / m.issue_share,
            "fma": warps * max(c.fma + c.imad, 2 * c.imad),
            "alu": warps * 2 * c.alu,
            "xu": warps * 8 * c.xu,
            "fp64": warps * 2 * c.fp64,
            "tensor": warps * c.tensor_seconds * m.clock,
            "lsu": blocks * self.warps * c.lsu,
            "latency": self.alone(),
        }

    def alone(self) -> float:
        """Cycles of a warp that nothing else is beside."""
        c, m, traffic = self.counts, self.machine, self.traffic
        asked = self.sectors + c.copy_bytes * self.all_warps
        first = min(1.0, traffic.reads / asked) if asked else 1.0
        wait = first * (m.l2_latency + (m.memory_latency - m.l2_latency) * traffic.missed)
        again = m.l1_latency if self.in_l1 and not c.copy_bytes else m.l2_latency
        wait += (1 - first) * again
        rings = c.ring * wait + (wait if c.ring_steps else 0)
        return max(c.alone + c.waits * wait, rings)

    def moved(self) -> float:
        """Bytes between L2 and all multiprocessors."""
        c = self.counts
        moved = min(self.sectors, self.traffic.reads) if self.in_l1 else self.sectors
        moved += (c.other_sectors + c.kept_sectors * c.missed) * self.all_warps
        return moved + (self.traffic.planned if c.bulk else 0)

    def bound(self, terms: dict[str, float], seconds: float, work: float, busy: float) -> str:
        """The largest term, and the share of multiprocessors that are idle for it."""
        if work <= self.machine.node - self.machine.gap or work < self.machine.gap:
            return "launch"
        bound = max(terms, key=lambda k: terms[k])
        if work == seconds and busy < 0.85 * seconds and bound != "latency":
            return f"{bound}, tail {100 * (1 - busy / seconds):.0f} %"
        return bound
