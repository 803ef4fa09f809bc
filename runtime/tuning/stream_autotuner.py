"""Choose the number of streams by measurement (`streams="auto"`).

1. Nothing is measured where several streams are estimated to gain nothing: where kernels fill the
   device, or each waits for the one before.
2. The plan of one stream runs on scratch state and scratch inputs, never the user's; the times of
   its kernels arrange plans of 2 and 4 streams. Plans are dropped if they take more memory than
   allowed, or 5 % more than one stream, or gain nothing by these times.
3. Plans run in turn, that of one stream twice in each round: the ratio of the two is the noise of
   this run. The calls take at most a second in all.
4. Several streams are kept if the median of their ratios to one stream is below 1 by more than the
   noise, and by more than one per cent; of those the fewest that are as good as the best. So the
   choice is not slower than one stream by more than that.

The choice is cached by machine and plan, with the times that its plan was arranged by.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any, Protocol

import numpy as np

from graphc.base.cores import usable_cores
from graphc.base.dtypes import Array
from graphc.base.errors import RunError
from graphc.base.messages import log
from graphc.ir import Type
from graphc.ir.state import StateBuffer
from graphc.runtime.compilers import cache
from graphc.runtime.compilers.shared_objects import cpu_target
from graphc.runtime.plan.plan import Copy, Launch, Loop, Plan, all_steps
from graphc.runtime.plan.text import MEASURED
from graphc.runtime.tuning.timing import Timing

CANDIDATES = (2, 4)
"""Numbers of streams that are measured besides one."""
SECONDS = 1.0
"""Seconds that the calls of all measurements may take."""
PROFILE_SHARE = 0.1
"""The fraction of these that timing single kernels may take."""
LEAST_GAIN = 0.02
"""The fraction of a call's estimated time that more streams must gain to be measured."""
LEAST_DIFFERENCE = 0.01
"""The fraction of a call's measured time that they must gain to be kept."""
MOST_PRICE = 0.05
"""The fraction of one stream's work memory that more streams may add."""
FEWEST_ROUNDS = 5
MOST_ROUNDS = 200
"""Rounds of measurement: fewer say nothing, more say no more."""
FORMAT = 1
"""The format of cached choices."""

PlanFor = Callable[[int, Mapping[str, float]], Plan]
"""The verified plan for a number of streams, given measured microseconds of kernels."""


class MeasuredProgram(Protocol):
    """A loaded program that can be timed."""

    def run(self, inputs: Sequence[Array]) -> list[Array]: ...
    def profile(self, inputs: Sequence[Array], repeats: int) -> list[Timing]: ...


Load = Callable[[Plan, Mapping[str, StateBuffer]], MeasuredProgram]


@dataclass(frozen=True)
class Choice:
    """The chosen number of streams."""

    streams: int
    """The number of streams."""
    reason: str
    """Why it was chosen."""
    figures: str = ""
    """The figures of the measurement; "" if there was none."""
    measured: Mapping[str, float] = field(default_factory=dict)
    """Microseconds of kernels that the plan is arranged by."""

    @property
    def notes(self) -> list[str]:
        """The plan's notes about the choice."""
        figures = [f"{MEASURED} streams: {self.figures}"] if self.figures else []
        return [f"streams: auto chose {self.streams}: {self.reason}", *figures]


_LATER = Choice(1, "the times of prebuilt kernels say nothing; it measures when all are compiled")


def choose_plan(
    plan_for: PlanFor,
    load: Load,
    machine: str | None,
    limit: int | None = None,
    clock: Callable[[], float] = time.perf_counter,
    measures: bool = True,
) -> Plan:
    """The plan of one, two or four streams that is fastest on this machine.

    `machine` names the machine for the cache; None where nothing can be measured. `limit` is the
    most bytes of work memory. Unless it `measures`, as some kernels are not compiled yet, the plan
    is that of one stream where no choice was made before.
    """
    one = plan_for(1, {})
    if not _may_gain(one.estimate.least, one.estimate.serial):
        choice = Choice(1, "more gain nothing by the estimate")
    elif machine is None:
        choice = Choice(1, "there is no such device here to be measured")
    elif limit is not None and one.peak_bytes > limit:
        choice = Choice(1, "one takes more memory than is allowed")
    else:
        key = _key(one, machine, limit)
        remembered = cache.recall_choice(key)
        if remembered is None and not measures:
            remembered = asdict(_LATER)
        elif remembered is None:
            remembered = asdict(_Trial(one, plan_for, load, limit, clock).choice())
            cache.remember_choice(key, remembered)
        choice = Choice(**remembered)
    plan = one if choice.streams == 1 else plan_for(choice.streams, choice.measured)
    return replace(plan, notes=(*plan.notes, *choice.notes))


