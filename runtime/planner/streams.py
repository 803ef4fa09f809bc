"""Assign tasks to streams, order them, and place the events between streams.

Streams, after Nimble (Kwon et al., NeurIPS 2020): the transitive reduction of the dependencies is
cut into the fewest chains by a maximum matching between tasks and their successors. With a stream
per chain no task would wait for a stream. List scheduling folds the chains onto the available
streams, using the times of kernels alone and concurrently (`concurrency.py`): as time advances, the
ready task with the longest path to the end (dgrad before wgrad, which may lag) starts on a free
stream if all running tasks then complete sooner than serially. A stream where it needs no event, or
its chain's, is preferred. The dgrad and the wgrad of a layer never share a stream. Stream 0 becomes
that of the critical path, of dgrads where there are any: on CUDA it has the higher priority.

Events: the order of each stream, a beginning on stream 0 before all and an end on stream 0 after
all are added to the dependencies. Each edge of the transitive reduction of the result that crosses
streams is an event; no other edge needs one, and no path goes around it, so none is redundant.
Where a stream reuses memory of another, the planner adds that to the dependencies.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from graphc.base.bits import bits
from graphc.runtime.planner.concurrency import Demand, OverlapSimulation, spent
from graphc.runtime.planner.serial_order import ancestors
from graphc.runtime.planner.tasks import Tasks

LOOKAHEAD = 2
"""Tasks per stream, next in the serial order, that may be picked from. Streams that run further
ahead gain no time and hold more memory."""


PATIENCE = 0.05
"""How long a task may wait for memory, as a fraction of the longest path: less than the error of
the estimates."""


@dataclass(frozen=True)
class StreamSchedule:
    """The issue order of tasks and their streams."""

    order: tuple[int, ...]
    """Task numbers in issue order."""
    stream: tuple[int, ...]
    """The stream of each task."""
    done: tuple[int, ...] = ()
    """With several streams: done[i] has bit j set if task j, issued before task i, is expected to
    end so early that task i may wait for it with little loss of time."""


@dataclass(frozen=True)
class StreamEvent:
    """An event between streams."""

    source: int | None
    """The task after which it is recorded; None for the beginning, on stream 0."""
    targets: tuple[int | None, ...]
    """The tasks that wait for it; None for the end, on stream 0."""


def assign_streams(
    tasks: Tasks, serial: Sequence[int], demands: Sequence[Demand], streams: int, event: float
) -> StreamSchedule:
    """Distribute the tasks over at most `streams` streams.

    `serial` is the order on one stream and breaks ties; `demands` has the demand of each task;
    `event` is the microseconds until a stream sees another's event.
    """
    if streams == 1:
        return StreamSchedule(tuple(serial), (0,) * len(serial))
    reduced = transitive_reduction(tasks.predecessors, serial)
    way = longest_path(reduced, serial, [d.microseconds for d in demands])
    chain = _chains(reduced, serial, way)
    folding = _Folding(tasks, serial, reduced, demands, way, chain, streams, event)
    return _critical_first(folding.run(), tasks, reduced, demands, way)


def expected_order(predecessors: Sequence[int], schedule: StreamSchedule) -> list[int]:
    """For each task, a bit set of the tasks that precede it, or may be made to with little loss of
    time."""
    before = ancestors(stream_order(predecessors, schedule), schedule.order)
    if not schedule.done:
        return before
    return [mask | done for mask, done in zip(before, schedule.done, strict=True)]


def stream_order(predecessors: Sequence[int], schedule: StreamSchedule) -> list[int]:
    """For each task, a bit set of its direct predecessors: the dependencies and the order of each
    stream."""
    edges = list(predecessors)
    last: dict[int, int] = {}
    for i in schedule.order:
        stream = schedule.stream[i]
        if stream in last:
            edges[i] |= 1 << last[stream]
        last[stream] = i
    return edges


def needed_events(
    predecessors: Sequence[int], schedule: StreamSchedule, in_loop: bool = False
) -> tuple[StreamEvent, ...]:
    """The events without which a dependency, the fork or the join would be lost, one per task that
    is waited for, in issue order. Tasks of a loop's body (`in_loop`) fork and join without
    events."""
    count = len(predecessors)
    begin, end = count, count + 1
    stream = (*schedule.stream, 0, 0)
    whole = StreamSchedule((begin, *schedule.order, end), stream)
    dependencies = [mask or 1 << begin for mask in predecessors] + [0, (1 << count) - 1]
    reduced = transitive_reduction(stream_order(dependencies, whole), whole.order)
    targets: dict[int, list[int]] = {}
    for i in whole.order:
        for j in bits(reduced[i]):
            if stream[i] != stream[j] and not (in_loop and (i == end or j == begin)):
                targets.setdefault(j, []).append(i)
    return tuple(
        StreamEvent(
            None if j == begin else j,
            tuple(None if i == end else i for i in targets[j]),
        )
        for j in whole.order
        if j in targets
    )


def transitive_reduction(predecessors: Sequence[int], order: Sequence[int]) -> list[int]:
    """The direct predecessors that no longer path implies."""
    closure = ancestors(predecessors, order)
    reduced = list(predecessors)
    for i, mask in enumerate(predecessors):
        for j in bits(mask):
            reduced[i] &= ~closure[j]
    return reduced


def longest_path(
    predecessors: Sequence[int], order: Sequence[int], microseconds: Sequence[float]
) -> list[float]:
    """For each task, the time of the longest path from its beginning to the end."""
    way = list(microseconds)
    for i in reversed(order):
        for j in bits(predecessors[i]):
            way[j] = max(way[j], microseconds[j] + way[i])
    return way


def _critical_first(
    schedule: StreamSchedule,
    tasks: Tasks,
    reduced: Sequence[int],
    demands: Sequence[Demand],
    way: Sequence[float],
) -> StreamSchedule:
    """The schedule with streams renumbered so that stream 0 has the most critical time: that of
    dgrads, or of the longest path if there are none."""
    critical = [i for i in schedule.order if "dgrad" in tasks.tasks[i].name]
    if not critical:
        last = -1
        for i in schedule.order:
            follows = bool(reduced[i] >> last & 1) if last >= 0 else not reduced[i]
            left = way[last] - demands[last].microseconds if last >= 0 else max(way, default=0.0)
            if follows and way[i] >= left * (1 - 1e-9):
                critical.append(i)
                last = i
    spent = [0.0] * (1 + max(schedule.stream, default=0))
    for i in critical:
        spent[schedule.stream[i]] += demands[i].microseconds
    first = spent.index(max(spent))
    number = {first: 0, 0: first}
    return replace(schedule, stream=tuple(number.get(s, s) for s in schedule.stream))


def _chains(reduced: Sequence[int], order: Sequence[int], way: Sequence[float]) -> list[int]:
    """The chain of each task; tasks with long paths are matched first."""
    edges = [(j, i) for i in order for j in bits(reduced[i])]
    edges.sort(key=lambda e: (-way[e[0]] - way[e[1]], e[0], e[1]))
    successor = maximum_matching(edges)
    chain, number = [-1] * len(order), 0
    for i in order:
        if chain[i] < 0:
            chain[i], number = number, number + 1
        if i in successor:
            chain[successor[i]] = chain[i]
    return chain


def maximum_matching(edges: Iterable[tuple[int, int]]) -> dict[int, int]:
    """The partner on the right of each matched number on the left, by augmenting paths (Kuhn,
    1955). Earlier edges are preferred. `import networkx` takes longer than a small model's
    compile."""
    beside: dict[int, list[int]] = {}
    for left, right in edges:
        beside.setdefault(left, []).append(right)
    partner, taken = dict[int, int](), dict[int, int]()
    for root in beside:
        reached, queue = dict[int, int](), [root]
        free: int | None = None
        for left in queue:
            for right in (r for r in beside[left] if r not in reached):
                reached[right] = left
                if right not in taken:
                    free = right
                    break
                queue.append(taken[right])
            if free is not None:
                break
        while free is not None:  # exchange along the path back to the root
            left = reached[free]
            before = partner.get(left)
            partner[left], taken[free] = free, left
            free = before
    return partner


class _Folding:
    """List scheduling of chains onto streams over time."""

    def __init__(
        self,
        tasks: Tasks,
        serial: Sequence[int],
        reduced: Sequence[int],
        demands: Sequence[Demand],
        way: Sequence[float],
        chain: Sequence[int],
        streams: int,
        event: float,
    ) -> None:
        self.partners = _partners(tasks, serial)
        self.before = [list(bits(mask)) for mask in reduced]
        self.after: list[list[int]] = [[] for _ in reduced]
        for i, earlier in enumerate(self.before):
            for j in earlier:
                self.after[j].append(i)
        self.missing = [len(earlier) for earlier in self.before]
        self.way, self.chain, self.event = way, chain, event
        self.place = {i: n for n, i in enumerate(serial)}
        self.clock = OverlapSimulation(demands)
        self.busy: dict[int, int] = {}
        """The task running on each stream."""
        self.used = [0.0] * streams
        """The time when each stream's last task ended."""
        self.chain_stream: dict[int, int] = {}
        self.stream = [-1] * len(reduced)
        self.finish = [0.0] * len(reduced)
        self.later = iter(serial)
        self.near = [*islice(self.later, LOOKAHEAD * streams)]
        """The next tasks of the serial order, from which tasks are picked."""
        self.order: list[int] = []
        self.done = [0] * len(reduced)
        self.patience = PATIENCE * max(way, default=0.0) - event

    def run(self) -> StreamSchedule:
        """The schedule."""
        ended: list[int] = []
        early, count = 0, 0
        while self.near:
            found = self.next()
            if found is None:
                for j in self.clock.advance():
                    self.end(j)
                    ended.append(j)
                continue
            i, stream = found
            latest = self.clock.now + self.patience
            while count < len(ended) and self.finish[ended[count]] <= latest:
                early |= 1 << ended[count]
                count += 1
            self.done[i] = early | sum(1 << j for j in self.ending(latest))
            self.begin(i, stream)
        return StreamSchedule(tuple(self.order), tuple(self.stream), tuple(self.done))

    def next(self) -> tuple[int, int] | None:
        """A task and the stream on which it starts now; None if all should wait."""
        if len(self.busy) == len(self.used):
            return None
        ready = [i for i in self.near if not self.missing[i]]
        for i in sorted(ready, key=lambda i: (-self.way[i], self.place[i])):
            stream = self.stream_for(i)
            if stream is not None:
                return i, stream
        return None

    def stream_for(self, i: int) -> int | None:
        """The stream on which starting task i now pays; None if none does."""
        partners = self.partners.get(i, ())
        forbidden = {self.stream[j] for j in partners}
        streams = range(len(self.used))
        allowed = [s for s in streams if s not in forbidden] or list(streams)
        free = [s for s in allowed if s not in self.busy]
        if not free:
            return None
        own = self.chain_stream.get(self.chain[i], -1)
        stream = min(free, key=lambda s: (self.delay(i, s), s != own, -self.used[s], s))
        beside = any(j in self.clock.left for j in partners)
        return stream if not self.busy or beside or self.pays(i, stream, allowed) else None

    def pays(self, i: int, stream: int, allowed: Sequence[int]) -> bool:
        """Whether task i and all running tasks complete sooner if it starts now than after the
        first of these that frees a stream, with an event there and one back."""
        demands, left = self.clock.demands, self.clock.left
        awaited = [left[self.busy[s]] for s in allowed if s in self.busy]
        if not awaited:
            return True
        own, first = demands[i].microseconds, min(awaited)
        if min(own, first) <= 2 * self.event or self.clock.full():
            return False
        running = [(rest, demands[j]) for j, rest in left.items()]
        behind = [(rest - first, demand) for rest, demand in running if rest > first]
        after = spent(running, first) + spent([*behind, (own, demands[i])])
        now = spent([*running, (own + self.delay(i, stream), demands[i])])
        return now + 2 * self.event < after

    def delay(self, i: int, stream: int) -> float:
        """Microseconds until the stream has seen the events that task i waits for."""
        seen = [self.finish[j] + self.event for j in self.before[i] if self.stream[j] != stream]
        return max(0.0, max(seen, default=0.0) - self.clock.now)

    def ending(self, latest: float) -> list[int]:
        """The running tasks that are expected to complete by `latest`."""
        left = (latest - self.clock.now) / self.clock.slowdown()
        return [j for j, rest in self.clock.left.items() if rest <= left]

    def begin(self, i: int, stream: int) -> None:
        """Start task i on a stream."""
        self.clock.start(i, self.delay(i, stream))
        self.busy[stream] = i
        self.stream[i] = self.chain_stream[self.chain[i]] = stream
        self.order.append(i)
        self.near.remove(i)
        self.near += islice(self.later, 1)

    def end(self, i: int) -> None:
        """Note that task i has completed."""
        self.finish[i] = self.used[self.stream[i]] = self.clock.now
        del self.busy[self.stream[i]]
        for j in self.after[i]:
            self.missing[j] -= 1


def _partners(tasks: Tasks, order: Sequence[int]) -> dict[int, list[int]]:
    """For each dgrad the independent wgrads of its layer, and vice versa. Kernel names tell:
    `conv2_dgrad` and `conv2_wgrad` belong to the layer `conv2_`."""
    halves: dict[str, tuple[list[int], list[int]]] = {}
    for i in order:
        match = re.match(r"(.*?)(dgrad|wgrad)", tasks.tasks[i].name)
        if match:
            dgrads, wgrads = halves.setdefault(match[1], ([], []))
            (dgrads if match[2] == "dgrad" else wgrads).append(i)
    closure = ancestors(tasks.predecessors, order)
    partners: dict[int, list[int]] = {}
    for dgrads, wgrads in halves.values():
        for d in dgrads:
            for w in wgrads:
                if not (closure[d] >> w | closure[w] >> d) & 1:
                    partners.setdefault(d, []).append(w)
                    partners.setdefault(w, []).append(d)
    return partners
