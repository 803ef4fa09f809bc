"""Shrink the buffers between stages of a wavefront, which often need no stack.

The second of two loops reads an element of a stack one iteration after the first wrote it. If
nothing else reads the stack, two alternating buffers for the last two elements suffice, as for a
carry; a carry that is stored in the stack then does so too. If the second loop writes its own stack
over what it has read, nothing else can read the first one's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from graphc.ir import Value
from graphc.runtime.plan.plan import Move
from graphc.runtime.planner.loop_body import LoopStage, LoopTask, paired_slot
from graphc.runtime.planner.tasks import BufferAccess, PlannedBuffer, Task, Tasks, aligned

BufferPlace = tuple[int | None, Move]
"""Where a buffer of a body begins in its operand, and how it moves."""


def pass_on(tasks: Tasks, a: int, b: int, element: Value, value: Value) -> Tasks:
    """The tasks in which loop `a` passes `value`, computed by its last stage, to loop `b`, which
    scans it as `element`, in as little memory as possible. Valid only if the two loops are
    merged."""
    first, second = tasks.tasks[a].loop, tasks.tasks[b].loop
    assert isinstance(first, LoopTask) and isinstance(second, LoopTask)
    before, behind = first.stages[-1], second.stages[0]
    passed = dict(behind.scanned)[element]
    kept = replace(before, stacks=tuple(s for s in before.stacks if s[1] != passed))
    if any(y.byte_range == passed.byte_range for _, y in behind.stacks):
        return _with_part(tasks, a, kept)
    writer, reader = (_operands(loop, passed.buffer) for loop in (first, second))
    if first.length < 3 or len(writer) != 1 or len(reader) != 1:
        return tasks
    size, ring = element.type.nbytes, len(tasks.buffers)
    turns = Move(aligned(size), 2)
    swaps = {passed: BufferAccess(ring, f"{value.name}.passed")}
    moves: dict[BufferPlace, BufferPlace] = {}
    place: BufferPlace = (0, turns)
    for slot, initial, last in before.carries:
        if last.buffer == passed.buffer and slot.stacked:
            if slot.new != value:
                return tasks
            pair = paired_slot(slot.old, slot.new, first.length)
            ends = pair.first_access(ring, initial.value), pair.last_access(ring, last.value)
            own = before.operands[writer[0]]
            swaps |= {initial: ends[0], last: ends[1], own: replace(own, buffer=ring)}
            old, new = pair.moves(first.length, first.reverse)
            moves = dict(zip(slot.moves(first.length, first.reverse), (old, new), strict=True))
            place = new
    if not _is_private(tasks, a, b, passed, swaps):
        return tasks
    tasks = replace(tasks, buffers=(*tasks.buffers, PlannedBuffer("work", aligned(size) + size)))
    tasks = _with_part(tasks, a, _moved(kept, writer[0], moves, place))
    tasks = _with_part(tasks, b, _moved(behind, reader[0], {}, place))
    return replace(tasks, tasks=tuple(_swapped(task, swaps) for task in tasks.tasks))


def _operands(loop: LoopTask, buffer: int) -> list[str]:
    """The operands of all stages in that buffer."""
    return [n for part in loop.stages for n, x in part.operands.items() if x.buffer == buffer]


def _is_private(
    tasks: Tasks, a: int, b: int, passed: BufferAccess, swaps: Mapping[BufferAccess, BufferAccess]
) -> bool:
    """Whether only the two loops use the stack. Other tasks may use a carry's initial value and
    what is left of it."""
    bound = (*tasks.inputs, *tasks.outputs, *tasks.state)
    if any(access.buffer == passed.buffer for _, access in bound):
        return False
    for i, task in enumerate(tasks.tasks):
        used = {x for x in (*task.reads, *task.writes) if x.buffer == passed.buffer}
        allowed = swaps.keys() if i == a else {passed} if i == b else swaps.keys() - {passed}
        if not used <= allowed:
            return False
    return tasks.buffers[passed.buffer].segment == "work"


def _swapped(task: Task, swaps: Mapping[BufferAccess, BufferAccess]) -> Task:
    """The task with accesses replaced, in a loop's stages too."""

    def swap(access: BufferAccess) -> BufferAccess:
        return swaps.get(access, access)

    reads, writes = (tuple(map(swap, accesses)) for accesses in (task.reads, task.writes))
    task = replace(task, reads=reads, writes=writes)
    if not isinstance(task.loop, LoopTask):
        return task
    parts = tuple(
        replace(
            part,
            operands={n: swap(x) for n, x in part.operands.items()},
            carries=tuple((slot, swap(x), swap(y)) for slot, x, y in part.carries),
            scanned=tuple((v, swap(x)) for v, x in part.scanned),
            stacks=tuple((v, swap(y)) for v, y in part.stacks),
        )
        for part in task.loop.stages
    )
    return replace(task, loop=replace(task.loop, stages=parts))


def _moved(
    part: LoopStage, name: str, moves: Mapping[BufferPlace, BufferPlace], place: BufferPlace
) -> LoopStage:
    """The stage whose buffers in the operand `name` are where `moves` say, or else at `place`."""

    def moved(buffer: PlannedBuffer) -> PlannedBuffer:
        if buffer.segment != name:
            return buffer
        start, move = moves.get((buffer.start, buffer.move), place)
        return replace(buffer, start=start, move=move)

    own = part.body.tasks
    body = replace(part.body, tasks=replace(own, buffers=tuple(map(moved, own.buffers))))
    return replace(part, body=body)


def _with_part(tasks: Tasks, number: int, part: LoopStage) -> Tasks:
    """The tasks with another last stage of a loop."""
    task = tasks.tasks[number]
    assert isinstance(task.loop, LoopTask)
    loop = replace(task.loop, stages=(*task.loop.stages[:-1], part))
    listed = list(tasks.tasks)
    listed[number] = replace(task, loop=loop)
    return replace(tasks, tasks=tuple(listed))
