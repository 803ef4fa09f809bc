"""Streams of the simulated GPU: which operation precedes which, and when each one runs.

Order is decided when an operation is put on a stream. Each operation has a vector clock: for each
stream, the number of operations that have ended before it begins. Operations that touch the same
bytes, one of them writing, must be ordered by those clocks, else a RaceError is raised at once.

Work on streams runs when the host waits for something. Then, of all operations whose predecessors
are done, a seeded choice picks the next one: any ("random"), one that the host waits for, so that
everything else lags ("lazy"), or one that it does not wait for ("eager").
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from graphc.runtime.sim.errors import LogicError, RaceError

POLICIES = ("random", "lazy", "eager")
LOGGED = 1_000_000
"""Names that the log holds before it drops its older half."""

VectorClock = dict[int, int]


class Bytes(NamedTuple):
    """The addresses `start` to `stop` (exclusive); `name` names them in messages.

    With a `period`, writes cover only the first `live` bytes of each period.
    """

    start: int
    stop: int
    name: str = ""
    period: int = 0
    live: int = 0


@dataclass(eq=False)
class StreamOperation:
    """Work on a stream. `prepare` runs when it is put there, `run` gets its result."""

    name: str
    """The name in messages."""
    run: Callable[[Any], None]
    reads: tuple[Bytes, ...] = ()
    """Bytes that it reads."""
    writes: tuple[Bytes, ...] = ()
    """Bytes that it writes."""
    prepare: Callable[[], Any] = lambda: None
    queue: Queue | None = None
    """The stream that it was put on; None before."""
    tick: int = 0
    """Its number on the stream."""
    clock: VectorClock = field(default_factory=dict)
    """For each stream, the operations that precede it."""
    after: list[StreamOperation] = field(default_factory=list)
    """Operations that must run before it."""
    done: bool = False
    """Whether it has run."""

    def place(
        self, queue: Queue, tick: int, after: Iterable[StreamOperation], clock: VectorClock
    ) -> None:
        """Make it operation `tick` of the queue, after the operations of `after` and `clock`."""
        self.queue, self.tick, self.after = queue, tick, list(after)
        self.clock = dict(clock)
        for other in self.after:
            join(self.clock, other.clock)
        self.clock[queue.number] = tick

    def before(self, clock: VectorClock) -> bool:
        """Whether it precedes an operation with this clock."""
        assert self.queue is not None
        return clock.get(self.queue.number, 0) >= self.tick


class Queue:
    """A stream's pending operations, its last one, and what its next one waits for."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.waiting: deque[tuple[StreamOperation, Any]] = deque()
        self.tick = 0
        self.last: StreamOperation | None = None
        self.joined: list[StreamOperation] = []

    def __str__(self) -> str:
        return f"stream {self.number}"


Entry = tuple[Bytes, bool, StreamOperation]
"""Bytes, whether they are written, and the operation."""


class Accesses:
    """Past accesses, as far as a later operation could be unordered with them."""

    def __init__(self, host: VectorClock) -> None:
        self._host = host
        self._touched: dict[int, list[Entry]] = {}

    def add(self, operation: StreamOperation, owner: Callable[[Bytes, str], int]) -> None:
        """Check an operation against the earlier ones. `owner` gives the owner of bytes (the start
        of an allocation, 0 for the host) and rejects unallocated ones."""
        ranges = [(r, False) for r in operation.reads] + [(w, True) for w in operation.writes]
        places = [(owner(place, operation.name), place, writes) for place, writes in ranges]
        for start, place, writes in places:
            for old, wrote, other in self._touched.get(start, ()):
                overlaps = old.start < place.stop and place.start < old.stop
                if overlaps and (writes or wrote) and not other.before(operation.clock):
                    raise RaceError(_race(old, wrote, other, place, writes, operation))
        for start, place, writes in places:
            newest = (place, writes, operation)
            kept = [e for e in self._touched.get(start, ()) if self._matters(e, newest)]
            self._touched[start] = [*kept, newest]

    def _matters(self, entry: Entry, newest: Entry) -> bool:
        """Whether an access may race with a later one that does not race with `newest`."""
        (old, wrote, other), (place, writes, operation) = entry, newest
        inside = place.start <= old.start and old.stop <= place.stop
        replaced = inside and (writes or not wrote) and other.before(operation.clock)
        return not replaced and not other.before(self._host)

    def pending(self, start: int) -> StreamOperation | None:
        """A pending operation that touches the allocation at `start`; None if there is none."""
        entries = self._touched.get(start, ())
        return next((operation for _, _, operation in entries if not operation.done), None)

    def forget(self, start: int) -> None:
        self._touched.pop(start, None)


