"""Find loops of a joined launch that need few barriers of all blocks or none, because each block
owns rows.

A part's block owns its rows of an argument if block i touches only the i-th of equal parts
(`GridLaunch.owned`). Where all values that pass between a loop's parts and iterations are such
arguments, divided among equally many blocks, block i reads only what block i wrote. One block of
the launch runs block i of every part, so a barrier of its threads suffices. The loop does not write
what else it reads, such as weights, and blocks may keep all of it in registers
(`Kernel.resident_bytes`).

Where that is too large and each block keeps the weights of some units, blocks own patches of rows
and units (`GridLaunch.patches`). Values from a product over all units to the next need one barrier
of all blocks per iteration; what is computed per row and unit in between needs none.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from graphc.runtime.plan.plan import Launch, Loop, Plan, Range

MOST_HELD_BYTES = 128 * 1024
"""The most bytes of resident operands of a block, plus those that parts without one read: half of a
multiprocessor's registers."""

Touched = tuple[Range, bool, tuple[object, ...]]
"""An argument, whether it is written, and its partition as (number of blocks, patches); () if it is
not partitioned."""


def passes_own_rows(plan: Plan, loop: Loop) -> bool:
    """Whether everything a loop writes is read and overwritten only by the block that wrote it."""
    launches = [step for step in loop.steps if isinstance(step, Launch)]
    if loop.stages > 1 or len(launches) < len(loop.steps):
        return False
    if any(len(plan.kernels[step.kernel].launches) > 1 for step in launches):
        return False
    touched = [place for step in launches for place in _touched(plan, step)]
    writes = [place for place in touched if place[1]]
    return all(_are_disjoint(place, written) for written in writes for place in touched)


def resident_launch(plan: Plan, loop: Loop) -> Launch | None:
    """The launch of a loop whose blocks keep an operand resident: the first of those with the
    largest.

    None if there is no such launch, if it does not run in all iterations, or if what the other
    launches read does not fit beside it.
    """
    launches = [step for step in loop.steps if isinstance(step, Launch)]
    if loop.stages > 1 or len(launches) < len(loop.steps):
        return None
    filling = [step for step in launches if plan.kernels[step.kernel].fills_multiprocessor]
    kernels = [plan.kernels[step.kernel] for step in filling]
    if sum(k.resident_bytes // k.launches[0].multiple for k in kernels) > MOST_HELD_BYTES:
        return None
    return max(filling, key=lambda step: plan.kernels[step.kernel].resident_bytes, default=None)


def waiting_launches(plan: Plan, loop: Loop) -> set[tuple[int, int]]:
    """The launches of a loop, as (step number, launch number), before which all blocks must wait,
    given that all wait before the loop and that one block runs the equally numbered blocks. A
    launch that waits in one iteration waits in each."""
    parts = [
        ((n, launch), list(_touched(plan, step, launch)))
        for n, step in enumerate(loop.steps)
        if isinstance(step, Launch)
        for launch in range(len(plan.kernels[step.kernel].launches))
    ]
    waits: set[tuple[int, int]] = set()
    while late := _first_conflict(parts, waits, loop.count):
        waits.add(late)
    return waits


def _first_conflict(
    parts: Sequence[tuple[tuple[int, int], Sequence[Touched]]],
    waits: set[tuple[int, int]],
    count: int,
) -> tuple[int, int] | None:
    """The first launch that touches what another block may have touched since the last of these
    waits."""
    since: list[Touched] = []
    for t in range(count):
        for number, touched in parts:
            mine = [(place.at((t,)), writes, shares) for place, writes, shares in touched]
            if number in waits:
                since = []
            elif any(_clash(a, b) for a in mine for b in since):
                return number
            since += mine
    return None


def _clash(a: Touched, b: Touched) -> bool:
    """Whether two blocks may touch a byte that one of them writes."""
    same = (a[0].start, a[0].stop) == (b[0].start, b[0].stop)
    return (a[1] or b[1]) and a[0].overlaps(b[0]) and not (same and a[2] == b[2] != ())


def _touched(plan: Plan, step: Launch, launch: int = 0) -> Iterator[Touched]:
    """Each argument of a launch, with its partition."""
    found = plan.kernels[step.kernel].launches[launch]
    shares = found.grid[0], found.patches
    for i, place in enumerate(step.arguments):
        own = i in found.owned
        yield place, i >= len(step.reads), shares if own else ()


def _are_disjoint(a: Touched, b: Touched) -> bool:
    """Whether two arguments never share a byte, or coincide in all or in no pair of iterations and
    are partitioned alike."""
    if not hull(a[0]).overlaps(hull(b[0])):
        return True
    size = a[0].stop - a[0].start
    steps = [m.stride for place in (a[0], b[0]) for m in place.moves]
    alike = b[0].stop - b[0].start == size > 0 and a[2] == b[2] != ()
    return alike and all(step % size == 0 for step in (a[0].start - b[0].start, *steps))


def hull(place: Range) -> Range:
    """The bytes that a range covers in all iterations."""
    ends = [(m.period - 1) * m.stride for m in place.moves]
    low, high = sum(min(0, e) for e in ends), sum(max(0, e) for e in ends)
    return Range(place.segment, place.start + low, place.stop + high, place.value)