def is_unmeasured(plan: Plan) -> bool:
    """Whether the number of the plan's streams is still to be measured."""
    return _LATER.notes[0] in plan.notes


def cpu_name(threads: int) -> str:
    """What the times of kernels on the CPU depend on."""
    return f"{cpu_target().arch}, {usable_cores()} cores, {threads} threads"


def _may_gain(less: float, more: float) -> bool:
    return less < (1 - LEAST_GAIN) * more


class _Trial:
    """One measurement."""

    def __init__(
        self,
        one: Plan,
        plan_for: PlanFor,
        load: Load,
        limit: int | None,
        clock: Callable[[], float],
    ) -> None:
        self.one, self.plan_for, self.load = one, plan_for, load
        self.limit, self.clock = limit, clock
        self.left = SECONDS

    def choice(self) -> Choice:
        """The choice, measured if several streams may gain."""
        try:
            return self.measured_choice()
        except (RunError, MemoryError):
            return Choice(1, "the device could not be measured")

    def measured_choice(self) -> Choice:
        """The choice by measurement."""
        log("info", f"streams: measuring {self.one.name}, for at most {SECONDS:g} s")
        state = {b.value.name: _buffer(b.value.type) for b in self.one.state}
        inputs = [filled(b.value.type.shape, b.value.type.numpy_dtype) for b in self.one.inputs]
        first = self.load(self.one, state)
        self.timed(partial(first.run, inputs))
        call = self.timed(partial(first.run, inputs))
        if call * FEWEST_ROUNDS * 3 > self.left:
            return Choice(1, f"a call takes too long to be measured within {SECONDS:g} s")
        kernels = self.kernel_times(first, inputs, call)
        plans, refused = self.candidates(kernels)
        if not plans:
            return Choice(1, refused)
        players = {count: self.load(plan, state) for count, plan in plans.items()}
        calls = {n: partial(player.run, inputs) for n, player in players.items()}
        for play in calls.values():
            self.timed(play)
        log("info", f"streams: comparing 1 and {' and '.join(map(str, plans))}")
        samples = compare(partial(first.run, inputs), calls, self.left, self.clock)
        if len(samples[1]) < FEWEST_ROUNDS:
            return Choice(1, f"calls take too long to be measured within {SECONDS:g} s")
        count, noise = decide(samples)
        figures = _figures(samples, noise, {1: self.one, **plans})
        if count == 1:
            many = " and ".join(map(str, plans))
            return Choice(1, f"{many} were not faster by more than the noise", figures)
        price = plans[count].peak_bytes - self.one.peak_bytes
        reason = f"faster by more than the noise, for {price:,} more bytes of work memory"
        return Choice(count, reason, figures, kernels)

    def timed(self, play: Callable[[], object]) -> float:
        """Seconds of a call, which are deducted from the budget."""
        begin = self.clock()
        play()
        spent = self.clock() - begin
        self.left -= spent
        return spent

    def kernel_times(
        self, player: MeasuredProgram, inputs: list[Array], call: float
    ) -> dict[str, float]:
        """Microseconds of each kernel alone; none if they would take too long."""
        repeats = int(min(10, PROFILE_SHARE * SECONDS / max(call, 1e-9) - 1))
        rows: list[Timing] = []
        if repeats >= 1:
            self.timed(lambda: rows.extend(player.profile(inputs, repeats)))
        # Kernels of loops are played more often than once a call; copies have no name of their own.
        return {t.name: round(t.microseconds / t.calls, 3) for t in rows if t.name != "copy"}

    def candidates(self, kernels: Mapping[str, float]) -> tuple[dict[int, Plan], str]:
        """The plans worth measuring, and why others are not."""
        found: dict[int, Plan] = {}
        reasons = []
        for count in CANDIDATES:
            plan = self.plan_for(count, kernels)
            if not _may_gain(plan.estimate.microseconds, plan.estimate.serial):
                reasons.append(f"{count} gain nothing by the times of kernels")
            elif self.limit is not None and plan.peak_bytes > self.limit:
                reasons.append(f"{count} take {plan.peak_bytes} bytes of the {self.limit} allowed")
            elif plan.peak_bytes > (1 + MOST_PRICE) * self.one.peak_bytes:
                price = plan.peak_bytes / self.one.peak_bytes - 1
                reasons.append(f"{count} take {price:.1%} more work memory")
            elif all(plan.steps != other.steps for other in found.values()):
                found[count] = plan
        return found, ", ".join(reasons)