class Scheduler:
    """All queues of a device, and the host's clock."""

    def __init__(self, seed: int, policy: str, owner: Callable[[Bytes, str], int]) -> None:
        if policy not in POLICIES:
            raise LogicError(f"policy: expected one of {', '.join(POLICIES)}, got {policy!r}")
        self.random = random.Random(seed)
        self.policy = policy
        self.queues: list[Queue] = []
        self.host: VectorClock = {}
        self.accesses = Accesses(self.host)
        self.log: list[str] = []
        """The names of the last operations in the order in which they ran."""
        self._owner = owner

    def new_queue(self) -> Queue:
        self.queues.append(Queue(len(self.queues)))
        return self.queues[-1]

    def put(self, queue: Queue, operation: StreamOperation) -> StreamOperation:
        """Put an operation on a queue. Raises RaceError if it is not ordered with all it must
        be."""
        last = [queue.last] if queue.last else []
        operation.place(queue, queue.tick + 1, [*last, *queue.joined], self.host)
        self.accesses.add(operation, self._owner)
        queue.tick, queue.last, queue.joined = queue.tick + 1, operation, []
        queue.waiting.append((operation, operation.prepare()))
        return operation

    def wait(self, operations: Iterable[StreamOperation | None]) -> None:
        """Let the host wait for these operations."""
        awaited = [o for o in operations if o is not None]
        needed = _predecessors(awaited)
        if len(self.log) > LOGGED:
            del self.log[: LOGGED // 2]
        try:
            while any(not o.done for o in awaited):
                queue = self._choose(needed)
                operation, prepared = queue.waiting.popleft()
                operation.done = True
                operation.after.clear()
                self.log.append(operation.name)
                operation.run(prepared)
        except BaseException:
            self.drop()
            raise
        for operation in awaited:
            join(self.host, operation.clock)

    def _choose(self, needed: set[StreamOperation]) -> Queue:
        ready = [q for q in self.queues if q.waiting and _ready(q.waiting[0][0])]
        assert ready, "operations wait for earlier ones alone"
        if self.policy == "lazy":
            ready = [q for q in ready if q.waiting[0][0] in needed]
        elif self.policy == "eager":
            ready = [q for q in ready if q.waiting[0][0] not in needed] or ready
        return self.random.choice(ready)

    def drop(self) -> None:
        """Drop all pending work, after an error."""
        for queue in self.queues:
            for operation, _ in queue.waiting:
                operation.done = True
            queue.waiting.clear()


def join(clock: VectorClock, other: VectorClock) -> None:
    """Order `clock` after all that `other` is after."""
    for queue, tick in other.items():
        if clock.get(queue, 0) < tick:
            clock[queue] = tick


def _ready(operation: StreamOperation) -> bool:
    return all(other.done for other in operation.after)


def _predecessors(operations: Sequence[StreamOperation]) -> set[StreamOperation]:
    """The operations and all pending ones that must run before them."""
    found: set[StreamOperation] = set()
    stack = list(operations)
    while stack:
        operation = stack.pop()
        if operation not in found and not operation.done:
            found.add(operation)
            stack.extend(operation.after)
    return found


def _race(
    old: Bytes,
    wrote: bool,
    other: StreamOperation,
    new: Bytes,
    writes: bool,
    operation: StreamOperation,
) -> str:
    low, high = max(old.start, new.start), min(old.stop, new.stop)
    name = new.name or old.name or f"{new.start:#x}"
    verbs = ["writes" if w else "reads" for w in (wrote, writes)]
    return (
        f"bytes {low - new.start} to {high - new.start} of {name}: {other.name} on {other.queue} "
        f"{verbs[0]} them, {operation.name} on {operation.queue} {verbs[1]} them, "
        "and no event or synchronisation puts one before the other"
    )
