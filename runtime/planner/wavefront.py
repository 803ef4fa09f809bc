"""Merge loops into a wavefront: layers of a recurrent stack run concurrently, each an iteration
behind.

A loop that scans what another loop of equal length and direction stacks needs in iteration t only
what the other computed in its iteration t. So the two can be one loop with one more iteration,
whose second stage runs iteration t - 1 while the first runs iteration t, on streams of its own: a
wavefront through layers and time. Its values stay where they were and move an iteration later,
except for what only one stage passes to the next (`wavefront_buffers.py`). A third loop after the
second becomes a third stage.

Loops are merged where that is estimated to take less time, with streams waiting for each other once
per iteration, and where nothing else is between them: the second may need nothing else that follows
the first. With one stream there is nothing to gain, nor on a CPU next to kernels of several chunks,
which occupy all threads. (Measured on two threads with kernels of two scans of 64 x 64 x 64
softmax: 700 microseconds apart, 720 at once.)
"""

from __future__ import annotations

import math
from dataclasses import replace

from graphc.base.bits import bits
from graphc.base.target import kind_of
from graphc.ir import Value
from graphc.runtime.plan.plan import Move
from graphc.runtime.planner.concurrency import DeviceModel
from graphc.runtime.planner.loop_body import LoopStage, LoopTask, operand_name
from graphc.runtime.planner.schedule import arrange
from graphc.runtime.planner.serial_order import ancestors
from graphc.runtime.planner.tasks import BufferAccess, PlannedBuffer, Task, Tasks, executable_order
from graphc.runtime.planner.wavefront_buffers import pass_on

GAIN = 0.9
"""The largest accepted time of a wavefront, as a fraction of that of its loops in sequence."""


def merge_wavefronts(tasks: Tasks, streams: int, machine: DeviceModel) -> tuple[Tasks, list[str]]:
    """The tasks with loops merged, and a note about each wavefront."""
    if streams == 1:
        return tasks, []
    begun = set[str]()
    while starts := [a for a, _ in _pairs(tasks) if tasks.tasks[a].name not in begun]:
        begun.add(tasks.tasks[starts[0]].name)
        tasks = _with_more_stages(tasks, starts[0], streams, machine)
    loops = [t.loop for t in tasks.tasks if isinstance(t.loop, LoopTask) and len(t.loop.stages) > 1]
    return tasks, [
        f"wavefront: {loop.name} plays {len(loop.stages)} loops of {loop.length} iterations at once"
        for loop in loops
    ]


def _with_more_stages(tasks: Tasks, a: int, streams: int, machine: DeviceModel) -> Tasks:
    """The tasks with as many loops after loop `a` merged as stages as are estimated to gain most. A
    merge that gains nothing may pay with the next, as with a product between two layers."""
    name, best, most, apart = tasks.tasks[a].name, tasks, -math.inf, 0.0
    while pair := next((p for p in _pairs(tasks) if tasks.tasks[p[0]].name == name), None):
        first, second = (tasks.tasks[i].loop for i in pair)
        assert isinstance(first, LoopTask) and isinstance(second, LoopTask)
        link = _link(first, second)
        assert link is not None
        tasks = pass_on(tasks, *pair, *link)
        loop = _staged(tasks, *pair, link, streams, machine)
        if loop is None:
            break
        apart += second.demand.microseconds + (0 if apart else first.demand.microseconds)
        tasks = _merged(tasks, *pair, loop)
        together = loop.demand.microseconds + loop.count * machine.event
        if together <= GAIN * apart and apart - together > most:
            best, most = tasks, apart - together
    return best


def _pairs(tasks: Tasks) -> list[tuple[int, int]]:
    """Pairs of loops of which the second could be the next stage of the first."""
    before = ancestors(tasks.predecessors, range(len(tasks.tasks)))
    return [
        (a, b)
        for b, second in enumerate(tasks.tasks)
        if isinstance(second.loop, LoopTask)
        for a in bits(tasks.predecessors[b])
        if isinstance(first := tasks.tasks[a].loop, LoopTask)
        and _link(first, second.loop) is not None
        and not any(before[other] >> a & 1 for other in bits(tasks.predecessors[b]))
    ]


def _link(first: LoopTask, second: LoopTask) -> tuple[Value, Value] | None:
    """(element of the second, value of the first) if the second scans a stack that the last stage
    of the first writes and needs nothing else of it; else None."""
    same = (first.length, first.reverse) == (second.length, second.reverse)
    if not same or len(second.stages) > 1 or _has_loops(first) or _has_loops(second):
        return None
    if any(loop.stages[0].body.op.guarded for loop in (first, second)):
        return None
    last, part = first.stages[-1], second.stages[0]
    made = {y: v for v, y in last.stacks if v not in last.body.op.body.inputs}
    links = [(element, made[x]) for element, x in part.scanned if x in made]
    written = {y for p in first.stages for _, y in p.stacks}
    written |= {end for p in first.stages for _, _, end in p.carries}
    others = [x for _, x in part.scanned if x in written]
    others += [start for _, start, _ in part.carries if start in written]
    others += [a for n, a in part.operands.items() if n.startswith("constant") and a in written]
    return links[0] if len(links) == len(others) == 1 else None


