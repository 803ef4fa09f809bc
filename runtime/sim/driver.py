"""The simulated driver: `Simulator` has the names and the behaviour of `pycuda.driver`.

It is stricter than CUDA where CUDA silently accepts what is surely a mistake: every stream is
non-blocking, asynchronous copies take page-locked memory, an event must be recorded before it is
waited for, and memory that pending work uses is not freed. Beyond PyCUDA it has `compile`, graph
capture, and byte ranges that launches declare.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from graphc.kernels.program.kernel import TensorMap
from graphc.runtime.sim import objects
from graphc.runtime.sim.build import compile_text, compile_texts
from graphc.runtime.sim.capture import Capture, ReplayableGraph
from graphc.runtime.sim.copies import CopyFunctions
from graphc.runtime.sim.errors import Error, LaunchError, LogicError, MemoryError
from graphc.runtime.sim.libraries import Library
from graphc.runtime.sim.module import CooperativeFunction, Function, Module

GIB = 1 << 30
MAP_MARK = 0x70616D2D656C6974
"""The first word of a simulated tensor map."""


class Simulator(CopyFunctions):
    """One simulated device with its driver.

    `seed` decides the order of threads, blocks and streams, `policy` is "random", "lazy" or "eager"
    (see queues.py). With `check` modules are built with checks of every access, and launches are
    compared with the bytes that they declare. `memory` is the device's, in bytes. A launch may take
    `seconds` of processor time.
    """

    Error, LogicError, MemoryError, LaunchError = Error, LogicError, MemoryError, LaunchError
    event_flags = SimpleNamespace(DEFAULT=0, BLOCKING_SYNC=1, DISABLE_TIMING=2)
    stream_flags = SimpleNamespace(DEFAULT=0, NON_BLOCKING=1)
    function_attribute = SimpleNamespace(MAX_DYNAMIC_SHARED_SIZE_BYTES=8)

    def __init__(
        self,
        seed: int = 0,
        policy: str = "random",
        check: bool = False,
        memory: int = 2 * GIB,
        seconds: float = 120.0,
    ) -> None:
        super().__init__(seed, policy, memory, seconds)
        self.check = check
        self.products = self.convolutions = Library(self)

    def init(self, flags: int = 0) -> None:
        """As `pycuda.driver.init`."""

    def Device(self, number: int) -> objects.Device:
        """Device 0, the only one."""
        if number != 0:
            raise LogicError(f"cuDeviceGet failed: there is 1 simulated device, got {number}")
        return objects.Device(self)

    @property
    def Context(self) -> objects.Context:
        """The class of contexts, whose static methods act on the current one."""
        return objects.Context(self)

    def Stream(self, flags: int = 0) -> objects.Stream:
        """A non-blocking stream: flags must be 1."""
        self.require_context()
        return objects.Stream(self, flags)

    def Event(self, flags: int = 0) -> objects.Event:
        self.require_context()
        return objects.Event(self, flags)

    def mem_alloc(self, nbytes: int) -> objects.DeviceAllocation:
        """Memory of the device, aligned to 256 bytes. Raises MemoryError if it is too small."""
        self.require_context()
        return objects.DeviceAllocation(self, nbytes)

    def mem_get_info(self) -> tuple[int, int]:
        """(free, total) bytes."""
        self.require_context()
        return self.memory.total - self.memory.used, self.memory.total

    def pagelocked_empty(
        self, shape: Any, dtype: Any, order: str = "C", mem_flags: int = 0
    ) -> np.ndarray[Any, Any]:
        """An uninitialised array that asynchronous copies may read and write."""
        self.require_context()
        return self.memory.pagelocked(shape, dtype)

    def module_from_buffer(
        self, buffer: bytes, options: Sequence[str] = (), message_handler: Any = None
    ) -> Module:
        """The module that `compile` made."""
        self.require_context()
        return Module(self, buffer)

    cooperates = True
    """Whether it has cooperative launches."""

    def cooperative(self, buffer: bytes, name: str) -> CooperativeFunction:
        """The kernel `name` of a module, for cooperative launches."""
        return self.module_from_buffer(buffer).get_cooperative(name)

    @property
    def begins_early(self) -> bool:
        """Whether it has programmatic dependent launches; none of its launches begins early."""
        return self.card.clusters

    @property
    def arch(self) -> str:
        """The architecture of the GPU that it stands for."""
        return self.card.arch

    def early(self, buffer: bytes, name: str) -> Function:
        """The kernel `name` of a module, for programmatic dependent launches."""
        return self.module_from_buffer(buffer).get_function(name)

    def tensor_map(self, address: int, matrix: TensorMap) -> bytes:
        """How the simulated TMA copies panels of a matrix at this address (`MapOfMatrix` in
        bulk.h). Raises LogicError where cuTensorMapEncodeTiled would fail."""
        if address % 16 or matrix.pitch % 16:
            raise LogicError(
                f"tensor_map: 16 has to divide the address {address:#x} and the pitch of "
                f"{matrix.pitch} bytes"
            )
        sizes = matrix.length, matrix.lines, matrix.pitch
        return struct.pack("QQIIQ96x", MAP_MARK, address, *sizes)

    def compile(self, text: str, name: str, where: str = "") -> bytes:
        """The "cubin" of CUDA text whose file is called `name`: a shared object of this machine.
        Raises CompileError, naming the kernel and its origin `where`, if it is not valid C++."""
        return compile_text(text, name, self.check, where)

    def compile_all(self, kernels: Sequence[tuple[str, str, str]]) -> list[bytes]:
        """As `compile` for each (text, name, where), at once."""
        return compile_texts(kernels, self.check)

    def begin_capture(self, stream: objects.Stream) -> None:
        """Capture what `stream`, and streams that fork from it, are given as a graph."""
        if stream.capture is not None:
            raise LogicError(f"begin_capture: {stream} is being captured already")
        stream.capture = Capture(stream.queue, self._owner)
        stream.capture.streams.add(stream)

    def raise_priority(self, stream: objects.Stream) -> None:
        """Does nothing: streams run in adversarial order, whatever their priority."""

    def end_capture(
        self, stream: objects.Stream, before: CapturedGraph | None = None
    ) -> CapturedGraph:
        """The captured graph: `before`, updated, if its nodes and edges are the same. Raises
        LogicError if a forked stream was not joined."""
        capture = stream.capture
        if capture is None or capture.origin is not stream.queue:
            raise LogicError(f"end_capture: no capture began on {stream}")
        capture.finish()
        made = CapturedGraph(self, capture)
        return before if before is not None and before.try_update(made) else made


class CapturedGraph:
    """An executable graph."""

    def __init__(self, driver: Simulator, capture: Capture) -> None:
        self._driver = driver
        self._graph = ReplayableGraph(capture.nodes, driver.scheduler.random, driver.log)
        self.nodes = tuple(node.name for node in capture.nodes)

    def try_update(self, other: CapturedGraph) -> bool:
        """Update it to do what `other` does; returns False if their nodes or edges differ."""
        if self._graph.shape != other._graph.shape:
            return False
        self._graph = other._graph
        return True

    def launch(self, stream: objects.Stream) -> None:
        """Launch the whole graph on the stream."""
        self._driver.put(stream, self._graph.operation())
