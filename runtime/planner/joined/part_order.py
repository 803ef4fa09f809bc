"""Order the parts of a joined launch so that few barriers of all blocks are needed.

One barrier then serves several parts, such as the second launches of several kernels, which combine
partial results. Loops stay in place, and parts stay on their side of a loop.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from graphc.runtime.plan.plan import Copy, Launch, Loop, Plan, Range, Step, all_steps


@dataclass(frozen=True)
class PartPhase:
    """A launch of a step, a copy, or a whole loop."""

    number: int
    """The step's number."""
    step: Step
    """The step."""
    launch: int = 0
    """The number of the launch among the kernel's."""
    alone: bool = False
    """Whether a single block runs it."""

    @property
    def reads(self) -> tuple[Range, ...]:
        """The ranges that it reads."""
        step = self.step
        return (step.source,) if isinstance(step, Copy) else getattr(step, "reads", ())

    @property
    def writes(self) -> tuple[Range, ...]:
        """The ranges that it writes."""
        step = self.step
        return (step.target,) if isinstance(step, Copy) else getattr(step, "writes", ())


def phases(plan: Plan, steps: Sequence[Step], number: int) -> Iterator[PartPhase]:
    """The launches and copies of `steps` in order; `number` is that of the first step."""
    for step in steps:
        if isinstance(step, Launch):
            for n, launch in enumerate(plan.kernels[step.kernel].joined_launches):
                yield PartPhase(number, step, n, math.prod(launch.grid) == 1)
        else:
            yield PartPhase(number, step)
        number += len(all_steps([step]))


def as_early_as_possible(found: Iterator[PartPhase]) -> Iterator[PartPhase]:
    """The phases, each moved as early as its accesses allow between the loops around it."""
    levels: list[tuple[int, PartPhase]] = []
    for turn in found:
        if isinstance(turn.step, Loop):
            yield from _by_level(levels)
            yield turn
            levels = []
            continue
        behind = (n + (not (turn.alone and x.alone)) for n, x in levels if _clash(turn, x))
        levels.append((max(behind, default=0), turn))
    yield from _by_level(levels)


def _by_level(levels: Sequence[tuple[int, PartPhase]]) -> list[PartPhase]:
    return [turn for _, turn in sorted(levels, key=lambda level: level[0])]


def _clash(a: PartPhase, b: PartPhase) -> bool:
    """Whether one writes a byte that the other touches."""
    pairs = [(a.writes, (*b.reads, *b.writes)), (a.reads, b.writes)]
    return any(x.overlaps(y) for mine, others in pairs for x in mine for y in others)