def _has_loops(loop: LoopTask) -> bool:
    return any(task.loop is not None for task in loop.tasks.tasks)


def _staged(
    tasks: Tasks, a: int, b: int, link: tuple[Value, Value], streams: int, machine: DeviceModel
) -> LoopTask | None:
    """Loop b merged into loop a as its next stage; None where kernels occupy all threads."""
    first, second = tasks.tasks[a].loop, tasks.tasks[b].loop
    assert isinstance(first, LoopTask) and isinstance(second, LoopTask)
    part = second.stages[0]
    scanned = tuple(pair for pair in part.scanned if pair[0] != link[0])
    parts = (*first.stages, replace(part, scanned=scanned))
    body = _body(parts)
    if not kind_of(machine.device).overlaps_chunks and any(
        t.kernel and max(t.kernel.phases) > 1 for t in body.tasks
    ):
        return None
    arrangement = arrange(body, streams, machine, in_loop=True)
    return LoopTask(first.name, parts, body, arrangement, None, (*first.links, link))


def _body(parts: tuple[LoopStage, ...]) -> Tasks:
    """The tasks of all bodies, each a stage later than those before."""
    tasks: list[Task] = []
    predecessors: list[int] = []
    buffers: list[PlannedBuffer] = []
    for stage, part in enumerate(parts):
        own, shift, start = part.body.tasks, len(buffers), len(tasks)

        def moved(
            accesses: tuple[BufferAccess, ...], shift: int = shift
        ) -> tuple[BufferAccess, ...]:
            return tuple(replace(access, buffer=access.buffer + shift) for access in accesses)

        buffers += [_delayed(b, stage, part.body.op.length, len(parts)) for b in own.buffers]
        predecessors += [mask << start for mask in own.predecessors]
        tasks += [
            replace(task, reads=moved(task.reads), writes=moved(task.writes), stage=stage)
            for task in own.tasks
        ]
    return Tasks(tuple(tasks), tuple(predecessors), tuple(buffers), (), (), ())


def _delayed(buffer: PlannedBuffer, stage: int, length: int, stages: int) -> PlannedBuffer:
    """A buffer of a body that starts `stage` iterations later in a loop of several stages."""
    if buffer.segment == "work":
        return buffer
    named = replace(buffer, segment=operand_name(stage, buffer.segment))
    start, move = buffer.start or 0, buffer.move
    if move.period == 1:
        return named
    if move.period == length:
        along = Move(move.stride, length + stages - 1)
        return replace(named, start=start - stage * move.stride, move=along)
    if stage % 2:
        return replace(named, start=start + move.stride, move=Move(-move.stride, 2))
    return named


def _merged(tasks: Tasks, a: int, b: int, loop: LoopTask) -> Tasks:
    """The tasks with `loop` in place of the loops a and b."""
    first, second = tasks.tasks[a], tasks.tasks[b]
    assert isinstance(first.loop, LoopTask) and isinstance(second.loop, LoopTask)
    buffers = tasks.buffers
    if loop.arrangement.packing.peak_bytes:
        sizes = loop.arrangement.packing.peak_bytes, loop.arrangement.bound
        loop = replace(loop, memory=BufferAccess(len(buffers), f"{loop.name}.iteration"))
        buffers = (*buffers, PlannedBuffer("work", sizes[0], least=sizes[1]))
    gone = {first.loop.memory, second.loop.memory}
    writes = [w for w in (*first.writes, *second.writes) if w not in gone]
    reads = [r for r in dict.fromkeys((*first.reads, *second.reads)) if r not in first.writes]
    memory = [loop.memory] if loop.memory else []
    where = first.where.merge(second.where)
    listed = list(tasks.tasks)
    listed[a] = Task(None, tuple(reads), (*writes, *memory), where, loop)
    kept = [i for i in range(len(listed)) if i != b]
    place = {i: n for n, i in enumerate(kept)} | {b: kept.index(a)}

    def renamed(mask: int) -> int:
        return sum(1 << n for n in {place[i] for i in bits(mask)})

    both = (tasks.predecessors[a] | tasks.predecessors[b]) & ~(1 << a)
    before = [renamed(both if i == a else tasks.predecessors[i]) for i in kept]
    order = executable_order(before)
    number = {old: new for new, old in enumerate(order)}
    return replace(
        tasks,
        buffers=buffers,
        tasks=tuple(listed[kept[i]] for i in order),
        predecessors=tuple(sum(1 << number[j] for j in bits(before[i])) for i in order),
    )
