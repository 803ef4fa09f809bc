"""Plan a graph of kernels: tasks, their order and streams, then memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from graphc.base.config import MAX_STREAMS
from graphc.base.errors import PlanError
from graphc.ir import Graph
from graphc.kernels.program.kernel import Kernel
from graphc.runtime.plan.plan import (
    STILL,
    Binding,
    Copy,
    Launch,
    Link,
    Loop,
    LoopCarry,
    Plan,
    Range,
    Record,
    Stack,
    Step,
    Wait,
)
from graphc.runtime.planner.concurrency import DeviceModel
from graphc.runtime.planner.graph_tasks import make_tasks
from graphc.runtime.planner.loop_body import LoopTask, operand_name
from graphc.runtime.planner.schedule import Arrangement, arrange
from graphc.runtime.planner.tasks import BufferAccess, Task, Tasks
from graphc.runtime.planner.wavefront import merge_wavefronts


def make_plan(
    graph: Graph,
    kernels: Mapping[str, Kernel],
    *,
    device: str,
    streams: int = 1,
    notes: Sequence[str] = (),
    workers: int | None = None,
    measured: Mapping[str, float] | None = None,
    search: bool = False,
    slack_bytes: int = 0,
) -> Plan:
    """The plan of `graph`, whose nodes are kernels, relayouts, reshapes that move nothing, and
    scans over such bodies.

    `kernels` maps the name of each node's first output to its kernel, in bodies too; a reshape and
    a scan have none. `streams` is 1 to 8; messages have two more. `workers` are those of a CPU, by
    default one per stream. `measured` has measured microseconds of kernels. `search` requests a
    long search for a packing. `slack_bytes` is extra memory that the plan may use to save barriers
    in joined launches. Raises PlanError for a node without a kernel, or for two kernels of one
    name.
    """
    assert 1 <= streams <= MAX_STREAMS, f"streams (={streams}) is 1 to {MAX_STREAMS}"
    machine = DeviceModel(device, workers or streams, measured or {})
    tasks = make_tasks(graph, kernels, streams, machine)
    tasks, merged = merge_wavefronts(tasks, streams, machine)
    arrangement = arrange(tasks, streams, machine, search=search, slack_bytes=slack_bytes)
    places = _AccessRanges(tasks, arrangement)
    return Plan(
        name=graph.name,
        device=device,
        streams=max(streams, 1 + max(arrangement.schedule.stream, default=0)),
        steps=tuple(_steps(tasks, arrangement, places)),
        kernels=_kernels_by_name(graph.name, tasks),
        state=tuple(Binding(v, places.range(a)) for v, a in tasks.state),
        inputs=tuple(Binding(v, places.range(a)) for v, a in tasks.inputs),
        outputs=tuple(Binding(v, places.range(a)) for v, a in tasks.outputs),
        peak_bytes=arrangement.packing.peak_bytes,
        lower_bound_bytes=arrangement.bound,
        notes=(*notes, *merged),
        estimate=arrangement.estimate,
    )


class _AccessRanges:
    """The byte range of each access.

    In a loop's body, `operands` and `memory` are the ranges of the loop's operands and of the
    memory within an iteration, `depth` is the number of enclosing loops, and `names` gives the
    outer names of the body's constants.
    """

    def __init__(
        self,
        tasks: Tasks,
        arrangement: Arrangement,
        depth: int = 0,
        operands: Mapping[str, Range] | None = None,
        memory: Range | None = None,
        names: Mapping[str, str] | None = None,
    ) -> None:
        self.tasks, self.starts, self.depth = tasks, arrangement.packing.starts, depth
        self.operands, self.memory, self.names = operands or {}, memory, names or {}

    def range(self, access: BufferAccess) -> Range:
        """The byte range of an access."""
        buffer = self.tasks.buffers[access.buffer]
        start = self.starts[access.buffer] if buffer.start is None else buffer.start
        start += access.part[0] if access.part else 0
        stop = start + self.tasks.nbytes(access)
        operand = self.operands.get(buffer.segment)
        if buffer.segment == "work":
            operand = self.memory
        if operand is None:
            return Range(buffer.segment, start, stop, self.name(access.value))
        moves, first = operand.moves, operand.start
        if buffer.move != STILL:
            moves = (*moves, *[STILL] * (self.depth - 1 - len(moves)), buffer.move)
        return Range(operand.segment, first + start, first + stop, self.name(access.value), moves)

    def name(self, value: str) -> str:
        """The outer name of a loop's constant, or the value's own."""
        return self.names.get(value, value)


def _steps(tasks: Tasks, arrangement: Arrangement, places: _AccessRanges) -> list[Step]:
    """The tasks in issue order, each after its waits and before its record."""
    events, schedule = arrangement.events, arrangement.schedule
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


def _step(task: Task, stream: int, places: _AccessRanges) -> Step:
    reads = tuple(map(places.range, task.reads))
    writes = tuple(map(places.range, task.writes))
    if isinstance(task.loop, LoopTask):
        return _loop(task, task.loop, stream, places, reads, writes)
    if task.kernel is None:
        return Copy(stream, reads[0], writes[0], task.stage, task.guarded)
    name = task.kernel.name
    ranges = reads + writes, reads, writes
    return Launch(stream, name, *ranges, task.where, task.stage, task.guarded)


def _loop(
    task: Task,
    loop: LoopTask,
    stream: int,
    places: _AccessRanges,
    reads: tuple[Range, ...],
    writes: tuple[Range, ...],
) -> Loop:
    operands: dict[str, Range] = {}
    names: dict[str, str] = {}
    for stage, part in enumerate(loop.stages):
        own = {name: places.range(access) for name, access in part.operands.items()}
        operands.update((operand_name(stage, name), place) for name, place in own.items())
        op = part.body.op
        kept = [(f"constant {i}", v) for i, v in enumerate(op.constants)]
        kept += [(f"constant carry {i}", v) for i, v in enumerate(op.old_carries)]
        names.update((v.name, own[name].value) for name, v in kept if name in own)
    memory = places.range(loop.memory) if loop.memory else None
    inner = _AccessRanges(loop.tasks, loop.arrangement, places.depth + 1, operands, memory, names)
    numbered = list(enumerate(loop.stages))
    guard = loop.stages[0].body.guard
    return Loop(
        stream,
        loop.name,
        loop.count,
        tuple(_steps(loop.tasks, loop.arrangement, inner)),
        reads,
        writes,
        tuple(
            LoopCarry(
                slot.old.name,
                inner.name(slot.new.name),
                places.range(first),
                places.range(last),
                stage,
            )
            for stage, part in numbered
            for slot, first, last in part.carries
        ),
        tuple(Stack(v.name, places.range(x), n) for n, p in numbered for v, x in p.scanned),
        tuple(
            Stack(inner.name(v.name), places.range(y), n) for n, p in numbered for v, y in p.stacks
        ),
        loop.reverse,
        task.where,
        task.stage,
        len(loop.stages),
        tuple(Link(e.name, v.name, n) for n, (e, v) in enumerate(loop.links, 1)),
        None if guard is None else inner.range(guard),
        task.guarded,
    )


def _kernels_by_name(graph_name: str, tasks: Tasks) -> dict[str, Kernel]:
    """The kernels of all tasks, those of loops included."""
    kernels: dict[str, Kernel] = {}
    for kernel in _kernels(tasks):
        if kernels.setdefault(kernel.name, kernel) != kernel:
            raise PlanError(f"plan {graph_name}: two kernels are called {kernel.name}")
    return kernels


def _kernels(tasks: Tasks) -> Iterator[Kernel]:
    for task in tasks.tasks:
        if isinstance(task.loop, LoopTask):
            yield from _kernels(task.loop.tasks)
        elif task.kernel is not None:
            yield task.kernel
