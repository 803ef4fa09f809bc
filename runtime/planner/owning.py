"""Loops of a joined launch that need no wait of all blocks: each block owns rows.

A part's block owns its rows of an argument if it touches the i-th of equal parts of it alone, i
being its number (`GridLaunch.owned`). Where all that passes from part to part of a loop, and from
iteration to iteration, passes through such arguments of equally many blocks, block i reads what
block i wrote. It is played by the same block of the launch in all parts, so a barrier of that
block's threads does. What the loop reads beside, as weights, it does not write.
"""

from __future__ import annotations

from collections.abc import Iterator

from graphc.runtime.plan.plan import Launch, Loop, Plan, Range


def owned(plan: Plan, loop: Loop) -> bool:
    """Whether what a loop writes is read and written again by the blocks alone that wrote it."""
    launches = [step for step in loop.steps if isinstance(step, Launch)]
    if loop.stages > 1 or len(launches) < len(loop.steps):
        return False
    touched = [place for step in launches for place in _touched(plan, step)]
    writes = [place for place in touched if place[1]]
    return all(_apart(place, written) for written in writes for place in touched)


def _touched(plan: Plan, step: Launch) -> Iterator[tuple[Range, bool, int]]:
    """Each argument of a step, whether it is written, and among how many blocks it is shared out;
    0 if it is not."""
    launches = plan.kernels[step.kernel].launches
    for i, place in enumerate(step.arguments):
        own = len(launches) == 1 and i in launches[0].owned
        yield place, i >= len(step.reads), launches[0].grid[0] if own else 0


def _apart(a: tuple[Range, bool, int], b: tuple[Range, bool, int]) -> bool:
    """Whether two arguments never share a byte, or in each two iterations none or all of them, and
    are shared out alike."""
    if not hull(a[0]).overlaps(hull(b[0])):
        return True
    size = a[0].stop - a[0].start
    steps = [m.stride for place in (a[0], b[0]) for m in place.moves]
    alike = b[0].stop - b[0].start == size > 0 and a[2] == b[2] > 0
    return alike and all(step % size == 0 for step in (a[0].start - b[0].start, *steps))


def hull(place: Range) -> Range:
    """All that a range covers in any iteration."""
    ends = [(m.period - 1) * m.stride for m in place.moves]
    low, high = sum(min(0, e) for e in ends), sum(max(0, e) for e in ends)
    return Range(place.segment, place.start + low, place.stop + high, place.value)
