"""Devices, contexts, streams, events and memory of the simulated driver, as PyCUDA has them."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

from graphc.runtime.sim import native
from graphc.runtime.sim.capture import Capture
from graphc.runtime.sim.errors import LogicError
from graphc.runtime.sim.machine import SimulatedDevice
from graphc.runtime.sim.queues import StreamOperation

NON_BLOCKING = 1
DISABLE_TIMING = 2


class Device:
    """The simulated device."""

    def __init__(self, driver: SimulatedDevice) -> None:
        self._driver = driver

    @staticmethod
    def count() -> int:
        return 1

    def name(self) -> str:
        return "simulated GPU"

    def compute_capability(self) -> tuple[int, int]:
        return 9, 0

    def total_memory(self) -> int:
        """Bytes."""
        return self._driver.memory.total

    def retain_primary_context(self) -> Context:
        """A context that is not current yet."""
        return Context(self._driver)

    def make_context(self, flags: int = 0) -> Context:
        """A context that is current."""
        context = Context(self._driver)
        context.push()
        return context


class Context:
    """A context of the simulated device; all of them share its memory."""

    def __init__(self, driver: SimulatedDevice) -> None:
        self._driver = driver

    def push(self) -> None:
        """Make it current in the calling thread."""
        self._driver.contexts.append(self)

    def pop(self) -> None:
        """Make the one below current again."""
        self._driver.require_context()
        self._driver.contexts.pop()

    def detach(self) -> None:
        """As in PyCUDA: also pops it if it is current."""
        stack = self._driver.contexts
        if stack and stack[-1] is self:
            stack.pop()

    def synchronize(self) -> None:
        self._driver.synchronize()

    def get_current(self) -> Context | None:
        stack = self._driver.contexts
        return stack[-1] if stack else None

    def get_device(self) -> Device:
        return Device(self._driver)


class Stream:
    """A queue of work. Nothing runs before the host waits for something."""

    def __init__(self, driver: SimulatedDevice, flags: int) -> None:
        if flags != NON_BLOCKING:
            raise LogicError(
                f"Stream: flags must be 1 (non-blocking), got {flags}; a blocking stream waits "
                "for the default stream, which hides events that are missing"
            )
        self._driver = driver
        self.queue = driver.scheduler.new_queue()
        self.capture: Capture | None = None
        self.group: native.LaunchGroup | None = None
        """The group of launches that leave some of their outputs to the next one."""

    @property
    def handle(self) -> int:
        return self.queue.number

    def __str__(self) -> str:
        return str(self.queue)

    def synchronize(self) -> None:
        """Let the host wait for all work on the stream."""
        self._driver.require_context()
        if self.capture is not None:
            raise LogicError(f"{self}: synchronize on a stream that is being captured")
        self._driver.scheduler.wait([self.queue.last])

    def is_done(self) -> bool:
        return self.queue.last is None or self.queue.last.done

    def wait_for_event(self, event: Event) -> None:
        """Make later work on the stream wait for the event."""
        self._driver.require_context()
        if event.captured is not None:
            self._join_capture(event)
        elif self.capture is not None:
            raise LogicError(f"{self} is being captured and waits for an event from outside")
        elif event.operation is None:
            raise LogicError(
                f"{self} waits for an event that was never recorded; CUDA would not wait at all"
            )
        else:
            self.queue.joined.append(event.operation)

    def _join_capture(self, event: Event) -> None:
        assert event.captured is not None
        capture, operations = event.captured
        if self.capture not in (None, capture):
            raise LogicError(f"{self} is being captured and waits for an event of another capture")
        if not capture.open:
            raise LogicError(f"{self} waits for an event that was recorded in a finished capture")
        self.capture = capture
        capture.streams.add(self)
        capture.join(self.queue, operations)


class Event:
    """A mark in a stream."""

    def __init__(self, driver: SimulatedDevice, flags: int) -> None:
        self._driver, self._flags = driver, flags
        self.operation: StreamOperation | None = None
        self.captured: tuple[Capture, list[StreamOperation]] | None = None
        self._seconds = 0.0

    def record(self, stream: Stream | None = None) -> Event:
        """Mark the stream's work so far."""
        self._driver.require_context()
        if stream is not None and stream.capture is not None:
            self.captured = stream.capture, list(stream.capture.ends[stream.queue])
            return self
        operation = StreamOperation("event", self._stamp)
        self._driver.put(stream, operation)
        self.captured, self.operation = None, operation
        return self

    def synchronize(self) -> Event:
        """Let the host wait for the event."""
        self._driver.require_context()
        self._driver.scheduler.wait([self._recorded()])
        return self

    def query(self) -> bool:
        """Whether the work before it has ended."""
        return self._recorded().done

    def time_since(self, event: Event) -> float:
        """Milliseconds of this machine from `event` to here; both must have ended."""
        for each in (self, event):
            if each._flags & DISABLE_TIMING:
                raise LogicError("the event was made without timing")
            if not each.query():
                raise LogicError("the event has not ended: synchronize first")
        return (self._seconds - event._seconds) * 1000

    def time_till(self, event: Event) -> float:
        return event.time_since(self)

    def _recorded(self) -> StreamOperation:
        if self.captured is not None:
            raise LogicError("the event was recorded in a capture: it never ends")
        if self.operation is None:
            raise LogicError("the event was never recorded; CUDA would take it for ended")
        return self.operation

    def _stamp(self, _: Any) -> None:
        self._seconds = time.perf_counter()


class DeviceAllocation:
    """Memory of the device; `int()` gives its address."""

    def __init__(self, driver: SimulatedDevice, nbytes: int) -> None:
        self._driver = driver
        self._address = driver.memory.allocate(nbytes)

    def __int__(self) -> int:
        return self._address

    __index__ = __int__

    def free(self) -> None:
        """Free the memory. Raises LogicError if pending work uses it."""
        if self._address:
            pending = self._driver.scheduler.accesses.pending(self._address)
            if pending is not None:
                raise LogicError(
                    f"memory is freed that {pending.name} on {pending.queue} has yet to use"
                )
            self._driver.scheduler.accesses.forget(self._address)
            self._driver.memory.free(self._address)
            self._address = 0

    def __del__(self, finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        # When the interpreter ends, modules are gone and the system takes the memory back.
        if getattr(self, "_address", 0) and not finalizing():
            self.free()
