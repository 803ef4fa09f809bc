"""Tasks in serial order, some of which rerun: lifetimes and cost.

A sequence is in single assignment form. A rerun writes values of its own, which later tasks read.
So a value may be freed after its first readers and recomputed for the last ones. Work memory is
counted as it is allocated: aligned, and with one buffer for an output that may overwrite an input.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from graphc.base.bits import bits
from graphc.base.cached import cached_property
from graphc.runtime.planner.serial_order import overwritable
from graphc.runtime.planner.tasks import Tasks

FAR = 1 / 16
"""The fraction of all tasks that must run between two uses of a value for it to be freed. A choice:
if fewer run, little else comes and goes."""

PASSES = 8
"""The most passes of neighbour exchange. A choice: most tasks are in place after two."""
SMALL = 4096
"""The most bytes that a task may hold early so that it can run early. A choice."""


@dataclass(frozen=True)
class Occurrence:
    """One run of a task."""

    task: int
    """The task's number."""
    reads: tuple[int, ...]
    """The values that it reads."""
    writes: tuple[int, ...]
    """The values that it writes."""
    overwrites: tuple[tuple[int, int], ...] = ()
    """Pairs of a read and a written value that may share memory."""
    rerun: bool = False
    """Whether the task has run before."""

    @cached_property
    def touched(self) -> frozenset[int]:
        """All values that it reads or writes."""
        return frozenset((*self.reads, *self.writes))

    def repeated(self, names: Mapping[int, int]) -> Occurrence:
        """A rerun of the task on the values that `names` gives in place of its own."""
        return replace(self.reading(names), writes=_named(self.writes, names), rerun=True)

    def reading(self, names: Mapping[int, int]) -> Occurrence:
        """The same run with reads renamed by `names`."""
        pairs = tuple((names.get(a, a), names.get(b, b)) for a, b in self.overwrites)
        return replace(self, reads=_named(self.reads, names), overwrites=pairs)


@dataclass(frozen=True)
class TaskSequence:
    """Runs of tasks in serial order."""

    tasks: Tasks
    """The tasks."""
    steps: tuple[Occurrence, ...]
    """The runs in order."""
    buffer: tuple[int, ...]
    """The buffer of each value. Values of one buffer are equal, computed by one task at several
    times."""
    rerun_bytes: tuple[int, ...]
    """Bytes of work memory that each task needs when it reruns, for results that are not stored in
    work memory the first time."""

    @cached_property
    def value_bytes(self) -> list[int]:
        """Bytes of each value."""
        rooms = self.tasks.aligned_sizes
        return [rooms[b] for b in self.buffer]

    @cached_property
    def live(self) -> list[int]:
        """The bytes live during each run."""
        nbytes = self.value_bytes
        left, new = [0] * len(nbytes), [True] * len(nbytes)
        for step in self.steps:
            for v in step.touched:
                left[v] += 1
        total, result = 0, []
        for step in self.steps:
            ended = 0
            for v in step.touched:
                if new[v]:
                    new[v] = False
                    total += nbytes[v]
                left[v] -= 1
                if not left[v]:
                    ended += nbytes[v]
            beside = self.rerun_bytes[step.task] if step.rerun else 0
            result.append(total + beside - (self._shared(step, left) if step.overwrites else 0))
            total -= ended
        return result

    def _shared(self, step: Occurrence, left: Sequence[int]) -> int:
        """The bytes of dying values that a run overwrites."""
        shared, taken = 0, set[int]()
        for old, new in step.overwrites:
            if not left[old] and old not in taken and new not in taken:
                shared += self.value_bytes[old]
                taken |= {old, new}
        return shared

    @cached_property
    def peak(self) -> int:
        """The most bytes live at once."""
        return max(self.live, default=0)

    def cost(self, times: Sequence[float]) -> float:
        """The microseconds of all reruns, given the time of each task."""
        return sum(times[s.task] for s in self.steps if s.rerun)


def serial(tasks: Tasks, order: Sequence[int]) -> TaskSequence:
    """The tasks in `order`, each once. Tasks that only free values run as soon as they can, and
    neighbours are exchanged where that lowers live memory."""
    order = _exchanged(tasks, _released_early(tasks, order))
    used = tasks.work_uses()
    steps = []
    for i in order:
        task = tasks.tasks[i]
        reads = tuple(dict.fromkeys(a.buffer for a in task.reads if a.buffer in used))
        writes = tuple(a.buffer for a in task.writes if a.buffer in used)
        steps.append(Occurrence(i, reads, writes, tuple(overwritable(tasks, i))))
    beside = tuple(
        sum(
            tasks.aligned_sizes[a.buffer]
            for a in t.writes
            if tasks.buffers[a.buffer].segment != "work"
        )
        for t in tasks.tasks
    )
    return TaskSequence(tasks, tuple(steps), tuple(range(len(tasks.buffers))), beside)


def _exchanged(tasks: Tasks, order: list[int]) -> list[int]:
    """`order` with neighbours exchanged as long as fewer bytes are then live between them."""
    work, rooms = tasks.work_uses(), tasks.aligned_sizes
    touched = [{a.buffer for a in (*t.reads, *t.writes) if a.buffer in work} for t in tasks.tasks]
    for _ in range(PASSES):
        left = {b: mask.bit_count() for b, mask in work.items()}
        seen, before = set[int](), list(order)

        def most(i: int, j: int, seen: set[int] = seen, left: Mapping[int, int] = left) -> int:
            """The bytes that live while i runs and then j, beyond those before."""
            first = sum(rooms[b] for b in touched[i] - seen)
            ended = sum(rooms[b] for b in touched[i] if left[b] == 1)
            return max(first, first - ended + sum(rooms[b] for b in touched[j] - seen - touched[i]))

        for place in range(len(order)):
            pair = order[place : place + 2]
            if len(pair) == 2 and not tasks.predecessors[pair[1]] >> pair[0] & 1:
                if most(pair[1], pair[0]) < most(pair[0], pair[1]):
                    order[place : place + 2] = reversed(pair)
            i = order[place]
            seen |= touched[i]
            for b in touched[i]:
                left[b] -= 1
        if order == before:
            break
    return order


