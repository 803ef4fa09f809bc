"""One call of a program as a trace in Chrome's format, which Perfetto opens.

It has a track per stream, a bar per launch, and an arrow from an event's record to its wait.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from graphc.base.errors import GraphError
from graphc.runtime.plan.lives import step_name, top_steps
from graphc.runtime.plan.plan import Copy, Launch, Loop, Plan, Record, Wait


@dataclass(frozen=True)
class Span:
    """The time in which a step ran, in microseconds from the first start in the call.

    It is one phase of a launch, a copy or a loop. `step` is its number in the plan.
    """

    step: int
    start: float
    stop: float


def trace_events(name: str, plan: Plan | None, spans: Iterable[Span]) -> list[dict[str, Any]]:
    """The events of a trace. What runs within a loop is the loop's bar."""
    if plan is None:
        return []
    steps = dict(top_steps(plan))
    found: dict[int, list[Span]] = {}
    for span in spans:
        if span.step in steps:
            found.setdefault(span.step, []).append(span)
    times = {n: (min(s.start for s in x), max(s.stop for s in x)) for n, x in found.items()}
    events: list[dict[str, Any]] = [
        {"ph": "M", "pid": 0, "name": "process_name", "args": {"name": name}},
        *(
            {"ph": "M", "pid": 0, "tid": s, "name": "thread_name", "args": {"name": f"stream {s}"}}
            for s in range(plan.streams)
        ),
    ]
    for number, (start, stop) in times.items():
        step = steps[number]
        args: dict[str, Any] = {"step": number}
        if isinstance(step, Launch | Loop):
            args |= {"lines": " ".join(step.where.lines), "module": step.where.module}
        if isinstance(step, Launch):
            kernel = plan.kernels[step.kernel]
            args |= {"bytes": kernel.bytes, "flops": kernel.flops, "template": kernel.template}
        bar = {"ph": "X", "pid": 0, "tid": step.stream, "cat": type(step).__name__.lower()}
        events.append(
            {**bar, "name": step_name(step), "ts": start, "dur": stop - start, "args": args}
        )
    return [*events, *_arrows(plan, times)]


def write_trace(path: Path, events: list[dict[str, Any]]) -> None:
    """Write the events as JSON. GraphError if the file cannot be written."""
    try:
        path.write_text(json.dumps({"traceEvents": events, "displayTimeUnit": "ms"}) + "\n")
    except OSError as error:
        raise GraphError(f"cannot write the trace to {path}: {error.strerror}") from error


def _arrows(plan: Plan, times: dict[int, tuple[float, float]]) -> Iterator[dict[str, Any]]:
    steps = [(n, s) for n, s in top_steps(plan)]
    work = [(n, s) for n, s in steps if isinstance(s, Launch | Copy | Loop) and n in times]
    for number, record in steps:
        if not isinstance(record, Record):
            continue
        before = [(n, s) for n, s in work if n < number and s.stream == record.stream]
        for at, wait in steps:
            if not isinstance(wait, Wait) or wait.event != record.event:
                continue
            behind = [(n, s) for n, s in work if n > at and s.stream == wait.stream]
            if before and behind:
                arrow = {"pid": 0, "cat": "event", "name": f"e{record.event}"}
                arrow["id"] = f"e{record.event} to {at}"
                (_, source), (first, target) = before[-1], behind[0]
                end = times[before[-1][0]][1]
                yield {**arrow, "ph": "s", "tid": source.stream, "ts": end}
                start = max(times[first][0], end)
                yield {**arrow, "ph": "f", "bp": "e", "tid": target.stream, "ts": start}
