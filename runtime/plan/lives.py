"""Lifetimes of the buffers in a plan's work memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from graphc.ir import Where
from graphc.runtime.plan.plan import Copy, Launch, Loop, Plan, Range, Step, all_steps


@dataclass(frozen=True)
class Life:
    """The lifetime of a value in bytes `start` to `stop` of the work segment.

    Steps have their numbers in `all_steps`. Memory that is used within a loop lives as long as the
    loop.
    """

    value: str
    """The value's name."""
    start: int
    """The first byte."""
    stop: int
    """The end, exclusive."""
    first: int
    """The first step, which writes it."""
    last: int
    """The last step that uses it."""
    producer: str
    """The name of the first step: a kernel, a loop or `copy`."""
    reader: str
    """The name of the last step."""
    where: Where = field(default_factory=Where)
    """Where in the user's program the first step comes from."""

    @property
    def nbytes(self) -> int:
        return self.stop - self.start


def step_name(step: Step) -> str:
    """The name of a step: the kernel, the loop, `copy`, or an event such as `e3`."""
    if isinstance(step, Launch):
        return step.kernel
    if isinstance(step, Loop):
        return step.name
    return "copy" if isinstance(step, Copy) else f"e{step.event}"


def accesses(step: Step) -> tuple[tuple[Range, ...], tuple[Range, ...]]:
    """The ranges that a step reads, and those it writes."""
    if isinstance(step, Copy):
        return (step.source,), (step.target,)
    return (step.reads, step.writes) if isinstance(step, Launch | Loop) else ((), ())


def top_steps(plan: Plan) -> Iterator[tuple[int, Step]]:
    """The steps outside of loops with their numbers in `all_steps`."""
    number = 0
    for step in plan.steps:
        yield number, step
        number += 1 + (len(all_steps(step.steps)) if isinstance(step, Loop) else 0)


def lives(plan: Plan) -> list[Life]:
    """The lifetimes of all buffers, in the order in which they begin."""
    uses: dict[tuple[str, int, int], list[tuple[int, Step]]] = {}
    for number, step in top_steps(plan):
        for place in (place for places in accesses(step) for place in places):
            if place.segment == "work" and place.start < place.stop:
                uses.setdefault((place.value, place.start, place.stop), []).append((number, step))
    return [_life(*key, found) for key, found in uses.items()]


def _life(value: str, start: int, stop: int, uses: list[tuple[int, Step]]) -> Life:
    (first, maker), (last, reader) = uses[0], uses[-1]
    where = getattr(maker, "where", Where())
    return Life(value, start, stop, first, last, step_name(maker), step_name(reader), where)


def at_peak(plan: Plan) -> tuple[int, list[Life]]:
    """The number of the step at which most bytes of work memory are live in issue order, and what
    is live there, the largest first."""
    found = lives(plan)
    alive = {n: [x for x in found if x.first <= n <= x.last] for n, _ in top_steps(plan)}
    number = max(alive, key=lambda n: sum(x.nbytes for x in alive[n]), default=0)
    return number, sorted(alive.get(number, ()), key=lambda life: -life.nbytes)
