"""Model the time of a step: its launches and copies as the nodes of a graph."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from tools.gpu_model.compiled import (
    ByteRange,
    CompiledJoinedLaunch,
    CompiledKernel,
    CompiledLaunch,
    CompiledPlan,
    CompiledStep,
)
from tools.gpu_model.joined_time import Work, joined_timed, launched, work_of
from tools.gpu_model.launch_time import Timed, Traffic, timed
from tools.gpu_model.machine import Machine
from tools.gpu_model.profile import Share, shares_of

PAGE = 16384
"""Bytes of the plan's memory that are in L2 as a whole or not at all."""
SOON = 1e-12
"""Seconds that count as zero."""
SHARES = ("pipe", "slots", "memory")
"""The resources of the machine that a node uses."""


@dataclass(frozen=True)
class GraphNode:
    """A launch or a copy: its seconds, the fractions of pipes, block slots and memory that it uses,
    and its predecessors."""

    kernel: str
    stream: int
    seconds: float
    pipe: float
    slots: float
    memory: float
    after: tuple[int, ...]


@dataclass
class PlayedStep:
    """The nodes of a step, and for each kernel the launches of each of its calls."""

    nodes: list[GraphNode] = field(default_factory=list)
    calls: dict[str, list[list[Timed]]] = field(default_factory=dict)


@dataclass
class Walked:
    """What walks of launches found. Machines that differ in rates and times alone, not in what
    `counts.py` and `profile.py` read, may share it as long as the compiled plans are kept."""

    profiles: dict[tuple[int, object, object], list[Share]] = field(default_factory=dict)
    works: dict[tuple[int, object], Work] = field(default_factory=dict)


def played(program: CompiledPlan, machine: Machine, walked: Walked | None = None) -> PlayedStep:
    """A step in steady state, which finds in L2 what the step before left; `walked` is used and
    extended."""
    return _Player(program, machine, walked or Walked()).played()


def scheduled(nodes: Sequence[GraphNode], machine: Machine) -> float:
    """Seconds of the step. Nodes start when their predecessors have ended; concurrent nodes slow
    down where pipes, block slots or memory exceed 100 % together. The gap before a node uses no
    resource."""
    left = [len(set(node.after)) for node in nodes]
    followers: dict[int, list[int]] = {}
    for i, node in enumerate(nodes):
        for before in set(node.after):
            followers.setdefault(before, []).append(i)
    now, running = 0.0, dict[int, float]()
    gaps = {i: machine.gap for i, count in enumerate(left) if not count}
    while running or gaps:
        slow = max(1.0, *(sum(getattr(nodes[i], s) for i in running) for s in SHARES))
        passed = min([*(t * slow for t in running.values()), *gaps.values()])
        now += passed
        running = {i: t - passed / slow for i, t in running.items()}
        gaps = {i: t - passed for i, t in gaps.items()}
        for i in [i for i, t in gaps.items() if t <= SOON]:
            del gaps[i]
            running[i] = max(nodes[i].seconds - machine.gap, 1e-9)
        for i in [i for i, t in running.items() if t <= SOON]:
            del running[i]
            for follower in followers.get(i, ()):
                left[follower] -= 1
                if not left[follower]:
                    gaps[follower] = machine.gap
    return now


def critical_path(nodes: Sequence[GraphNode]) -> float:
    """Seconds of the longest chain, ignoring concurrent nodes."""
    ends: list[float] = []
    for node in nodes:
        ends.append(max((ends[i] for i in node.after), default=0.0) + node.seconds)
    return max(ends, default=0.0)


