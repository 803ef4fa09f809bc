"""Capture work on streams as a graph, and launch graphs, as CUDA does.

A capture begins on one stream. Another stream takes part once it waits for an event recorded in the
capture, and the first stream must join it, directly or not, before the end.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from typing import Any, Protocol

from graphc.runtime.sim.errors import LogicError
from graphc.runtime.sim.queues import Accesses, Bytes, Queue, StreamOperation


class Captured(Protocol):
    """A stream that may take part in a capture."""

    capture: Capture | None


class Capture:
    """A graph under construction."""

    def __init__(self, origin: Queue, owner: Callable[[Bytes, str], int]) -> None:
        self.origin = origin
        self.open = True
        self.streams: set[Captured] = set()
        """All streams that take part in the capture."""
        self.nodes: list[StreamOperation] = []
        self.ends: dict[Queue, list[StreamOperation]] = {origin: []}
        """The operations that the next one on each stream must follow."""
        self._accesses = Accesses({})
        self._owner = owner

    def put(self, queue: Queue, operation: StreamOperation) -> None:
        """Add an operation. Raises RaceError if it is not ordered with all it must be."""
        number = len(self.nodes) + 1  # grows along every stream
        operation.place(queue, number, self.ends[queue], {})
        self._accesses.add(operation, self._owner)
        self.nodes.append(operation)
        self.ends[queue] = [operation]

    def join(self, queue: Queue, operations: Iterable[StreamOperation]) -> None:
        """Order later work of the stream after `operations`; the stream takes part from now on."""
        self.ends.setdefault(queue, []).extend(operations)

    def finish(self) -> None:
        """End the capture. Raises LogicError if a stream has forked and was not joined."""
        self.open = False
        for stream in self.streams:
            stream.capture = None
        reached: set[StreamOperation] = set()
        stack = list(self.ends[self.origin])
        while stack:
            operation = stack.pop()
            if operation not in reached:
                reached.add(operation)
                stack.extend(operation.after)
        loose = [o for o in self.nodes if o not in reached]
        if loose:
            raise LogicError(
                f"end_capture: {loose[-1].queue} was forked from {self.origin} and not joined: "
                f"{loose[-1].name} would never be waited for"
            )


class ReplayableGraph:
    """A finished capture. It runs as one operation; its nodes run in any order that its edges
    allow."""

    def __init__(self, nodes: list[StreamOperation], choice: random.Random, log: list[str]) -> None:
        self.nodes = nodes
        self._choice, self._log = choice, log
        self._reads = merged(r for node in nodes for r in node.reads)
        self._writes = merged(w for node in nodes for w in node.writes)

    @property
    def shape(self) -> list[tuple[str, set[int]]]:
        """Each node's name, and the numbers of its predecessors."""
        number = {node: i for i, node in enumerate(self.nodes)}
        return [(node.name, {number[other] for other in node.after}) for node in self.nodes]

    def operation(self) -> StreamOperation:
        """One launch of the graph."""
        return StreamOperation("graph", self._run, self._reads, self._writes, self._prepare)

    def _prepare(self) -> list[Any]:
        return [node.prepare() for node in self.nodes]

    def _run(self, prepared: list[Any]) -> None:
        remaining = {node: len(set(node.after)) for node in self.nodes}
        following: dict[StreamOperation, list[StreamOperation]] = {node: [] for node in self.nodes}
        for node in self.nodes:
            for other in set(node.after):
                following[other].append(node)
        values = dict(zip(self.nodes, prepared, strict=True))
        ready = [node for node, count in remaining.items() if count == 0]
        while ready:
            node = ready.pop(self._choice.randrange(len(ready)))
            self._log.append(node.name)
            node.run(values[node])
            for other in following[node]:
                remaining[other] -= 1
                if remaining[other] == 0:
                    ready.append(other)


def merged(ranges: Iterable[Bytes]) -> tuple[Bytes, ...]:
    """The same bytes, with overlapping ranges merged."""
    result: list[Bytes] = []
    for place in sorted(ranges):
        if result and place.start < result[-1].stop:
            last = result[-1]
            name = last.name if last.name == place.name else ""
            result[-1] = Bytes(last.start, max(last.stop, place.stop), name)
        else:
            result.append(place)
    return tuple(result)
