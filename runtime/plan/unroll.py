"""Unroll a plan's loops for devices that run flat lists of steps, such as CUDA graphs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import count

from graphc.runtime.plan.plan import Copy, Launch, Loop, Plan, Range, Record, Step, Wait, all_steps

WrittenOut = Launch | Copy | Record | Wait
"""A step that is not a loop."""


@dataclass(frozen=True)
class Unrolled:
    """A step with its ranges resolved for one iteration."""

    step: WrittenOut
    number: int
    """The number of the step in the plan."""
    iterations: tuple[int, ...] = ()
    """The iterations of the enclosing loops, the outermost first."""


def unrolled(plan: Plan) -> list[Unrolled]:
    """The steps of `plan` without loops, in issue order.

    A loop's further streams become streams of the plan, counted from the loop's; events at the ends
    of each iteration fork and join them. Each event is recorded once.
    """
    fresh = count(1 + max((s.event for s in plan.steps if isinstance(s, Record)), default=-1))
    return list(_Unrolling(plan.streams, fresh).steps(plan.steps, 0, ()))


class _Unrolling:
    """Unrolls steps, with new events from `fresh`."""

    def __init__(self, streams: int, fresh: Iterator[int]) -> None:
        self.streams, self.fresh = streams, fresh

    def steps(
        self,
        steps: tuple[Step, ...],
        first: int,
        iterations: tuple[int, ...],
        origin: int = 0,
        around: Loop | None = None,
    ) -> Iterator[Unrolled]:
        """`steps` of the loop `around`, numbered from `first`, in these iterations of the enclosing
        loops, whose streams begin at `origin`."""
        events: dict[int, int] = {}
        number = first
        for step in steps:
            stream = (origin + step.stream) % self.streams
            if isinstance(step, Loop):
                yield from self.loop(step, number, iterations, stream)
                number += 1 + len(all_steps(step.steps))
                continue
            if iterations and isinstance(step, Record | Wait):
                event = next(self.fresh) if isinstance(step, Record) else events[step.event]
                events[step.event] = event
                step = replace(step, event=event)
            idle = isinstance(step, Launch | Copy) and not _plays(step, around, iterations)
            if not idle:
                yield Unrolled(_at(replace(step, stream=stream), iterations), number, iterations)
            number += 1

    def loop(
        self, loop: Loop, number: int, iterations: tuple[int, ...], stream: int
    ) -> Iterator[Unrolled]:
        """The steps of all iterations of a loop, with the events that join and fork its streams."""
        others = [(stream + n) % self.streams for n in range(1, loop.streams)]
        for t in range(loop.count):
            inside = (*iterations, t)
            if others:
                event = next(self.fresh)
                yield Unrolled(Record(stream, event), number, inside)
                yield from (Unrolled(Wait(other, event), number, inside) for other in others)
            yield from self.steps(loop.steps, number + 1, inside, stream, loop)
            for other in others:
                event = next(self.fresh)
                yield Unrolled(Record(other, event), number, inside)
                yield Unrolled(Wait(stream, event), number, inside)


def _plays(step: Launch | Copy, around: Loop | None, iterations: tuple[int, ...]) -> bool:
    """Whether a step runs in these iterations."""
    return around is None or around.plays(step.stage, iterations[-1])


def _at(step: WrittenOut, iterations: tuple[int, ...]) -> WrittenOut:
    """The step in these iterations."""

    def places(ranges: tuple[Range, ...]) -> tuple[Range, ...]:
        return tuple(place.at(iterations) for place in ranges)

    if isinstance(step, Copy):
        return replace(step, source=step.source.at(iterations), target=step.target.at(iterations))
    if isinstance(step, Launch) and iterations:
        arguments, reads, writes = map(places, (step.arguments, step.reads, step.writes))
        return replace(step, arguments=arguments, reads=reads, writes=writes)
    return step
