"""The simulated device: its memory, its work order, and the contexts that may use it."""

from __future__ import annotations

import threading
from typing import Any, Protocol

from graphc.runtime.sim.capture import Capture
from graphc.runtime.sim.cards import simulated_card
from graphc.runtime.sim.errors import LogicError
from graphc.runtime.sim.memory import Memory
from graphc.runtime.sim.queues import Bytes, Queue, Scheduler, StreamOperation


class Queued(Protocol):
    """A stream, as far as the device knows it."""

    queue: Queue
    capture: Capture | None


class SimulatedDevice:
    """One simulated device. The arguments are those of `Simulator`, the driver."""

    def __init__(self, seed: int, policy: str, memory: int, seconds: float) -> None:
        self.seconds, self.card = seconds, simulated_card()
        self.memory = Memory(memory)
        self.scheduler = Scheduler(seed, policy, self._owner)
        self.host = self.scheduler.new_queue()
        """The host's own operations, which run at once."""
        self.log = self.scheduler.log
        self._contexts = threading.local()

    def require_context(self) -> None:
        """Raise LogicError if the calling thread has no context."""
        if not self.contexts:
            raise LogicError("no context is current in this thread: push one")

    @property
    def contexts(self) -> list[Any]:
        """The calling thread's stack of contexts."""
        if not hasattr(self._contexts, "stack"):
            self._contexts.stack = []
        stack: list[Any] = self._contexts.stack
        return stack

    def synchronize(self) -> None:
        """Wait for all streams."""
        self.require_context()
        self.scheduler.wait(queue.last for queue in self.scheduler.queues)

    def put(self, stream: Queued | None, operation: StreamOperation) -> None:
        """Put an operation on a stream, or add it to the graph that the stream is captured to."""
        self.require_context()
        if stream is None:
            raise LogicError(
                f"{operation.name}: a stream is needed; the default stream waits for all others "
                "and hides events that are missing"
            )
        if stream.capture is not None:
            stream.capture.put(stream.queue, operation)
        else:
            self.scheduler.put(stream.queue, operation)

    def run_now(self, operation: StreamOperation) -> None:
        """Let the host run an operation, and wait for it."""
        self.require_context()
        self.scheduler.put(self.host, operation)
        self.scheduler.wait([operation])

    def _owner(self, place: Bytes, name: str) -> int:
        return self.memory.owner(place, name)
