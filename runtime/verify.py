"""Proof that a plan's streams and events order all that must be ordered. Shares no code with the
planner: it reads the plan alone.

First each step by itself: its ranges lie in their segments, it writes no input, its kernel allows
what it does in place, its event is recorded once and before it is waited for. Then the plan is
played over shadow memory (`shadow.py`): every two steps that touch a byte, and do not both only
read it, are ordered by streams and events; every read finds the value that it names.

Every step must come after the beginning on stream 0 and before the end on stream 0. A plan is
played twice in a row, so that it is proved to follow itself.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from graphc.errors import PlanError
from graphc.runtime.plan import Copy, Launch, Plan, Record, Step, Wait
from graphc.runtime.shadow import Shadow, named, range_text, ranges

LINE = 64
"""Bytes: every value starts on a multiple of it."""


@dataclass(frozen=True)
class Certificate:
    """What has been proved, and over how much.

    `accesses` are the ranges that the steps read and write; `pairs` counts, for each stretch of
    bytes, the pairs of steps that were found in order. `digest` names the plan that was verified.
    """

    plan: str
    launches: int
    copies: int
    events: int
    waits: int
    accesses: int
    pairs: int
    peak_bytes: int
    lower_bound_bytes: int
    digest: str

    def __str__(self) -> str:
        return (
            f"verified {self.plan}: {self.launches} launches, {self.copies} copies, "
            f"{self.events} events, {self.waits} waits; {self.pairs} pairs over "
            f"{self.accesses} accesses are ordered; peak {self.peak_bytes} bytes, "
            f"lower bound {self.lower_bound_bytes} bytes; {self.digest}"
        )


def verify(plan: Plan) -> Certificate:
    """Prove `plan`, followed by itself. Raises PlanError with the two steps, their ranges and what
    is missing."""
    _check_shape(plan)
    return _certificate(plan.name, (plan,), Shadow((plan, plan)).pairs)


def verify_sequence(first: Plan, second: Plan) -> Certificate:
    """Prove `first` followed by `second` on one device, on one arena, state of one name being the
    same bytes. Raises PlanError."""
    _check_shape(first)
    _check_shape(second)
    pairs = Shadow((first, second)).pairs
    return _certificate(f"{first.name}, then {second.name}", (first, second), pairs)


def _certificate(name: str, plans: Sequence[Plan], pairs: int) -> Certificate:
    steps = [step for plan in plans for step in plan.steps]

    def count(kind: type[Step]) -> int:
        return sum(isinstance(step, kind) for step in steps)

    parts = [(p.steps, p.state, p.inputs, p.outputs, p.kernels, p.peak_bytes) for p in plans]
    return Certificate(
        plan=name,
        launches=count(Launch),
        copies=count(Copy),
        events=count(Record),
        waits=count(Wait),
        accesses=sum(len(ranges(step)) for step in steps),
        pairs=pairs,
        peak_bytes=max(plan.peak_bytes for plan in plans),
        lower_bound_bytes=max(plan.lower_bound_bytes for plan in plans),
        digest=hashlib.sha256(repr(parts).encode()).hexdigest()[:16],
    )


def _check_shape(plan: Plan) -> None:
    """All that can be said of each step by itself."""
    segments = _segment_ends(plan)
    recorded: set[int] = set()
    for index, step in enumerate(plan.steps):
        problem = _step_problem(step, plan, segments, recorded)
        if problem:
            raise PlanError(f"plan {plan.name}: {named(index, step)} {problem}")
    work = [r.stop for step in plan.steps for r in ranges(step) if r.segment == "work"]
    peak = -(-max(work, default=0) // LINE) * LINE
    if peak != plan.peak_bytes:
        raise PlanError(
            f"plan {plan.name}: its peak is given as {plan.peak_bytes} bytes, its steps use {peak}"
        )


def _segment_ends(plan: Plan) -> dict[str, int]:
    """The bytes of each segment. Raises PlanError where bindings overlap or have another size."""
    for segment, bindings in (("state", plan.state), ("io", (*plan.inputs, *plan.outputs))):
        end, before = 0, ""
        for binding in sorted(bindings, key=lambda b: (b.place.start, b.place.stop)):
            name, place = binding.value.name, binding.place
            if place.segment != segment or place.stop - place.start != binding.value.type.nbytes:
                raise PlanError(
                    f"plan {plan.name}: %{name} : {binding.value.type} is bound to "
                    f"{range_text(place)}"
                )
            if place.start < end:
                raise PlanError(
                    f"plan {plan.name}: %{name} and %{before} share {range_text(place)}"
                )
            end, before = place.stop, name
    ends = {"work": plan.peak_bytes}
    ends["state"] = max((b.place.stop for b in plan.state), default=0)
    ends["io"] = max((b.place.stop for b in (*plan.inputs, *plan.outputs)), default=0)
    return ends


def _step_problem(step: Step, plan: Plan, segments: dict[str, int], recorded: set[int]) -> str:
    """What is wrong with `step`, or nothing. Adds the event that it records."""
    if not 0 <= step.stream < plan.streams:
        return f"is on a stream that is not one of {plan.streams}"
    if isinstance(step, Record):
        if step.event in recorded:
            return "records an event that is recorded before"
        recorded.add(step.event)
        return ""
    if isinstance(step, Wait):
        return "" if step.event in recorded else "waits for an event that is not recorded before it"
    for place in ranges(step):
        if not 0 <= place.start <= place.stop <= segments.get(place.segment, -1):
            return f"uses {range_text(place)}, which is outside its segment"
        if place.start % LINE:
            return f"uses {range_text(place)}, which is not aligned to {LINE} bytes"
    for place in step.writes if isinstance(step, Launch) else (step.target,):
        for binding in plan.inputs:
            if binding.place.overlaps(place):
                return f"writes {range_text(place)}, which is the input %{binding.value.name}"
    return _launch_problem(step, plan) if isinstance(step, Launch) else _copy_problem(step)


def _copy_problem(copy: Copy) -> str:
    if copy.source.overlaps(copy.target):
        return f"copies {range_text(copy.source)} onto itself"
    if copy.source.stop - copy.source.start != copy.target.stop - copy.target.start:
        return (
            f"copies {range_text(copy.source)} to {range_text(copy.target)}, which has another size"
        )
    return ""


def _launch_problem(launch: Launch, plan: Plan) -> str:
    kernel = plan.kernels.get(launch.kernel)
    if kernel is None:
        return "has no kernel"
    if launch.arguments != launch.reads + launch.writes:
        return "has other arguments than what it reads, then what it writes"
    if kernel.workspace:
        scratch = launch.writes[-1]
        if scratch.stop - scratch.start != kernel.workspace:
            return (
                f"has a workspace {range_text(scratch)}, its kernel needs {kernel.workspace} bytes"
            )
    for n, target in enumerate(launch.writes):
        for other in launch.writes[:n]:
            if target.overlaps(other):
                return f"writes both {range_text(other)} and {range_text(target)}"
        for m, source in enumerate(launch.reads):
            if source.overlaps(target) and (source != target or (m, n) not in kernel.inplace):
                return (
                    f"reads {range_text(source)} and writes {range_text(target)}, "
                    "which its kernel does not allow in place"
                )
    return ""
