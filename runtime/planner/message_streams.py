"""Streams of tasks that communicate with other processes, and of those that follow from them.

Messages have a stream of their own behind those of the other tasks. It keeps their order, which is
the same in all processes, as their plans are. What follows from late messages, the updates of
parameters, has a second one, so that nothing of the backward pass waits for a message.
"""

from __future__ import annotations

from collections.abc import Sequence
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
    order = _woven([kept[n] for n in found.order], [i for i in serial if i in apart], tasks)
    done = [0] * len(tasks.tasks)
    for n, mask in enumerate(found.done):
        done[kept[n]] = sum(1 << kept[m] for m in bits(mask))
    return StreamSchedule(tuple(order), tuple(stream), tuple(done) if found.done else ())


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


def _woven(order: Sequence[int], apart: Sequence[int], tasks: Tasks) -> list[int]:
    """`order` with the tasks that are `apart`, each as soon as what it follows is there."""
    placed = 0
    whole: list[int] = []
    waiting = list(apart)

    def place(i: int) -> None:
        nonlocal placed
        whole.append(i)
        placed |= 1 << i

    def place_ready() -> None:
        again = True
        while again:
            again = False
            for i in list(waiting):
                if not tasks.predecessors[i] & ~placed:
                    waiting.remove(i)
                    place(i)
                    again = True

    place_ready()
    for i in order:
        place(i)
        place_ready()
    return whole
