"""The order, streams, events and memory of tasks: of a whole plan, or of a loop's body."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from graphc.cost import estimate_microseconds
from graphc.runtime.planner.memory import Packing, lower_bound, plan_memory, reuse_edges
from graphc.runtime.planner.order import ancestors, memory_order
from graphc.runtime.planner.streams import (
    Event,
    Schedule,
    assign_streams,
    expected_order,
    needed_events,
    stream_order,
)
from graphc.runtime.planner.tasks import Task, Tasks, bits
from graphc.target import kind_of


@dataclass(frozen=True)
class Arrangement:
    """`bound` are the most bytes live at once over the serial order; `microseconds` estimates how
    long all tasks take on their streams."""

    schedule: Schedule
    events: tuple[Event, ...]
    packing: Packing
    bound: int
    microseconds: float


def arrange(tasks: Tasks, streams: int, device: str, looped: bool = False) -> Arrangement:
    """Arrange `tasks` on at most `streams` streams. Those of a loop's body need no event for the
    beginning and the end of an iteration."""
    serial = memory_order(tasks)
    in_turn = stream_order(tasks.predecessors, Schedule(serial, (0,) * len(serial)))
    bound = lower_bound(tasks, serial, ancestors(in_turn, serial))
    microseconds = [_microseconds(tasks, task, device) for task in tasks.tasks]
    schedule = assign_streams(tasks, serial, microseconds, streams, kind_of(device).rates.event)
    before = expected_order(tasks.predecessors, schedule)
    packing = plan_memory(tasks, schedule.order, before, bound)
    reuse = reuse_edges(tasks, packing.starts, before)
    edges = [own | extra for own, extra in zip(tasks.predecessors, reuse, strict=True)]
    events = needed_events(edges, schedule, looped)
    return Arrangement(schedule, events, packing, bound, duration(edges, schedule, microseconds))


def duration(
    predecessors: Sequence[int], schedule: Schedule, microseconds: Sequence[float]
) -> float:
    """Microseconds from the first beginning to the last end, each task beginning as soon as its
    stream and what it waits for allow."""
    free: dict[int, float] = {}
    ends = [0.0] * len(predecessors)
    for i in schedule.order:
        stream = schedule.stream[i]
        begin = max((free.get(stream, 0.0), *(ends[j] for j in bits(predecessors[i]))))
        ends[i] = free[stream] = begin + microseconds[i]
    return max(ends, default=0.0)


def _microseconds(tasks: Tasks, task: Task, device: str) -> float:
    if task.loop is not None:
        return task.loop.count * task.loop.arrangement.microseconds
    if task.kernel is not None:
        return estimate_microseconds(task.kernel.flops, task.kernel.bytes, device)
    return estimate_microseconds(0, 2 * tasks.nbytes(task.reads[0]), device)
