"""Which task runs on which stream, in which order the tasks are issued, and which events order
the streams.

Streams, after Nimble (Kwon et al., NeurIPS 2020): the transitive reduction of the dependencies is
cut into the fewest chains by a maximum matching between tasks and their successors. With a stream
for each chain no task would wait for want of a stream. List scheduling on estimated times folds
the chains onto the streams there are: the ready task that can start first goes first, and among
those the one with the longest way to the end (dgrad before wgrad), on the stream where it starts
first, which is its chain's in case of doubt. The dgrad and the wgrad of a layer never share one.

Events: to the dependencies come the order of each stream, a beginning on stream 0 before all and
an end on stream 0 after all. An edge of the transitive reduction of this whole that crosses
streams is an event; no other edge needs one, and no path goes around it, so none is redundant.
Where memory is used again by another stream, the planner adds that to the dependencies.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import networkx as nx

from graphc.runtime.planner.order import ancestors
from graphc.runtime.planner.tasks import Tasks, bits

LOOKAHEAD = 2
"""How many tasks per stream, of those that the serial order would run next, may be picked from.
Streams that run further ahead gain no time and hold more memory."""


PATIENCE = 0.05
"""How long a task may be made to wait for memory, as a share of the longest way: less than what
the estimates are wrong by."""


@dataclass(frozen=True)
class Schedule:
    """`order` holds the task numbers in the order of issue, `stream` the stream of each task.

    `done[i]` has bit j set if task j, issued before task i, is expected to have ended so early that
    task i may wait for it with little loss of time. Only with several streams.
    """

    order: tuple[int, ...]
    stream: tuple[int, ...]
    done: tuple[int, ...] = ()


@dataclass(frozen=True)
class Event:
    """Recorded after task `source` (None: at the beginning, on stream 0), waited for before each
    of `targets` (None: at the end, on stream 0)."""

    source: int | None
    targets: tuple[int | None, ...]


def assign_streams(
    tasks: Tasks,
    serial: Sequence[int],
    microseconds: Sequence[float],
    streams: int,
    event_microseconds: float,
) -> Schedule:
    """Spread the tasks over at most `streams` streams. `serial` is the order on one stream, which
    also breaks ties; `microseconds` estimates each task."""
    if streams == 1:
        return Schedule(tuple(serial), (0,) * len(serial))
    reduced = transitive_reduction(tasks.predecessors, serial)
    way = _longest_way(reduced, serial, microseconds)
    chain = _chains(reduced, serial, way)
    folding = _Folding(tasks, serial, streams, chain)
    return folding.run(reduced, microseconds, way, event_microseconds)


def expected_order(predecessors: Sequence[int], schedule: Schedule) -> list[int]:
    """For each task all that comes before it, or may be made to with little loss of time,
    as bits."""
    before = ancestors(stream_order(predecessors, schedule), schedule.order)
    if not schedule.done:
        return before
    return [mask | done for mask, done in zip(before, schedule.done, strict=True)]


def stream_order(predecessors: Sequence[int], schedule: Schedule) -> list[int]:
    """The dependencies with the order of each stream added: for each task, as bits, what comes
    directly before it."""
    edges = list(predecessors)
    last: dict[int, int] = {}
    for i in schedule.order:
        stream = schedule.stream[i]
        if stream in last:
            edges[i] |= 1 << last[stream]
        last[stream] = i
    return edges


def needed_events(
    predecessors: Sequence[int], schedule: Schedule, looped: bool = False
) -> tuple[Event, ...]:
    """The events without which a dependency, the fork or the join would be lost; one per task
    that is waited for, in the order of issue. The tasks of a loop's body fork and join without."""
    count = len(predecessors)
    begin, end = count, count + 1
    stream = (*schedule.stream, 0, 0)
    whole = Schedule((begin, *schedule.order, end), stream)
    dependencies = [mask or 1 << begin for mask in predecessors] + [0, (1 << count) - 1]
    reduced = transitive_reduction(stream_order(dependencies, whole), whole.order)
    targets: dict[int, list[int]] = {}
    for i in whole.order:
        for j in bits(reduced[i]):
            if stream[i] != stream[j] and not (looped and (i == end or j == begin)):
                targets.setdefault(j, []).append(i)
    return tuple(
        Event(
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


def _longest_way(
    reduced: Sequence[int], order: Sequence[int], microseconds: Sequence[float]
) -> list[float]:
    """For each task the time from its beginning to the end along the longest path."""
    way = list(microseconds)
    for i in reversed(order):
        for j in bits(reduced[i]):
            way[j] = max(way[j], microseconds[j] + way[i])
    return way


def _chains(reduced: Sequence[int], order: Sequence[int], way: Sequence[float]) -> list[int]:
    """For each task the number of its chain. The longest ways are offered to the matching first."""
    edges = [(j, ~i) for i in order for j in bits(reduced[i])]
    edges.sort(key=lambda e: (-way[e[0]] - way[~e[1]], e[0], -e[1]))
    bipartite = nx.Graph()
    bipartite.add_nodes_from(order)
    bipartite.add_edges_from(edges)
    matching = nx.bipartite.hopcroft_karp_matching(bipartite, order)
    chain, number = [-1] * len(order), 0
    for i in order:
        if chain[i] < 0:
            chain[i], number = number, number + 1
        if i in matching:
            chain[~matching[i]] = chain[i]
    return chain


class _Folding:
    """List scheduling of chains onto streams."""

    def __init__(
        self, tasks: Tasks, serial: Sequence[int], streams: int, chain: Sequence[int]
    ) -> None:
        self.partners = _partners(tasks, serial)
        self.serial = serial
        self.place = {i: n for n, i in enumerate(serial)}
        self.window = LOOKAHEAD * streams
        self.chain = chain
        self.free = [0.0] * streams
        self.chain_stream: dict[int, int] = {}
        self.stream = [-1] * len(serial)
        self.finish = [0.0] * len(serial)

    def run(
        self,
        reduced: Sequence[int],
        microseconds: Sequence[float],
        way: Sequence[float],
        event_microseconds: float,
    ) -> Schedule:
        self.event = event_microseconds
        after: list[list[int]] = [[] for _ in reduced]
        for i, mask in enumerate(reduced):
            for j in bits(mask):
                after[j].append(i)
        missing = [mask.bit_count() for mask in reduced]
        ready = {i for i, n in enumerate(missing) if not n}
        waiting = list(self.serial)
        order: list[int] = []
        done = [0] * len(reduced)
        while waiting:
            near = [i for i in waiting[: self.window] if i in ready]
            starts = {i: self.best_start(i, reduced[i]) for i in near}
            i = min(near, key=lambda i: (starts[i][0], -way[i], self.place[i]))
            start, stream = starts[i]
            waiting.remove(i)
            ready.remove(i)
            early = start + PATIENCE * max(way) - self.event
            done[i] = sum(1 << j for j in order if self.finish[j] <= early)
            order.append(i)
            self.stream[i] = self.chain_stream[self.chain[i]] = stream
            self.finish[i] = self.free[stream] = start + microseconds[i]
            for j in after[i]:
                missing[j] -= 1
                if not missing[j]:
                    ready.add(j)
        return Schedule(tuple(order), tuple(self.stream), tuple(done))

    def best_start(self, i: int, before: int) -> tuple[float, int]:
        """(time, stream) of task i's earliest start where none of its partners is; the stream of
        its chain if no other is better."""
        forbidden = {self.stream[j] for j in self.partners.get(i, ())}
        allowed = [s for s in range(len(self.free)) if s not in forbidden]
        own = self.chain_stream.get(self.chain[i], -1)
        start, _, stream = min(
            (self.start(i, before, s), s != own, s) for s in allowed or range(len(self.free))
        )
        return start, stream

    def start(self, i: int, before: int, stream: int) -> float:
        """When task i could begin on `stream`, after the tasks `before`."""
        arrivals = (
            self.finish[j] + (self.event if self.stream[j] != stream else 0.0) for j in bits(before)
        )
        return max((self.free[stream], *arrivals))


def _partners(tasks: Tasks, order: Sequence[int]) -> dict[int, list[int]]:
    """For each dgrad the independent wgrads of its layer, and the other way round. A kernel's
    name tells: `conv2_dgrad` and `conv2_wgrad` belong to the layer `conv2_`."""
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