def compare(
    one: Callable[[], object],
    others: Mapping[int, Callable[[], object]],
    seconds: float,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[int, list[float]]:
    """Seconds of calls of `others` by number of streams, and of `one` as 1 and again as 0, once per
    round. The rounds end before they have taken `seconds`."""
    calls = {1: one, **others, 0: one}
    samples: dict[int, list[float]] = {count: [] for count in calls}
    begin = clock()
    longest = 0.0
    for number in range(MOST_ROUNDS):
        start = clock()
        if start - begin + longest > seconds:
            break
        # Every other round goes backwards, so that none is always behind the same one.
        for count in list(calls)[:: -1 if number % 2 else 1]:
            before = clock()
            calls[count]()
            samples[count].append(clock() - before)
        longest = max(longest, clock() - start)
    return samples


def decide(samples: Mapping[int, Sequence[float]]) -> tuple[int, float]:
    """(streams, noise) from the ratios of each round to its two calls of one stream. The noise is
    how far those two differ: their ratio's median from 1, or its uncertainty."""
    again = [b / a for a, b in zip(samples[1], samples[0], strict=True)]
    noise = max(abs(float(np.median(again)) - 1), uncertainty(again))
    ratios = {n: ratio(samples, n) for n in samples if n > 1}
    best = min(ratios.values())
    if best >= 1 - max(LEAST_DIFFERENCE, noise):
        return 1, noise
    fast = [n for n in ratios if ratios[n] <= best + noise]
    return min(n for n in fast if ratios[n] < 1 - max(LEAST_DIFFERENCE, noise)), noise


def ratio(samples: Mapping[int, Sequence[float]], count: int) -> float:
    """The median time of `count` streams as a fraction of one stream's in the same round."""
    rounds = zip(samples[count], samples[1], samples[0], strict=True)
    return float(np.median([2 * t / (a + b) for t, a, b in rounds]))


def uncertainty(ratios: Sequence[float]) -> float:
    """Half the width of the interval that contains the median with about 95 per cent: 1.57
    interquartile ranges over the root of the count (McGill, Tukey and Larsen, 1978)."""
    low, high = np.quantile(ratios, (0.25, 0.75), method="weibull")
    return 1.57 * float(high - low) / math.sqrt(len(ratios))


def _figures(samples: Mapping[int, Sequence[float]], noise: float, plans: dict[int, Plan]) -> str:
    times = [
        f"{n}: {1e6 * np.median(samples[n]):.0f} us"
        + (f" ({ratio(samples, n):.3f} of 1 stream)" if n > 1 else "")
        + f", {plan.peak_bytes} bytes"
        for n, plan in plans.items()
    ]
    return f"{'; '.join(times)}; noise {noise:.1%} in {len(samples[1])} rounds"


def _buffer(type: Type) -> StateBuffer:
    buffer = StateBuffer(np.zeros(type.shape, type.numpy_dtype))
    buffer.array[...] = filled(type.shape, type.numpy_dtype)
    return buffer


def filled(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Numbers of ordinary size; zeros for other dtypes, as any index may be zero."""
    size = math.prod(shape)
    if dtype.kind != "f":
        return np.zeros(shape, dtype)
    some = 0.1 * np.random.default_rng(0).standard_normal(min(4093, size) or 1)
    array: Array = np.resize(some.astype(dtype), shape)
    return array


def _key(plan: Plan, machine: str, limit: int | None) -> str:
    """The digest of everything that the choice depends on; names and lines do not matter."""
    parts: list[object] = [FORMAT, machine, limit, plan.device]
    for step in all_steps(plan.steps):
        parts.append((type(step).__name__, getattr(step, "count", 0)))
        if isinstance(step, Launch):
            parts.append(plan.kernels[step.kernel].canonical)
        if isinstance(step, Launch | Loop | Copy):
            places = (
                (step.source, step.target)
                if isinstance(step, Copy)
                else (*step.reads, *step.writes)
            )
            parts += [(p.segment, p.start, p.stop, p.moves) for p in places]
    return cache.choice_key(*parts)
