"""A ceiling for a plan's work memory: fewer streams, then a longer search for a packing, then a
refusal before anything runs, with the buffers that live at the peak."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from graphc.errors import RunError
from graphc.runtime.plan.plan import Copy, Launch, Loop, Plan

MOST_LISTED = 10
"""Buffers that a refusal names, the largest first."""

PlanFor = Callable[[int, bool], Plan]
"""The verified plan of so many streams, after a long search for a packing or a brief one."""


def plan_within(limit: int | None, plan: Plan, plan_for: PlanFor, search: bool = False) -> Plan:
    """`plan`, or one of fewer streams that takes at most `limit` bytes of work memory; `search`
    says that the long search is wanted in any case, and was made for `plan`.

    Raises RunError if none does, with what lives at the peak of the one of least memory.
    """
    if limit is None or plan.peak_bytes <= limit:
        return plan
    tried = [plan]
    for streams in range(plan.streams - 1, 0, -1):
        tried.append(plan_for(streams, search))
        if tried[-1].peak_bytes <= limit:
            break
    if not search and tried[-1].lower_bound_bytes <= limit < tried[-1].peak_bytes:
        tried.append(plan_for(tried[-1].streams, True))
    found = tried[-1]
    if found.peak_bytes > limit:
        raise RunError(refusal(min(tried, key=lambda plan: plan.peak_bytes), limit))
    note = (
        f"memory: {found.streams} of {plan.streams} streams, {found.peak_bytes} bytes; "
        f"{plan.streams} would take {plan.peak_bytes}, {limit} are allowed"
    )
    return replace(found, notes=(*found.notes, note))


def refusal(plan: Plan, limit: int) -> str:
    """Why a plan cannot run, and what it holds at its peak."""
    number, name, held = at_peak(plan)
    lines = [
        f"{plan.name}: the plan takes {plan.peak_bytes} bytes of work memory, "
        f"memory= or GRAPHC_MEMORY_LIMIT allows {limit}; nothing has run, state is unchanged",
        f"at its peak, step {number} ({name}), it holds:",
    ]
    lines += [
        f"{size:12} bytes  {value}" + (f"  # {line}" if line else "")
        for size, value, line in held[:MOST_LISTED]
    ]
    if rest := held[MOST_LISTED:]:
        lines.append(f"{sum(size for size, *_ in rest):12} bytes  in {len(rest)} smaller ones")
    return "\n  ".join(lines)


def at_peak(plan: Plan) -> tuple[int, str, list[tuple[int, str, str]]]:
    """The number and the name of the step at which most bytes of work memory live, in the order
    of issue, and those that do: bytes, value and the line that it comes from, the largest first.
    A buffer lives from the step that first writes it to the last that uses it."""
    lives: dict[tuple[int, int, str], list[int]] = {}
    lines: dict[tuple[int, int, str], str] = {}
    for number, step in enumerate(plan.steps):
        if isinstance(step, Copy):
            used = [step.source, step.target]
        elif isinstance(step, Launch | Loop):
            used = [*step.reads, *step.writes]
        else:
            continue
        for place in used:
            if place.segment == "work" and place.start < place.stop:
                key = place.start, place.stop, place.value
                lives.setdefault(key, []).append(number)
                lines.setdefault(key, str(getattr(step, "where", "")))
    steps = [
        [key for key, uses in lives.items() if uses[0] <= number <= uses[-1]]
        for number in range(len(plan.steps))
    ]
    number = max(range(len(steps)), key=lambda n: sum(stop - a for a, stop, _ in steps[n]))
    held = [
        (stop - start, value, lines[start, stop, value]) for start, stop, value in steps[number]
    ]
    step = plan.steps[number]
    name = step.kernel if isinstance(step, Launch) else getattr(step, "name", "copy")
    return number, name, sorted(held, key=lambda buffer: -buffer[0])
