"""The map of the work memory: which bytes hold which value, from which step to which."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from graphc.report.model import BufferData
from graphc.report.stages import phase
from graphc.runtime.plan.plan import Copy, Launch, Loop, Plan, Range, Step, all_steps


def buffers(plan: Plan, types: Mapping[str, str]) -> list[BufferData]:
    """Return the buffers of the work memory, by their start.

    A buffer that moves with a loop covers all iterations. A buffer that a loop uses is alive in all
    its steps, and its elements are no buffers of their own.
    """
    found: dict[tuple[str, int, int], BufferData] = {}
    for number, (step, last) in enumerate(_with_ends(plan)):
        for place, writes in _places(step):
            start, stop = _extent(place)
            key = place.value, start, stop
            if place.segment != "work":
                continue
            if key not in found:
                made = step if writes else None
                found[key] = _begun(place.value, types, start, stop, number, made)
            found[key] = replace(found[key], last=max(found[key].last, last))
    inside = _inside(plan)
    whole = [b for b in found.values() if b.first not in inside]
    parts = [b for b in found.values() if b.first in inside]
    kept = [*whole, *(b for b in parts if not any(_within(b, w) for w in whole))]
    ends = [last for _, last in _with_ends(plan)]
    return _in_place(sorted(kept, key=lambda b: (b.first, b.start)), ends)


def live(found: Sequence[BufferData], steps: int) -> tuple[int, ...]:
    """Bytes in use at each step, those of what is read and what is written there."""
    at: list[list[tuple[int, int]]] = [[] for _ in range(steps)]
    for buffer in found:
        for number in range(buffer.first, buffer.last + 1):
            at[number].append((buffer.start, buffer.stop))
    return tuple(map(_covered, at))


def _with_ends(plan: Plan) -> Iterable[tuple[Step, int]]:
    """Each step, and the number of the last step that it is over at: a loop holds its own."""
    for number, step in enumerate(all_steps(plan.steps)):
        yield step, number + (len(all_steps(step.steps)) if isinstance(step, Loop) else 0)


def _inside(plan: Plan) -> set[int]:
    """The numbers of the steps that are in loops."""
    spans = [(n, last) for n, (step, last) in enumerate(_with_ends(plan)) if isinstance(step, Loop)]
    return {number for first, last in spans for number in range(first + 1, last + 1)}


def _within(part: BufferData, whole: BufferData) -> bool:
    bytes_within = whole.start <= part.start and part.stop <= whole.stop
    return bytes_within and whole.first <= part.first and part.last <= whole.last


def _places(step: Step) -> list[tuple[Range, bool]]:
    """The ranges that a step touches, and whether it writes them."""
    if isinstance(step, Copy):
        return [(step.source, False), (step.target, True)]
    if isinstance(step, Launch | Loop):
        return [*((r, False) for r in step.reads), *((r, True) for r in step.writes)]
    return []


def _extent(place: Range) -> tuple[int, int]:
    reach = [(m.period - 1) * m.stride for m in place.moves]
    return place.start + sum(min(0, r) for r in reach), place.stop + sum(max(0, r) for r in reach)


def _begun(
    value: str, types: Mapping[str, str], start: int, stop: int, number: int, step: Step | None
) -> BufferData:
    launch = step if isinstance(step, Launch | Loop) else None
    producer = launch.kernel if isinstance(launch, Launch) else launch.name if launch else "copy"
    where = launch.where if launch else None
    return BufferData(
        value=value,
        type=types.get(value, "workspace" if value.endswith("workspace") else ""),
        start=start,
        stop=stop,
        first=number,
        last=number,
        phase=phase(where) if where else "forward",
        producer=producer,
        lines=where.lines if where else (),
        over="",
    )


def _in_place(found: Sequence[BufferData], ends: Sequence[int]) -> list[BufferData]:
    """Add the values that are written over others, by the step or loop that reads those last.

    `ends` says after which step each one is dead.
    """
    result = []
    alive: list[BufferData] = []
    for buffer in found:
        alive = [b for b in alive if b.last >= buffer.first]
        before = [
            b.value
            for b in alive
            if b.first < buffer.first
            and b.last <= ends[buffer.first]
            and b.start < buffer.stop
            and buffer.start < b.stop
        ]
        alive.append(buffer)
        result.append(replace(buffer, over=before[0]) if before else buffer)
    return result


def _covered(ranges: Iterable[tuple[int, int]]) -> int:
    total = end = 0
    for start, stop in sorted(ranges):
        total += max(0, stop - max(start, end))
        end = max(end, stop)
    return total
