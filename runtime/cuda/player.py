"""Run a plan on a GPU: first launch by launch, then as one CUDA graph.

A call issues on stream 0 the copies of its inputs and of state that changed elsewhere, the graph of
all launches on all streams, and one copy of all outputs to page-locked memory. Nothing waits for
the device before a result is read. Inputs, outputs and work memory have fixed addresses in the
device's arena, so launches are packed once and a foreign array costs one copy.
"""

from __future__ import annotations

import sys
import time
import weakref
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from graphc.base import config
from graphc.base.dtypes import Array
from graphc.base.locks import refuse_reentry
from graphc.base.messages import log
from graphc.ir import Graph
from graphc.ir.state import StateBuffer
from graphc.parallel.group import Group
from graphc.runtime.cuda.blocks import Block
from graphc.runtime.cuda.device import Device
from graphc.runtime.cuda.device_array import DeviceArray, arrays_in
from graphc.runtime.cuda.foreign import NO_STREAM, ForeignArray, foreign_array
from graphc.runtime.cuda.launches import (
    Addresses,
    Functions,
    Issue,
    Places,
    compile_kernels,
)
from graphc.runtime.cuda.nccl import communicator
from graphc.runtime.cuda.reservation import (
    arena_bytes,
    out_of_memory,
    output_span,
    reserve,
    reserve_memory,
    work_start,
)
from graphc.runtime.cuda.slot import Slot
from graphc.runtime.plan.plan import Launch, Loop, Plan, Record
from graphc.runtime.plan.unroll import WrittenOut, unrolled
from graphc.runtime.ranks import Ranks

Input = Array | ForeignArray

SLOTS = 2
"""Calls whose outputs can be in flight to the host at once."""


class Results:
    """The outputs of one call, in flight to the host, or `arrays` that stay on the device."""

    def __init__(
        self, executable: CudaPlayer, slot: Slot | None, arrays: list[Any] | None = None
    ) -> None:
        self._executable, self._slot, self._arrays = executable, slot, arrays

    def done(self) -> bool:
        """Return whether `read` returns without waiting for the call."""
        if self._slot is None:
            return True
        with self._executable.device.entered():
            return self._arrays is not None or self._slot.ended()

    def read(self) -> list[Any]:
        """The outputs as new arrays. Waits for the call to end."""
        executable = self._executable
        if self._slot is None:
            return list(self._arrays or ())
        with executable.device.entered():  # another thread may read this to use the slot again
            if self._arrays is None:
                self._arrays = executable.fetch(self._slot)
        return list(self._arrays)


