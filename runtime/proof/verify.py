"""Prove that a plan's streams and events order all that must be ordered. Shares no code with the
planner: it reads the plan alone.

First each step is checked alone: its ranges are within their segments, it writes no input, its
kernel allows its in-place writes, and its event is recorded once and before any wait. Then the plan
is executed over shadow memory (`shadow.py`): every two steps that touch a byte, and do not both
only read it, are ordered by streams and events, and every read finds the value that it names.

Every step must follow the beginning on stream 0 and precede the end on stream 0. A plan is executed
twice in a row, so that it is proved to follow itself. A loop is proved separately (`loop_proof.py`)
and executed as one step, and so are joined launches (`joined_proof.py`).
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import pairwise

from graphc.base.errors import PlanError
from graphc.kernels.program.kernel import Kernel
from graphc.runtime.plan.certificate import Certificate
from graphc.runtime.plan.plan import Copy, Launch, Loop, Plan, Range, Record, Step, Wait, all_steps
from graphc.runtime.proof.joined_proof import check_joined
from graphc.runtime.proof.loop_proof import prove
from graphc.runtime.proof.shadow import Shadow, named, range_text, ranges, writes_of

LINE = 64
"""Bytes of the alignment of every value."""


def verify(plan: Plan) -> Certificate:
    """Prove `plan`, followed by itself. Raises PlanError with the two steps, their ranges and the
    missing order."""
    pairs = _check_shape(plan)
    return _certificate(plan.name, (plan,), pairs + Shadow((plan, plan)).pairs)


def verify_sequence(first: Plan, second: Plan) -> Certificate:
    """Prove `first` followed by `second` on one device and arena, with state of one name as the
    same bytes. Raises PlanError."""
    pairs = _check_shape(first) + _check_shape(second)
    pairs += Shadow((first, second)).pairs
    return _certificate(f"{first.name}, then {second.name}", (first, second), pairs)


def _certificate(name: str, plans: Sequence[Plan], pairs: int) -> Certificate:
    """The certificate of plans that were proved together."""
    steps = [step for plan in plans for step in all_steps(plan.steps)]

    def count(kind: type[Step]) -> int:
        return sum(isinstance(step, kind) for step in steps)

    parts = [(p.steps, p.state, p.inputs, p.outputs, p.kernels, p.peak_bytes) for p in plans]
    return Certificate(
        plan=name,
        streams=max(plan.streams for plan in plans),
        launches=count(Launch),
        copies=count(Copy),
        events=count(Record),
        waits=count(Wait),
        needed=sum(_needed(plan.steps, 1) for plan in plans),
        loops=count(Loop),
        accesses=sum(len(ranges(step)) for step in steps),
        pairs=pairs,
        peak_bytes=max(plan.peak_bytes for plan in plans),
        lower_bound_bytes=max(plan.lower_bound_bytes for plan in plans),
        digest=hashlib.sha256(repr(parts).encode()).hexdigest()[:16],
        sums=_sums(k for p in plans for k in p.kernels.values()),
        meaning="; ".join(n for p in plans for n in p.notes if n.startswith("meaning:")),
    )


def _sums(kernels: Iterable[Kernel]) -> str:
    """The promises of kernels that add floats, in words; "" if none does."""
    found = {k.name: k.sums for k in kernels if k.sums != "none"}
    own = [name for name, promise in found.items() if promise == "own"]
    stated = len(found) - len(own)
    words = [f"{stated} kernels add in the order stated"] if stated else []
    words += [f"{len(own)} in an order of their own: {', '.join(own)}"] if own else []
    return f"sums: {', '.join(words)}" if words else ""


def _needed(steps: Sequence[Step], beginning: int = 0) -> int:
    """The number of waits that order their stream after steps, or after the `beginning` on stream
    0, that nothing else orders before."""
    ended: dict[int, int] = {0: beginning}
    events: dict[int, int] = {}
    needed = 0
    for index, step in enumerate(steps, 1):
        now = ended.get(step.stream, 0)
        if isinstance(step, Record):
            events[step.event] = now
        elif isinstance(step, Wait):
            needed += bool(events[step.event] & ~now)
            ended[step.stream] = now | events[step.event]
        else:
            ended[step.stream] = now | 1 << index
            needed += _needed(step.steps) if isinstance(step, Loop) else 0
    return needed


def _check_shape(plan: Plan) -> int:
    """Check each step by itself, and prove loops and joined launches. Returns the number of pairs
    compared for these."""
    number = 0
    _check_steps(plan, plan.steps, 0)
    pairs = check_joined(plan)
    parts = {(r.segment, r.start) for s in plan.steps if isinstance(s, Loop) for r in ranges(s)}
    segments = _segment_ends(plan)
    for step in plan.steps:
        problem = _place_problem(step, plan, segments, parts)
        if problem:
            raise PlanError(f"plan {plan.name}: {named(number, step)} {problem}")
        if isinstance(step, Loop):
            pairs += prove(step, plan, number)
            number += len(all_steps(step.steps))
        number += 1
    work = [r.stop for step in plan.steps for r in ranges(step) if r.segment == "work"]
    peak = -(-max(work, default=0) // LINE) * LINE
    if peak != plan.peak_bytes:
        raise PlanError(
            f"plan {plan.name}: its peak is given as {plan.peak_bytes} bytes, its steps use {peak}"
        )
    return pairs


def _check_steps(plan: Plan, steps: Sequence[Step], number: int, looped: bool = False) -> None:
    """Check streams, events, kernels and sizes of `steps`, numbered from `number`, and of steps in
    loops."""
    recorded: set[int] = set()
    for step in steps:
        problem = _step_problem(step, plan, recorded, looped)
        if problem:
            raise PlanError(f"plan {plan.name}: {named(number, step)} {problem}")
        if isinstance(step, Record):
            recorded.add(step.event)
        if isinstance(step, Loop):
            _check_steps(plan, step.steps, number + 1, looped=True)
            number += len(all_steps(step.steps))
        number += 1


def _segment_ends(plan: Plan) -> dict[str, int]:
    """The bytes of each segment. Raises PlanError where bindings overlap or have the wrong size."""
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


def _step_problem(step: Step, plan: Plan, recorded: set[int], looped: bool) -> str:
    """What is wrong with `step`, wherever its ranges lie; "" if nothing is. `recorded` are the
    events that earlier steps record."""
    if not 0 <= step.stream < plan.streams:
        return f"is on a stream that is not one of {plan.streams}"
    if isinstance(step, Record):
        if step.event in recorded:
            return "records an event that is recorded before"
    elif isinstance(step, Wait):
        return "" if step.event in recorded else "waits for an event that is not recorded before it"
    elif backwards := [place for place in ranges(step) if _size(place) < 0]:
        return f"uses {range_text(backwards[0])}, which ends before it begins"
    elif isinstance(step, Copy) and _size(step.source) != _size(step.target):
        source, target = range_text(step.source), range_text(step.target)
        return f"copies {source} to {target}, which has another size"
    elif isinstance(step, Launch):
        return _launch_problem(step, plan, looped)
    return ""


def _launch_problem(launch: Launch, plan: Plan, looped: bool) -> str:
    """What is wrong with a launch; "" if nothing is."""
    kernel = plan.kernels.get(launch.kernel)
    if kernel is None:
        return "has no kernel"
    if launch.arguments != launch.reads + launch.writes:
        return "has other arguments than what it reads, then what it writes"
    if kernel.workspace and _size(launch.writes[-1]) != kernel.workspace:
        scratch = range_text(launch.writes[-1])
        return f"has a workspace {scratch}, its kernel needs {kernel.workspace} bytes"
    if kernel.draws_tickets and looped:
        return "draws tickets in a loop, whose iterations would share the counters"
    return ""


def _place_problem(
    step: Step, plan: Plan, segments: dict[str, int], parts: set[tuple[str, int]]
) -> str:
    """What is wrong with the ranges of a step outside of loops; "" if nothing is. `parts` are the
    beginnings of what loops use: a carry may be anywhere in its stack."""
    for place in ranges(step):
        if not 0 <= place.start <= place.stop <= segments.get(place.segment, -1):
            return f"uses {range_text(place)}, which is outside its segment"
        if place.start % LINE and (place.segment, place.start) not in parts:
            return f"uses {range_text(place)}, which is not aligned to {LINE} bytes"
    for place in writes_of(step):
        for binding in plan.inputs:
            if binding.place.overlaps(place):
                return f"writes {range_text(place)}, which is the input %{binding.value.name}"
    if isinstance(step, Copy) and step.source.overlaps(step.target):
        return f"copies {range_text(step.source)} onto itself"
    return _overlap_problem(step, plan) if isinstance(step, Launch) else ""


def _overlap_problem(launch: Launch, plan: Plan) -> str:
    """What is wrong with a launch's overlapping ranges; "" if nothing is."""
    allowed = set(plan.kernels[launch.kernel].inplace)
    written = sorted((w.segment, w.start, n) for n, w in enumerate(launch.writes) if _size(w))
    for (*_, one), (*_, other) in pairwise(written):
        a, b = launch.writes[one], launch.writes[other]
        if a.overlaps(b):
            return f"writes both {range_text(a)} and {range_text(b)}"
    for m, source in enumerate(launch.reads):
        behind = bisect_left(written, (source.segment, source.stop))
        # What is written lies apart, so what overlaps the source stands directly before that place.
        for place in range(behind - 1, -1, -1):
            n = written[place][2]
            target = launch.writes[n]
            if not target.overlaps(source):
                break
            if source != target or (m, n) not in allowed:
                return (
                    f"reads {range_text(source)} and writes {range_text(target)}, "
                    "which its kernel does not allow in place"
                )
    return ""


def _size(place: Range) -> int:
    return place.stop - place.start
