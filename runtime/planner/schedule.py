"""Order, streams, events and memory of tasks, for a whole plan or a loop's body."""

from __future__ import annotations

from dataclasses import dataclass

from graphc.base.bits import bits
from graphc.kernels.program.joined import joinable
from graphc.runtime.plan.plan import Estimate
from graphc.runtime.planner.concurrency import Demand, DeviceModel, joined, makespan
from graphc.runtime.planner.memory.arena import Packing, lower_bound, plan_memory, reuse_edges
from graphc.runtime.planner.memory.packing import BRIEF, LONG
from graphc.runtime.planner.message_streams import message_free, with_messages
from graphc.runtime.planner.serial_order import ancestors, memory_order
from graphc.runtime.planner.streams import (
    StreamEvent,
    StreamSchedule,
    expected_order,
    longest_path,
    needed_events,
    stream_order,
    transitive_reduction,
)
from graphc.runtime.planner.tasks import Task, Tasks

SLACK_BYTES = 1 << 20
"""Extra bytes that a plan of one stream may use, so that parts of a joined launch need no barrier
merely because they share memory. A choice, where memory is not limited."""
SLACK_SHARE, MOST_SLACK = 8, 8 << 20
"""Where all kernels can be such parts: one part in `SLACK_SHARE` of the memory, at most
`MOST_SLACK` bytes."""


@dataclass(frozen=True)
class Arrangement:
    """Tasks with their order, streams, events and memory."""

    schedule: StreamSchedule
    """The issue order and streams."""
    events: tuple[StreamEvent, ...]
    """The events between streams."""
    packing: Packing
    """The buffers' places in the arena."""
    bound: int
    """The most bytes live at once over the serial order."""
    demand: Demand
    """The estimated demand of all tasks on their streams."""
    estimate: Estimate
    """Estimated times with this and other numbers of streams."""


def arrange(
    tasks: Tasks,
    streams: int,
    machine: DeviceModel,
    in_loop: bool = False,
    search: bool = False,
    slack_bytes: int = 0,
) -> Arrangement:
    """Arrange `tasks` on at most `streams` streams.

    `search` requests a long search for a packing. `slack_bytes` is extra memory that may save
    barriers in joined launches. Tasks of a loop's body (`in_loop`) need no events for the beginning
    and end of an iteration.
    """
    serial = memory_order(tasks) if message_free(tasks) else tuple(range(len(tasks.tasks)))
    in_turn = stream_order(tasks.predecessors, StreamSchedule(serial, (0,) * len(serial)))
    bound = lower_bound(tasks, serial, ancestors(in_turn, serial))
    demands = [_demand(tasks, task, machine) for task in tasks.tasks]
    schedule = with_messages(tasks, serial, demands, streams, machine.event)
    before = expected_order(tasks.predecessors, schedule)
    work = LONG if search else BRIEF
    packing = plan_memory(tasks, schedule.order, before, bound, work)
    if slack_bytes and streams == 1 and machine.barrier:
        # What depends on nothing of each other may share an interval between two waits.
        needed = ancestors(tasks.predecessors, schedule.order)
        apart = plan_memory(tasks, schedule.order, needed, bound, work)
        if apart.peak_bytes <= packing.peak_bytes + _slack(tasks, slack_bytes, packing.peak_bytes):
            packing = apart
    reuse = reuse_edges(tasks, packing.starts, schedule.order)
    edges = [own | extra for own, extra in zip(tasks.predecessors, reuse, strict=True)]
    events = needed_events(edges, schedule, in_loop)
    whole = transitive_reduction(stream_order(edges, schedule), schedule.order)
    spent = makespan([[*bits(m)] for m in whole], schedule.stream, demands, machine.event)
    used = [d.microseconds * max(d.places, d.memory) for d in demands]
    alone = [d.microseconds for d in demands]
    # A loop may become a stage behind another: it may hold nothing up but what it uses.
    least = [u if t.loop else a for u, a, t in zip(used, alone, tasks.tasks, strict=True)]
    path = max(longest_path(tasks.predecessors, serial, least), default=0.0)
    estimate = Estimate(spent, sum(alone), max(path, sum(used)))
    return Arrangement(schedule, events, packing, bound, joined(demands, spent), estimate)


def _slack(tasks: Tasks, requested: int, peak: int) -> int:
    """Extra bytes that tasks may use: `requested`, or more if all can be joined."""
    if not all(joinable(task.kernel) for task in tasks.tasks if task.kernel is not None):
        return requested
    return max(requested, min(peak // SLACK_SHARE, MOST_SLACK))


def _demand(tasks: Tasks, task: Task, machine: DeviceModel) -> Demand:
    """The demand of one task."""
    if task.loop is not None:
        return task.loop.demand
    if task.kernel is not None:
        return machine.kernel(task.kernel)
    return machine.copy(tasks.nbytes(task.reads[0]))
