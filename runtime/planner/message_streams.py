"""Streams of tasks that communicate with other processes, and of those that follow from them.

Messages have a stream of their own behind those of the other tasks. It keeps their order, which is
the same in all processes, as their plans are. What follows from late messages, the updates of
parameters, has a second one, so that nothing of the backward pass waits for a message.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from graphc.base.bits import bits
from graphc.kernels.program.message import Message
from graphc.runtime.planner.concurrency import Demand
from graphc.runtime.planner.streams import StreamSchedule, assign_streams
from graphc.runtime.planner.tasks import Task, Tasks

MESSAGE_STREAMS = 2
"""Streams that a plan with messages has besides those of its kernels."""


def with_messages(
    tasks: Tasks, serial: Sequence[int], demands: Sequence[Demand], streams: int, event: float
) -> StreamSchedule:
    """`assign_streams`, with streams of their own for messages and for what follows from them."""
    apart = _streams_apart(tasks, streams)
    if not apart:
        return assign_streams(tasks, serial, demands, streams, event)
    kept = [i for i in range(len(tasks.tasks)) if i not in apart]
    inner = _without(tasks, apart, kept)
    number = {i: n for n, i in enumerate(kept)}
    own_serial = [number[i] for i in serial if i in number]
    own_demands = [demands[i] for i in kept]
    found = assign_streams(inner, own_serial, own_demands, streams, event)
    stream = [apart.get(i, -1) for i in range(len(tasks.tasks))]
    for n, i in enumerate(kept):
        stream[i] = found.stream[n]
    order = [kept[n] for n in found.order]
    order = _woven(_early_first(order, apart, tasks), _by_message(apart, tasks), tasks)
    done = [0] * len(tasks.tasks)
    for n, mask in enumerate(found.done):
        done[kept[n]] = sum(1 << kept[m] for m in bits(mask))
    issued = 0
    for i in order:
        done[i] &= issued
        issued |= 1 << i
    return StreamSchedule(tuple(order), tuple(stream), tuple(done) if found.done else ())


def message_free(tasks: Tasks) -> bool:
    """Whether no task is a late message or one in turn. Else tasks run in the graph's order, in
    which gradients are complete early, or micro-batches alternate, rather than in the one that
    needs the least memory."""
    messages = [_message(task) for task in tasks.tasks]
    return all(message is None or (message.early and not message.in_turn) for message in messages)


def _streams_apart(tasks: Tasks, streams: int) -> dict[int, int]:
    """The streams of messages and of what follows from late ones, by task."""
    apart: dict[int, int] = {}
    late = 0
    for i, task in enumerate(tasks.tasks):
        message = _message(task)
        follows = bool(tasks.predecessors[i] & late)
        if message is not None:
            apart[i] = streams
        elif follows:
            apart[i] = streams + 1
        if follows or (message is not None and not message.early):
            late |= 1 << i
    return apart


def _message(task: Task) -> Message | None:
    return None if task.kernel is None else task.kernel.message


def _without(tasks: Tasks, apart: dict[int, int], kept: Sequence[int]) -> Tasks:
    """The tasks that are kept; what they wait for through others, they wait for themselves."""
    number = {i: n for n, i in enumerate(kept)}
    behind: dict[int, int] = {}
    masks: list[int] = []
    for i in range(len(tasks.tasks)):
        mask = 0
        for j in bits(tasks.predecessors[i]):
            mask |= behind[j] if j in apart else 1 << number[j]
        if i in apart:
            behind[i] = mask
        else:
            masks.append(mask)
    return replace(tasks, tasks=tuple(tasks.tasks[i] for i in kept), predecessors=tuple(masks))


def _early_first(order: Sequence[int], apart: Collection[int], tasks: Tasks) -> list[int]:
    """The tasks in order, but first those that wait for nothing and that only tasks `apart` wait
    for, such as the scalars of an update, so that no update waits for the end of the backward
    pass."""
    awaited_by_kept = 0
    awaited = 0
    for i in range(len(tasks.tasks)):
        awaited |= tasks.predecessors[i]
        awaited_by_kept |= 0 if i in apart else tasks.predecessors[i]
    only = awaited & ~awaited_by_kept
    first = [i for i in order if not tasks.predecessors[i] and only >> i & 1]
    return [*first, *(i for i in order if i not in first)]


def _by_message(apart: Collection[int], tasks: Tasks) -> list[int]:
    """The tasks `apart`, ordered by the last message that each is or waits for."""
    last = [-1] * len(tasks.tasks)
    for i, task in enumerate(tasks.tasks):
        last[i] = max((last[j] for j in bits(tasks.predecessors[i])), default=-1)
        if _message(task) is not None:
            last[i] = i
    return sorted(apart, key=lambda i: (last[i], i))


def _woven(order: Sequence[int], apart: Sequence[int], tasks: Tasks) -> list[int]:
    """`order` with the tasks that are `apart`, each as soon as what it follows is there."""
    placed, whole, waiting = 0, list[int](), list(apart)
    for i in (None, *order):
        if i is not None:
            whole.append(i)
            placed |= 1 << i
        for j in list(waiting):
            if not tasks.predecessors[j] & ~placed:
                waiting.remove(j)
                whole.append(j)
                placed |= 1 << j
    return whole
