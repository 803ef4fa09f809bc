"""Keep a plan's work memory below a ceiling.

Tried in turn: fewer streams, a longer search for a packing, then split groups and kernels that
rerun. Otherwise the plan is refused before anything runs, naming the buffers live at the peak.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from graphc.base.errors import RunError
from graphc.runtime.plan.lives import at_peak, step_name
from graphc.runtime.plan.plan import Plan, all_steps

MOST_LISTED = 10
"""Buffers that a refusal names, the largest first."""

PlanFor = Callable[[int, bool], Plan]
"""The verified plan for a number of streams, after a long search for a packing or a brief one."""


def plan_within(
    limit: int | None,
    plan: Plan,
    plan_for: PlanFor,
    search: bool = False,
    leaner: Callable[[int], Plan] | None = None,
) -> Plan:
    """`plan`, or one of fewer streams that takes at most `limit` bytes of work memory. Raises
    RunError, with what is live at the peak of the smallest plan, if none does.

    `search` tells that the long search was made for `plan` already. `leaner` gives a plan with
    split groups and reruns that fits, or takes the least.
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
    if found.peak_bytes > limit and leaner is not None:
        tried.append(leaner(limit))
        if tried[-1].peak_bytes <= limit:
            return tried[-1]
    if found.peak_bytes > limit:
        raise RunError(refusal(min(tried, key=lambda plan: plan.peak_bytes), limit))
    note = (
        f"memory: {found.streams} of {plan.streams} streams, {found.peak_bytes} bytes; "
        f"{plan.streams} would take {plan.peak_bytes}, {limit} are allowed"
    )
    return replace(found, notes=(*found.notes, note))


def refusal(plan: Plan, limit: int) -> str:
    """Why a plan cannot run, and what is live at its peak."""
    number, held = at_peak(plan)
    lines = [
        f"{plan.name}: the plan takes {plan.peak_bytes} bytes of work memory, "
        f"memory= or GRAPHC_MEMORY_LIMIT allows {limit}; nothing has run, state is unchanged",
        f"at its peak, step {number} ({step_name(all_steps(plan.steps)[number])}), it holds:",
    ]
    lines += [
        f"{life.nbytes:12} bytes  {life.value}" + (f"  # {life.where}" if str(life.where) else "")
        for life in held[:MOST_LISTED]
    ]
    if rest := held[MOST_LISTED:]:
        lines.append(f"{sum(life.nbytes for life in rest):12} bytes  in {len(rest)} smaller ones")
    return "\n  ".join(lines)
