"""The times at which steps run: modelled from the times of kernels, and measured."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from graphc.base.target import kind_of
from graphc.inspect.profile import Profile
from graphc.inspect.trace_events import Span
from graphc.report.model import Limits, SpanData
from graphc.runtime.plan.plan import Copy, Launch, Loop, Plan, Record, Step, Wait, all_steps

Duration = Callable[[Launch | Copy], float]
"""Microseconds of a step."""
Mark = tuple[float, int]
"""When something is over, and the number of the step that ended then; -1 for the beginning."""


def modelled(plan: Plan, duration: Duration) -> list[SpanData]:
    """Return when each step runs if it starts as soon as its stream and events allow.

    Each takes its `duration`; concurrent kernels do not slow each other down. A loop takes its
    count times its first iteration.
    """
    spans: list[SpanData] = []
    _play(plan.steps, 0, (0.0, -1), duration, kind_of(plan.device).rates.event, spans)
    return spans


def _play(
    steps: Sequence[Step],
    number: int,
    begin: Mark,
    duration: Duration,
    delay: float,
    spans: list[SpanData],
) -> float:
    """Add the spans of `steps`, the first of which has this number; when the last one ends."""
    streams: dict[int, Mark] = {}
    events: dict[int, Mark] = {}
    end = begin[0]
    for step in steps:
        at, cause = streams.get(step.stream, begin)
        if isinstance(step, Record):
            events[step.event] = at, cause
        elif isinstance(step, Wait):
            seen, other = events[step.event]
            streams[step.stream] = max((at, cause), (seen + delay, other), key=lambda m: m[0])
        else:
            place = len(spans)
            if isinstance(step, Loop):
                once = _play(step.steps, number + 1, (at, number), duration, delay, spans) - at
                stop = at + step.count * once
            else:
                stop = at + duration(step)
            spans.insert(place, SpanData(number, step.stream, at, stop, cause))
            streams[step.stream] = stop, number
            end = max(end, stop)
        number += 1 + (len(all_steps(step.steps)) if isinstance(step, Loop) else 0)
    return end


def critical_path(spans: Sequence[SpanData]) -> tuple[int, ...]:
    """The steps that the last end waits for, each for the one before it."""
    by_step = {span.step: span for span in spans}
    path: list[int] = []
    span = max(spans, key=lambda s: s.stop, default=None)
    while span is not None:
        path.append(span.step)
        span = by_step.get(span.cause)
    return tuple(reversed(path))


def as_ran(plan: Plan, spans: Iterable[Span]) -> tuple[SpanData, ...]:
    """One span for each step of what a device says of the phases of kernels."""
    steps = all_steps(plan.steps)
    ranges: dict[int, tuple[float, float]] = {}
    for span in spans:
        first, last = ranges.get(span.step, (span.start, span.stop))
        ranges[span.step] = min(first, span.start), max(last, span.stop)
    return tuple(SpanData(s, steps[s].stream, *ranges[s]) for s in sorted(ranges))


def limits(plan: Plan, workers: int, profile: Profile | None) -> Limits:
    """Return what the device can do, from a profile, or else the round rates that rank kernels.

    The latter are no measurement.
    """
    if profile is not None and profile.limits is not None:
        found = profile.limits
        return Limits(1e6 * found.flops, 1e6 * found.bytes, f"the machine's limits, {found.origin}")
    rates = kind_of(plan.device).rates
    many = kind_of(plan.device).multiprocessors
    title = "round rates of this kind of device, not measured"
    cores, paths = (1, 1) if many else (workers, min(workers, 2))
    return Limits(1e6 * rates.flops * cores, 1e6 * rates.bytes * paths, title)
