"""From a graph of kernels to its plan: tasks, their order and streams, then memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from graphc.cost import estimate_microseconds, machine
from graphc.errors import PlanError
from graphc.ir import Graph
from graphc.kernels.kernel import Kernel
from graphc.runtime.memory import Packing, lower_bound, plan_memory, reuse_edges
from graphc.runtime.order import ancestors, memory_order
from graphc.runtime.plan import Binding, Copy, Launch, Plan, Range, Record, Step, Wait
from graphc.runtime.streams import (
    Event,
    Schedule,
    assign_streams,
    expected_order,
    needed_events,
    stream_order,
)
from graphc.runtime.tasks import Access, Task, Tasks, make_tasks

MOST_STREAMS = 8


def make_plan(
    graph: Graph,
    kernels: Mapping[str, Kernel],
    *,
    device: str,
    streams: int = 1,
    notes: Sequence[str] = (),
) -> Plan:
    """The plan of `graph`, whose nodes are kernels, relayouts and reshapes that move nothing.

    `kernels` maps the name of each node's first output to its kernel; a reshape has none.
    `streams` is 1 to 8. Raises PlanError for a node without a kernel, or two kernels of one name.
    """
    assert 1 <= streams <= MOST_STREAMS, f"streams (={streams}) is 1 to {MOST_STREAMS}"
    tasks = make_tasks(graph, kernels)
    serial = memory_order(tasks)
    in_turn = stream_order(tasks.predecessors, Schedule(serial, (0,) * len(serial)))
    bound = lower_bound(tasks, serial, ancestors(in_turn, serial))
    schedule = assign_streams(
        tasks,
        serial,
        [_microseconds(tasks, task, device) for task in tasks.tasks],
        streams,
        machine(device).event,
    )
    before = expected_order(tasks.predecessors, schedule)
    packing = plan_memory(tasks, schedule.order, before, bound)
    reuse = reuse_edges(tasks, packing.starts, before)
    edges = [own | extra for own, extra in zip(tasks.predecessors, reuse, strict=True)]
    places = _Places(tasks, packing)
    return Plan(
        name=graph.name,
        device=device,
        streams=streams,
        steps=tuple(_steps(tasks, schedule, needed_events(edges, schedule), places)),
        kernels=_kernels_by_name(graph.name, tasks),
        state=tuple(Binding(v, places.range(a)) for v, a in tasks.state),
        inputs=tuple(Binding(v, places.range(a)) for v, a in tasks.inputs),
        outputs=tuple(Binding(v, places.range(a)) for v, a in tasks.outputs),
        peak_bytes=packing.peak_bytes,
        lower_bound_bytes=bound,
        notes=tuple(notes),
    )


class _Places:
    """The bytes of each access."""

    def __init__(self, tasks: Tasks, packing: Packing) -> None:
        self.buffers, self.starts = tasks.buffers, packing.starts

    def range(self, access: Access) -> Range:
        buffer = self.buffers[access.buffer]
        start = self.starts[access.buffer] if buffer.start is None else buffer.start
        return Range(buffer.segment, start, start + buffer.nbytes, access.value)


def _steps(
    tasks: Tasks, schedule: Schedule, events: Sequence[Event], places: _Places
) -> list[Step]:
    """The tasks in the order of issue, each after its waits and before its record."""
    records = {event.source: n for n, event in enumerate(events)}
    waits: dict[int | None, list[int]] = {}
    for n, event in enumerate(events):
        for target in event.targets:
            waits.setdefault(target, []).append(n)
    steps: list[Step] = []
    if None in records:
        steps.append(Record(0, records[None]))
    for i in schedule.order:
        stream = schedule.stream[i]
        steps.extend(Wait(stream, n) for n in waits.get(i, ()))
        steps.append(_step(tasks.tasks[i], stream, places))
        if i in records:
            steps.append(Record(stream, records[i]))
    steps.extend(Wait(0, n) for n in waits.get(None, ()))
    return steps


def _step(task: Task, stream: int, places: _Places) -> Step:
    reads = tuple(map(places.range, task.reads))
    writes = tuple(map(places.range, task.writes))
    if task.kernel is None:
        return Copy(stream, reads[0], writes[0])
    return Launch(stream, task.kernel.name, reads + writes, reads, writes, task.where)


def _microseconds(tasks: Tasks, task: Task, device: str) -> float:
    if task.kernel is not None:
        return estimate_microseconds(task.kernel.flops, task.kernel.bytes, device)
    return estimate_microseconds(0, 2 * tasks.buffers[task.reads[0].buffer].nbytes, device)


def _kernels_by_name(graph_name: str, tasks: Tasks) -> dict[str, Kernel]:
    kernels: dict[str, Kernel] = {}
    for task in tasks.tasks:
        if task.kernel is None:
            continue
        if kernels.setdefault(task.kernel.name, task.kernel) != task.kernel:
            raise PlanError(f"plan {graph_name}: two kernels are called {task.kernel.name}")
    return kernels