def _released_early(tasks: Tasks, order: Sequence[int]) -> list[int]:
    """`order` with tasks that only free values moved as early as possible."""
    work = tasks.work_uses()
    makes = [any(a.buffer in work for a in t.writes) for t in tasks.tasks]
    frees = [any(a.buffer in work for a in t.reads) for t in tasks.tasks]
    ends = {i for i in order if frees[i] and not makes[i]}
    wanted = {j for i in ends for j in bits(tasks.predecessors[i])}
    small = {
        i
        for i in wanted
        if not frees[i]
        and sum(tasks.aligned_sizes[a.buffer] for a in tasks.tasks[i].writes) <= SMALL
    }  # such as the scalars of an update rule
    waiting = [i for i in order if i in ends or i in small]
    found: list[int] = []
    done = 0

    def release() -> None:
        nonlocal done
        for i in list(waiting):
            if not tasks.predecessors[i] & ~done:
                waiting.remove(i)
                found.append(i)
                done |= 1 << i

    release()
    for i in [i for i in order if i not in ends and i not in small]:
        found.append(i)
        done |= 1 << i
        release()
    return found


class Rematerializer:
    """Creates sequences in which some values are recomputed, by `repeatable` tasks while the state
    that they read is unchanged.

    Such a value is freed after the use before its longest idle time and recomputed, once, before
    the next use; so are the values that the recomputation needs, if they may be and have had their
    last use.
    """

    def __init__(self, base: TaskSequence, repeatable: Mapping[int, frozenset[int]]) -> None:
        self.base, self.repeatable = base, repeatable
        self.touches: list[list[int]] = [[] for _ in base.buffer]
        self.writer: dict[int, int] = {}
        several = set()
        for place, step in enumerate(base.steps):
            for v in dict.fromkeys((*step.reads, *step.writes)):
                self.touches[v].append(place)
            for v in step.writes:
                if self.writer.setdefault(v, place) != place:
                    several.add(v)
        self.values = [
            v
            for v, place in self.writer.items()
            if base.steps[place].task in repeatable
            and not several.intersection(base.steps[place].writes)
        ]
        """The values that may be recomputed."""
        far = max(4, int(FAR * len(base.steps)))
        self.last = [_first_life(touches, far) for touches in self.touches]
        """The position of the last use before a value may be freed."""
        self.held: set[int] = set()
        """The values known not to be recomputable when they are needed."""
        self.state = [
            {a.buffer for a in t.writes if base.tasks.buffers[a.buffer].segment == "state"}
            for t in base.tasks.tasks
        ]

    def has_idle_time(self, value: int) -> bool:
        """Whether a value is held without use for some time."""
        touches = self.touches[value]
        return bool(touches) and self.last[value] < touches[-1]

    def repeat(self, rerun: Collection[int]) -> TaskSequence:
        """The sequence in which the values `rerun` are recomputed where they are needed, except
        those that depend on state that has changed by then."""
        while True:
            found = self._repeat(frozenset(rerun) - self.held)
            if found is not None:
                return found

    def _repeat(self, rerun: Collection[int]) -> TaskSequence | None:
        """That sequence; None if one more value has turned out to depend on changed state."""
        base, names, steps = self.base, dict[int, int](), list[Occurrence]()
        buffer, changed = list(base.buffer), set[int]()

        def at_hand(value: int, place: int) -> bool:
            return place <= self.last[value] or value not in rerun or value in names

        for place, step in enumerate(base.steps):
            waiting = [v for v in step.reads if v in rerun and not at_hand(v, place)]
            while waiting:
                value = waiting[-1]
                if at_hand(value, place):
                    waiting.pop()
                    continue
                first = base.steps[self.writer[value]]
                missing = [v for v in first.reads if not at_hand(v, place)]
                if missing:
                    waiting += missing
                    continue
                if changed & self.repeatable[first.task]:
                    self.held.update(first.writes)
                    return None
                given = self._names(first.reads, place, names)
                for v in first.writes:
                    given[v] = len(buffer)
                    buffer.append(base.buffer[v])
                    if v in rerun:
                        names[v] = given[v]
                steps.append(first.repeated(given))
            given = self._names(step.reads, place, names)
            steps.append(step.reading(given) if given else step)
            changed |= self.state[step.task]
        return replace(base, steps=tuple(steps), buffer=tuple(buffer))

    def _names(self, reads: Iterable[int], place: int, names: Mapping[int, int]) -> dict[int, int]:
        """The replacements for the values that are read at `place`."""
        return {v: names[v] for v in reads if v in names and place > self.last[v]}


def _first_life(touches: Sequence[int], far: int) -> int:
    """The use before the longest idle time, or the last use if no idle time is as long as `far`."""
    waits = [(after - before, before) for before, after in pairwise(touches)]
    longest, place = max(waits, default=(0, 0))
    return place if longest >= far else (touches[-1] if touches else 0)


def _named(values: Iterable[int], names: Mapping[int, int]) -> tuple[int, ...]:
    return tuple(names.get(v, v) for v in values)