class Cache:
    """Tracks which bytes of the plan's memory are still in L2, by how many were touched since."""

    def __init__(self, steps: Sequence[CompiledStep], keeps: float) -> None:
        ends: Counter[str] = Counter()
        for place in (p for step in steps for p in (*step.reads, *step.writes)):
            ends[place.segment] = max(ends[place.segment], place.stop)
        self._last = {s: np.full(end // PAGE + 2, -np.inf) for s, end in ends.items()}
        self._keeps, self._clock = keeps, 0.0

    def touch(self, places: Sequence[ByteRange]) -> tuple[float, float]:
        """The bytes of these places, and how many of them come from memory."""
        total = missed = 0.0
        for place in dict.fromkeys(places):
            count = place.stop - place.start
            if count <= 0:
                continue
            pages = self._last[place.segment][place.start // PAGE : (place.stop - 1) // PAGE + 1]
            missed += count * float(np.mean(self._clock - pages > self._keeps))
            total += count
            self._clock += count
            pages[:] = self._clock
        return total, missed


class Touched(NamedTuple):
    """Bytes that a call reads and writes, and how many of each miss L2."""

    read: float
    missed: float
    written: float
    fresh: float


NOTHING = Touched(0.0, 0.0, 0.0, 0.0)


class _Player:
    def __init__(self, program: CompiledPlan, machine: Machine, walked: Walked) -> None:
        self.program, self.machine, self.walked = program, machine, walked
        self.cache = Cache(program.steps, machine.l2_keeps)
        self.made = PlayedStep()
        self.last: dict[int, int] = {}
        self.events: dict[int, list[int]] = {}
        self.waiting: dict[int, list[int]] = {}
        self.joining = NOTHING
        """What has been touched by the steps of a joined launch so far."""
        found = ((self.joined_of(step), step) for step in program.steps)
        self.ends = {joined.first: step for joined, step in found if joined}

    def played(self) -> PlayedStep:
        for step in self.program.steps:
            self.touch(step)
        for step in self.program.steps:
            if joined := self.joined_of(step):
                self.join(step, joined)
                continue
            before = [*self.waiting.get(step.stream, ())]
            before += [self.last[step.stream]] if step.stream in self.last else []
            if step.kind == "record":
                self.events[step.event] = before
            elif step.kind == "wait":
                waiting = self.waiting.setdefault(step.stream, [])
                waiting += self.events.get(step.event, ())
            elif step.kind == "copy":
                self.copy(step)
            else:
                self.launch(step)
        return self.made

    def joined_of(self, step: CompiledStep) -> CompiledJoinedLaunch | None:
        for joined in self.program.joined:
            if joined.first <= step.number < joined.stop:
                return joined
        return None

    def join(self, step: CompiledStep, joined: CompiledJoinedLaunch) -> None:
        """Run a joined launch at the position of its last step."""
        touched = self.touch(step)
        before = self.joining
        self.joining = Touched(*(a + b for a, b in zip(before, touched, strict=True)))
        if step is not self.ends[joined.first]:
            return
        touched, self.joining, m = self.joining, NOTHING, self.machine
        launch = launched(joined.kernel.launches[0], joined.multiple, m)
        works, key = self.walked.works, (id(launch.code), launch.grid)
        if key not in works:
            works[key] = work_of(launch, m)
        missed = touched.missed / touched.read if touched.read else 0.0
        memory = touched.missed + touched.fresh
        traffic = Traffic(touched.read, memory, touched.read + touched.written, missed)
        made = joined_timed(launch, works[key], traffic, m)
        self.made.calls[joined.kernel.name] = [[made]]
        self.add(step, made.seconds, made.pipe, made.slots, made.memory, joined.kernel.name)

    def touch(self, step: CompiledStep) -> Touched:
        return Touched(*self.cache.touch(step.reads), *self.cache.touch(step.writes))

    def copy(self, step: CompiledStep) -> None:
        touched, m = self.touch(step), self.machine
        memory = (touched.missed + touched.fresh) / m.copy
        work = max(memory, (touched.read + touched.written) / m.l2)
        if touched.read:
            self.add(step, max(m.node, m.gap + work), 0.0, 0.0, 1.0)

    def launch(self, step: CompiledStep) -> None:
        kernel = self.program.kernels[step.kernel]
        call = self.timings(kernel, self.touch(step))
        self.made.calls.setdefault(step.kernel, []).append(call)
        for each in call:
            self.add(step, each.seconds, each.pipe, each.slots, each.memory)

    def add(
        self,
        step: CompiledStep,
        seconds: float,
        pipe: float,
        slots: float,
        memory: float,
        kernel: str = "",
    ) -> None:
        after = self.waiting.pop(step.stream, [])
        after += [self.last[step.stream]] if step.stream in self.last else []
        self.last[step.stream] = len(self.made.nodes)
        node = GraphNode(
            kernel or step.kernel, step.stream, seconds, pipe, slots, memory, tuple(after)
        )
        self.made.nodes.append(node)

    def timings(self, kernel: CompiledKernel, touched: Touched) -> list[Timed]:
        """The launches of a call, which share the planned bytes in proportion to what their code
        moves."""
        found, m = [], self.machine
        reads = touched.read + kernel.workspace
        for i, launch in enumerate(kernel.launches):
            shares = self.shares(kernel, launch)
            loads, stores, bulk = (
                sum(share.total(name) for share in shares for name in names)
                for names in (("load_bytes", "copy_bytes"), ("store_bytes",), ("bulk",))
            )
            read = reads if bulk else min(loads, reads)
            writes = touched.written if bulk else min(stores, touched.written)
            again = i > 0 and reads <= m.l2_keeps
            missed = touched.missed / touched.read if touched.read and i == 0 else 1.0
            missed = 0.0 if again or not touched.read else missed
            fresh = touched.fresh / touched.written if touched.written else 0.0
            memory = read * missed + writes * fresh
            traffic = Traffic(read, memory, reads + touched.written, missed)
            found.append(timed(launch, shares, traffic, m))
        return found

    def shares(self, kernel: CompiledKernel, launch: CompiledLaunch) -> list[Share]:
        key = id(launch.code), launch.grid, launch.block
        profiles = self.walked.profiles
        if key not in profiles:
            shares = profiles[key] = shares_of(launch, self.machine)
            executed = sum(share.total("flops") for share in shares)
            unknown = any(share.counts.unknown for share in shares)
            partial = any(share.counts.truncated for share in shares)
            partial |= len(kernel.launches) == 1 and unknown
            if partial and 0 < executed < kernel.flops:  # walks that did not see all of the loops
                for share in shares:
                    share.counts.scale(kernel.flops / executed)
        return profiles[key]