class CudaPlayer:
    """A plan bound to state buffers, by the names of the plan's state values, and to a device.

    With `replay` the second and later calls launch a captured graph; without `collects` there are
    no calls, only steps to issue. `graph` is the planned graph, which gives `run_checked` the types
    of values in the arena. Messages go to the ranks of `group`, by NCCL. An executable may be
    called from several threads: calls of all programs on a device run one after another. Raises
    CompileError if a kernel does not compile, and RunError if the device's memory is too small or
    for a call from within a call.
    """

    def __init__(
        self,
        plan: Plan,
        state: Mapping[str, StateBuffer],
        device: Device,
        graph: Graph | None = None,
        replay: bool = True,
        collects: bool = True,
        group: Group | None = None,
    ) -> None:
        refuse_reentry(plan.name)
        self.plan, self.device, self.graph = plan, device, graph
        self.steps = unrolled(plan)
        self.buffers = [state[b.value.name] for b in plan.state]
        self._replay, self.keeps = replay and device.captures, False
        self._needed, self._outputs = arena_bytes(plan), output_span(plan)
        first = self._outputs[0]
        kinds = [(b.place.start - first, b.value.type) for b in plan.outputs]
        self.results_within = [(offset, kind.shape, kind.numpy_dtype) for offset, kind in kinds]
        """Where each output begins among all, its shape and its dtype."""
        early = config.early_launch() and device.driver.begins_early
        images = compile_kernels(plan, device)
        with device.entered():
            self.copies = reserve_memory(plan, self.buffers, device)
            device.ensure_streams(plan.streams)
            self.sends = any(kernel.message is not None for kernel in plan.kernels.values())
            self._ranks = Ranks(plan, group) if self.sends else None
            nccl = communicator(self._ranks.group, device.ordinal) if self._ranks else None
            functions = Functions(plan, device, images, early, nccl)
            self._kept = _DriverObjects(
                functions, [Slot(plan, device, collects) for _ in range(SLOTS)]
            )
        self._state = list(zip(self.buffers, self.copies, strict=True))
        written = Places(plan.state).written(plan, "state")
        self.updated = [(self.buffers[i], self.copies[i]) for i in written]
        self._issues: list[tuple[Issue, bool]] = []
        """What `bound` returned."""
        self._bound_to, self._current = 0, False
        weakref.finalize(self, device.retire, self._kept).atexit = False

    def keep_results(self) -> None:
        """From now on let `run` and `submit` return arrays that stay on the device, without
        waiting."""
        self.keeps = True
        if self.device.is_visible:
            with self.device.entered():
                self.device.ensure_forks(self.plan.streams)

    @property
    def has_run(self) -> bool:
        """Whether it has been called, so that its kernels are loaded."""
        return self._bound_to != 0

    @property
    def stale(self) -> list[bool]:
        """Whether the device's copy of each piece of state is not the newest."""
        return [copy.version != buffer.version for buffer, copy in self._state]

    @property
    def is_captured(self) -> bool:
        """Whether a graph of another library holds its launches."""
        return id(self._kept) in self.device.captured

    def keep_forever(self) -> None:
        """Keep kernels, events and state for graphs of another library."""
        self.device.captured[id(self._kept)] = self._kept, self.copies

    def run(self, inputs: Sequence[Input]) -> list[Any]:
        """One call: returns the outputs as new arrays and updates the state on the device.

        The inputs are C-contiguous with the shapes and dtypes of `plan.inputs`, in host memory or,
        as `foreign` returns them, in the device's.
        """
        self._begin()
        with self.device.entered():
            block = self.new_block()
            return self.results(self._submit(inputs), block)

    def submit(self, inputs: Sequence[Input]) -> Results:
        """As `run`, without waiting for the device."""
        self._begin()
        with self.device.entered():
            block = self.new_block()
            slot = self._submit(inputs)
            if block is not None:
                return Results(self, slot, self.results(slot, block))
            results = Results(self, slot)
            slot.results = weakref.ref(results)
            return results

    def new_block(self) -> Block | None:
        """Memory for the outputs of a call, if they stay on the device, which is entered. Raises
        RunError if there is none left."""
        if not self.keeps:
            return None
        start, stop = self._outputs
        try:
            return self.device.blocks.take(stop - start)
        except self.device.driver.MemoryError:
            raise out_of_memory(self.plan, self.device) from None

    def results(self, slot: Slot, block: Block | None) -> list[Any]:
        """The outputs of the last call: from its slot, once they have arrived, or copied to a block
        without waiting. The device is entered."""
        if block is None:
            return self.fetch(slot)
        device, (start, stop) = self.device, self._outputs
        if stop > start:
            address = device.arena.address + start
            device.driver.memcpy_dtod_async(block.address, address, stop - start, device.streams[0])
        holder, stream = device.blocks.holder(block), int(device.streams[0].handle)
        return arrays_in(device, holder, self.results_within, stream)

    def _begin(self) -> None:
        """Do what must precede locking this device: the locks of others may be taken here."""
        refuse_reentry(self.plan.name)
        if self._ranks:
            names = [binding.value.name for binding in self.plan.state]
            self._ranks.begin(dict(zip(names, self.buffers, strict=True)))
        for buffer, copy in self._state:
            if buffer.current != copy.name:
                buffer.refresh_host()

    def _submit(self, inputs: Sequence[Input]) -> Slot:
        """Issue a whole call; returns the slot of its outputs. The device is entered."""
        self.prepare(inputs)
        # Marked as written before it is: an interrupt may come right after the last launch.
        self.mark_updated()
        self._play()
        return self.collect([x for x in inputs if isinstance(x, ForeignArray)])

    def foreign(self, value: Any, name: str) -> ForeignArray | None:
        """An array of another library on the device, as an input; None if it is on the host. Raises
        GraphError if it cannot be used."""
        if isinstance(value, DeviceArray):
            here = value.lies_on(self.device)
            return ForeignArray(value.address, value.shape, value.dtype, value) if here else None
        handle = int(self.device.streams[0].handle)
        if "torch" in sys.modules and self.device.torch_captures():
            handle = NO_STREAM
        return foreign_array(value, name, self.device.ordinal, handle)

    def fetch(self, slot: Slot) -> list[Array]:
        """The outputs in a slot, once they have arrived. The device is entered."""
        if self.plan.outputs:
            slot.finish()
        return [view.copy() for view in slot.outputs]

    def addresses(self) -> Addresses:
        """The addresses of the plan's bytes in the arena as it lies."""
        plan, arena = self.plan, self.device.arena.address
        io = [arena + binding.place.start for binding in (*plan.inputs, *plan.outputs)]
        return Addresses(plan, [x.address for x in self.copies], io, arena + work_start(plan))

    def issues(self, step: WrittenOut, stream: Any = None) -> list[Issue]:
        """The driver's calls that issue a step on its stream, or on `stream`."""
        stream = stream or self.device.streams[step.stream]
        return self._kept.functions.issues(step, self.addresses(), stream)

    def prepare(self, inputs: Sequence[Input]) -> None:
        """Bring the newest state and the inputs to their places, in the order of stream 0."""
        device, stream = self.device, self.device.streams[0]
        if device.arena.nbytes < self._needed:
            reserve(self.plan, device)
        if self._bound_to != device.arena.address:
            self._bind()
        for buffer, copy in self._state:
            if copy.version != buffer.version:
                copy.refresh(buffer)
        slot = self._kept.free_slot()
        if slot.inputs and not any(isinstance(x, ForeignArray) for x in inputs):
            slot.upload(inputs, device.arena.address, stream)
            return
        for array, binding in zip(inputs, self.plan.inputs, strict=True):
            address = device.arena.address + binding.place.start
            if not isinstance(array, ForeignArray):
                device.staging.upload(address, array, stream)
            elif array.nbytes:
                if array.stream is not None:
                    device.driver.wait_for_stream(stream, array.stream)
                device.driver.memcpy_dtod_async(address, array.address, array.nbytes, stream)

    def mark_updated(self) -> None:
        """Mark the copies of the state that the plan writes as the newest contents."""
        for buffer, copy in self.updated:
            buffer.version += 1
            buffer.current, copy.version = copy.name, buffer.version

    def _bind(self) -> None:
        """Pack the launches for the arena's current address."""
        self._issues = self.bound(self.addresses(), self.device.streams)
        self._bound_to, self._current = self.device.arena.address, False

    def bound(self, addresses: Addresses, streams: Sequence[Any]) -> list[tuple[Issue, bool]]:
        """Functions that issue all steps on these streams, each with whether it is a launch on the
        first of several, which has the critical path and the higher priority."""
        functions = self._kept.functions
        several = self.plan.streams > 1
        cooperates = self.device.driver.cooperates
        runs, stop = deque(self.plan.joined if cooperates else ()), 0
        launched: set[int] = set()
        """Streams whose last step was a kernel launch; a wait for another stream ends that."""
        found: list[tuple[Issue, bool]] = []
        for u in self.steps:
            if runs and runs[0].first <= u.number:
                run = runs.popleft()
                if issue := functions.joined(run, addresses, streams[0]):
                    stop = run.stop
                    found.append((issue, False))
                    launched.discard(0)
            if u.number >= stop:
                step = u.step
                urgent = several and isinstance(step, Launch) and step.stream == 0
                stream, after_launch = streams[step.stream], step.stream in launched
                issues = functions.issues(step, addresses, stream, after_launch)
                found += [(x, urgent) for x in issues]
                if isinstance(step, Launch) and functions.launches(step.kernel):
                    launched.add(step.stream)
                elif not isinstance(step, Record):
                    launched.discard(step.stream)
        return found

    def _play(self) -> None:
        """Issue all steps: by the graph if there is one, updated if addresses have changed. The
        first time they are issued one by one, which loads the kernels, and then the graph is
        captured."""
        captured = self._kept.captured
        if captured is not None and not self._current:
            captured = self._kept.captured = self._capture(captured)
            self._current = True
        if captured is not None:
            captured.launch(self.device.streams[0])
            return
        for issue, _ in self._issues:
            issue()
        if self._replay and self._issues:
            self._kept.captured, self._current = self._capture(), True

    def _capture(self, before: Any = None) -> Any:
        driver, stream = self.device.driver, self.device.streams[0]
        begin = time.perf_counter()
        driver.begin_capture(stream)
        try:
            for issue, urgent in self._issues:
                issue()
                if urgent:
                    driver.raise_priority(stream)
        finally:
            captured = driver.end_capture(stream, before)
        if any(isinstance(step, Loop) for step in self.plan.steps):
            milliseconds = 1000 * (time.perf_counter() - begin)
            log(
                "info",
                f"{self.plan.name}: loops written out as {len(self._issues)} nodes of a graph in "
                f"{milliseconds:.1f} ms",
            )
        return captured

    def collect(self, foreign: Sequence[ForeignArray] = ()) -> Slot:
        """Issue the copy of the outputs to the host on stream 0, unless they stay; returns their
        slot."""
        stream = self.device.streams[0]
        slot = self._kept.free_slot()
        start, stop = self._outputs
        if stop > start and not self.keeps:
            address = self.device.arena.address + start
            self.device.driver.memcpy_dtoh_async(slot.memory, address, stream)
        slot.done.record(stream)
        slot.keep, slot.busy = tuple(foreign), True
        self._kept.advance()
        return slot


class _DriverObjects:
    """Driver objects of an executable, freed together."""

    def __init__(self, functions: Functions, slots: Sequence[Slot]) -> None:
        self.functions = functions
        self.captured: Any = None
        self._slots = deque(slots)

    def free_slot(self) -> Slot:
        """The least recently used slot, once its call has ended; its results are read first if
        anyone holds them."""
        slot = self._slots[0]
        if slot.busy:
            slot.finish_again()
            unread = slot.results() if slot.results else None
            if unread is not None:
                unread.read()
        return slot

    def advance(self) -> None:
        """Let the next call use the next slot."""
        self._slots.rotate(-1)
