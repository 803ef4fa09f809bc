"""Find a serial order of tasks that needs little memory.

Finding the best order is NP-hard. Six greedy rules each give one, forwards or backwards. The best
is improved by moving tasks across the peak: producers of a buffer that waits there move after it,
tasks that free one move before it. Orders are compared by the most bytes live at once, then by the
number of tasks at that level, then by live bytes summed over all tasks.

Memory is counted as it is allocated: aligned, with a task's inputs, outputs and workspace live
while it runs, and one buffer for an output that may overwrite an input.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from graphc.base.bits import bits
from graphc.runtime.planner.tasks import Task, Tasks

Cost = tuple[int, int, int]
"""(peak bytes, tasks at the peak, sum of live bytes)."""
IMPROVEMENT = 60_000
"""The most tasks that the improvement may visit: orders tried times their length."""


def memory_order(tasks: Tasks) -> tuple[int, ...]:
    """An executable order of task numbers with a low peak of `live_bytes`."""
    footprint = _Footprint(tasks)
    rules: list[tuple[Rule, bool]] = [
        (lambda net, place, age: (place,), False),
        (lambda net, place, age: (net, place), False),
        (lambda net, place, age: (net, -age), False),
        (lambda net, place, age: (net > 0, -age), False),
        (lambda net, place, age: (net, -place), True),
        (lambda net, place, age: (net, -age), True),
    ]
    orders = [_greedy(footprint, rule, backwards) for rule, backwards in rules]
    best = min(orders, key=footprint.cost)
    return tuple(_improve(best, tasks, footprint))


def live_bytes(tasks: Tasks, order: Sequence[int]) -> list[int]:
    """The work bytes live while each task of `order` runs, in that order."""
    return _Footprint(tasks).live(order)


def ancestors(predecessors: Sequence[int], order: Sequence[int]) -> list[int]:
    """For each task, a bit set of all tasks before it, from its direct predecessors."""
    closure = [0] * len(predecessors)
    for i in order:
        mask = predecessors[i]
        for j in bits(mask):
            mask |= closure[j]
        closure[i] = mask
    return closure


def overwrites(tasks: Tasks, i: int, last_use: Callable[[int], bool]) -> list[tuple[int, int]]:
    """Pairs (old, new) of work buffers of one size where task i may write new over old, which
    nothing uses after it by `last_use`. Each buffer occurs at most once."""
    return _dying(overwritable(tasks, i), last_use)


def overwritable(tasks: Tasks, i: int) -> list[tuple[int, int]]:
    """Pairs (old, new) of work buffers of one size where task i may write new over old if it is the
    last to use old."""
    task = tasks.tasks[i]
    if task.kernel is None:
        return []
    read_once = _read_once(task)
    pairs: list[tuple[int, int]] = []
    for source, target in task.kernel.inplace:
        if task.reads[source].part or task.writes[target].part:
            continue
        old, new = task.reads[source].buffer, task.writes[target].buffer
        a, b = tasks.buffers[old], tasks.buffers[new]
        work = a.segment == b.segment == "work"
        if work and old in read_once and a.nbytes == b.nbytes and a.nbytes:
            pairs.append((old, new))
    return pairs


Rule = Callable[[int, int, int], tuple[int, ...]]
"""The rank of a ready task, least first, from its change of live bytes, its position in the graph,
and its age: how many tasks had been placed when it became ready."""


def _dying(
    pairs: Sequence[tuple[int, int]], last_use: Callable[[int], bool]
) -> list[tuple[int, int]]:
    """The pairs whose old buffer has no further use. Each buffer occurs at most once."""
    chosen: list[tuple[int, int]] = []
    taken: set[int] = set()
    for old, new in pairs:
        if old not in taken and new not in taken and last_use(old):
            chosen.append((old, new))
            taken |= {old, new}
    return chosen


def _read_once(task: Task) -> set[int]:
    """The buffers that a task reads exactly once."""
    reads = Counter(access.buffer for access in task.reads)
    return {buffer for buffer, count in reads.items() if count == 1}


class _Footprint:
    """The work buffers that each task touches, their sizes, and each task's direct predecessors and
    successors."""

    def __init__(self, tasks: Tasks) -> None:
        self.tasks = tasks
        self.sizes = {b: tasks.buffers[b].aligned_bytes for b in tasks.work_uses()}
        self.touched = [
            {a.buffer for a in (*t.reads, *t.writes) if a.buffer in self.sizes} for t in tasks.tasks
        ]
        self.users: list[list[int]] = [[] for _ in tasks.buffers]
        for i, touched in enumerate(self.touched):
            for buffer in touched:
                self.users[buffer].append(i)
        self.uses = list(map(len, self.users))
        self.overwritable = [overwritable(tasks, i) for i in range(len(tasks.tasks))]
        self.before = [list(bits(mask)) for mask in tasks.predecessors]
        self.after: list[list[int]] = [[] for _ in tasks.tasks]
        for i, earlier in enumerate(self.before):
            for j in earlier:
                self.after[j].append(i)

    def live(self, order: Sequence[int]) -> list[int]:
        """The bytes live during each task of `order`."""
        sizes, uses, left = self.sizes, self.uses, list(self.uses)
        total, result = 0, []
        for i in order:
            touched, gone = self.touched[i], 0
            for buffer in touched:
                if left[buffer] == uses[buffer]:
                    total += sizes[buffer]
                left[buffer] -= 1
                if not left[buffer]:
                    gone += sizes[buffer]
            pairs = self.overwritable[i]
            shared = _dying(pairs, lambda b: not left[b]) if pairs and gone else ()
            result.append(total - sum(sizes[old] for old, _ in shared))
            total -= gone
        return result

    def cost(self, order: Sequence[int]) -> Cost:
        live = self.live(order)
        peak = max(live, default=0)
        return peak, live.count(peak), sum(live)


def _greedy(footprint: _Footprint, rule: Rule, backwards: bool) -> list[int]:
    """Schedule the ready task of least rank until none is left; backwards, the last task is placed
    first."""
    before, after = footprint.before, footprint.after
    needs, frees = (after, before) if backwards else (before, after)
    missing = [len(n) for n in needs]
    age = {i: 0 for i, n in enumerate(missing) if not n}
    left, seen = list(footprint.uses), set[int]()
    ranks: dict[int, tuple[int, ...]] = {}
    """The rank of each ready task. The heap also has outdated ranks."""
    heap: list[tuple[tuple[int, ...], int]] = []

    def rank(i: int) -> None:
        """By the bytes that appear with task i less those that nothing not yet placed touches."""
        net = 0
        for buffer in footprint.touched[i]:
            net += footprint.sizes[buffer] * ((buffer not in seen) - (left[buffer] == 1))
        found = rule(net, i, age[i])
        if ranks.get(i) != found:
            ranks[i] = found
            heapq.heappush(heap, (found, i))

    order: list[int] = []
    for i in age:
        rank(i)
    while heap:
        found, i = heapq.heappop(heap)
        if ranks.get(i) != found:
            continue
        del ranks[i], age[i]
        order.append(i)
        changed = set(frees[i])
        for buffer in footprint.touched[i]:
            left[buffer] -= 1
            if buffer not in seen or left[buffer] == 1:
                changed.update(footprint.users[buffer])
        seen |= footprint.touched[i]
        for j in frees[i]:
            missing[j] -= 1
            if not missing[j]:
                age[j] = len(order)
        for j in changed & age.keys():
            rank(j)
    return order[::-1] if backwards else order


def _improve(order: list[int], tasks: Tasks, footprint: _Footprint) -> list[int]:
    """Take the first move across the peak that lowers the cost, until none does."""
    cost, tries = footprint.cost(order), IMPROVEMENT // max(1, len(order))
    while tries > 0:
        for moved in _moves_across_peak(order, tasks, footprint):
            tries -= 1
            new_cost = footprint.cost(moved)
            if new_cost < cost:
                order, cost = moved, new_cost
                break
            if tries <= 0:
                return order
        else:
            return order
    return order


def _moves_across_peak(
    order: list[int], tasks: Tasks, footprint: _Footprint
) -> Iterator[list[int]]:
    """Orders in which one task has moved across the first peak, as close to it as dependencies
    allow, together with the tasks that must move with it."""
    live = footprint.live(order)
    if not live:
        return
    peak = live.index(max(live))
    closure = ancestors(tasks.predecessors, order)
    for place in range(peak - 1, -1, -1):
        if not _comes_from(order[peak], order[place], closure):
            between = range(place, peak)
            follow = [k for k in between if _comes_from(order[k], order[place], closure)]
            yield _delay(order, follow, peak)
    for place in range(peak + 1, len(order)):
        if not _comes_from(order[place], order[peak], closure):
            between = range(peak + 1, place + 1)
            lead = [k for k in between if _comes_from(order[place], order[k], closure)]
            yield _advance(order, lead, peak)


def _comes_from(later: int, earlier: int, closure: list[int]) -> bool:
    """Whether `later` depends on `earlier`."""
    return later == earlier or bool(closure[later] >> earlier & 1)


def _delay(order: list[int], places: list[int], peak: int) -> list[int]:
    moving = {order[k] for k in places}
    kept = [i for i in order[: peak + 1] if i not in moving]
    return [*kept, *(order[k] for k in places), *order[peak + 1 :]]


def _advance(order: list[int], places: list[int], peak: int) -> list[int]:
    moving = {order[k] for k in places}
    kept = [i for i in order[peak:] if i not in moving]
    return [*order[:peak], *(order[k] for k in places), *kept]
