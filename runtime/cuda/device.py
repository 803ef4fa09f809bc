"""A GPU as all programs on it share it: context, streams, arena, copies of state.

The context is the device's primary one, which PyTorch and CuPy use too. It is current only during
calls: other libraries keep theirs, PyCUDA exits without complaint, and any thread may call. Driver
objects are also freed only then, never by a garbage collector at another moment.
"""

from __future__ import annotations

import atexit
import functools
import os
import sys
import threading
import weakref
from collections import deque
from contextlib import suppress
from typing import Any

import numpy as np

from graphc.base import config
from graphc.base.config import cubins
from graphc.base.dtypes import Array
from graphc.base.errors import CompileError, RunError
from graphc.base.interrupts import INTERRUPTS
from graphc.base.locks import FINDING, free_after_fork, new_lock
from graphc.ir import ROW_MAJOR, Layout, Type
from graphc.ir.state import StateBuffer, elements, stored
from graphc.runtime.cuda.blocks import Blocks
from graphc.runtime.cuda.compile import find_compiler
from graphc.runtime.cuda.staging import Staging

NON_BLOCKING = 1
"""The flag of streams that do not wait for the default stream."""


class Device:
    """A GPU and the driver that controls it.

    `driver` has the interface of `pycuda.driver` and `PycudaDriver`. `name` is the device's name in
    messages, unique in the process. With `declares` launches declare the bytes that they touch,
    which the simulated driver checks; `captures` tells whether the driver captures graphs.
    """

    def __init__(
        self,
        driver: Any,
        name: str,
        ordinal: int = 0,
        declares: bool = False,
        captures: bool = True,
    ) -> None:
        self.driver, self.name, self.ordinal = driver, name, ordinal
        self.declares, self.captures = declares, captures
        self.is_visible = not declares
        """Whether other libraries can read its memory, which is a GPU's."""
        self.lock = new_lock()
        self.streams: list[Any] = []
        self.forks: list[Any] = []
        """Streams for calls that another library captures."""
        self.captured: dict[int, Any] = {}
        """Driver objects and memory that graphs of another library use, by their owner's identity.
        Never freed: such a graph may be launched at any time."""
        self.arena, self.blocks = DeviceArena(driver), Blocks(driver, self.streams)
        self._process = os.getpid()
        self._retired: deque[Any] = deque()
        driver.init()
        self._context = driver.Device(ordinal).retain_primary_context()
        self._pop = driver.Context.pop
        self._entered, self._recording = Entered(self, False), Entered(self, True)
        with self.entered():
            self.staging = Staging(driver)
            self.ensure_streams(1)
        atexit.register(self._shut_down)

    def entered(self, in_capture: bool = False) -> Entered:
        """Hold the device's lock with its context current. Driver errors within the block become
        RunError. Raises RunError while PyTorch captures a graph, unless it is `in_capture`: what
        waits for the device would break the capture."""
        return self._recording if in_capture else self._entered

    def enter(self, in_capture: bool) -> None:
        """Begin what `entered` does."""
        if "torch" in sys.modules and not in_capture and self.torch_captures():
            raise RunError(
                f"{self.name}: PyTorch is capturing a CUDA graph, in which graphc only calls "
                "programs with out='device' that have run before"
            )
        if os.getpid() != self._process:
            raise RunError(
                f"{self.name}: a forked process cannot use the GPU of its parent; start it with "
                "multiprocessing's method 'spawn'"
            )
        self.lock.acquire()
        try:
            self._context.push()
        except BaseException:
            self.lock.release()
            raise
        try:
            if not in_capture:
                self._free_retired()
        except BaseException as error:
            self.leave()
            self.convert_error(error)
            raise

    def leave(self) -> None:
        """End what `entered` does."""
        try:
            self._pop()
        finally:
            self.lock.release()

    def convert_error(self, error: BaseException | None) -> None:
        """Raise RunError for an error of the driver."""
        if isinstance(error, self.driver.Error) and not isinstance(error, RunError):
            raise RunError(f"{self.name}: {error}; what the call updates may be lost") from error

    def _free_retired(self) -> None:
        """Free retired driver objects once nothing uses them."""
        if self._retired:
            self.driver.Context.synchronize()
            self._retired.clear()

    def _shut_down(self) -> None:
        """Synchronize the device before the interpreter frees its memory, and pop the context, of
        which PyCUDA would complain later."""
        if os.getpid() == self._process:
            with suppress(RunError), self.entered():
                self.driver.Context.synchronize()
            self._context.detach()

    def ensure_streams(self, count: int) -> None:
        """Create non-blocking streams until there are `count`."""
        self._ensure(self.streams, count)

    def ensure_forks(self, count: int) -> None:
        """As `ensure_streams`, for calls that another library captures."""
        self._ensure(self.forks, count)

    def _ensure(self, streams: list[Any], count: int) -> None:
        while len(streams) < count:
            streams.append(self.driver.Stream(NON_BLOCKING))

    def torch_captures(self) -> bool:
        """Whether PyTorch, which is loaded, is capturing a CUDA graph on its current stream."""
        if not self.is_visible:
            return False
        cuda = sys.modules["torch"].cuda
        return bool(cuda.is_initialized() and cuda.is_current_stream_capturing())

    def retire(self, things: Any) -> None:
        """Free driver objects when a context is current next."""
        self._retired.append(things)

    def copy_of(self, buffer: StateBuffer, layout: Layout) -> DeviceCopy:
        """The buffer's copy here under a layout, created if needed; its contents may be stale."""
        name = self.copy_name(layout)
        found = buffer.copies.get(name)
        if found is None:
            type = buffer.type.with_layout(layout)
            found = buffer.copies[name] = DeviceCopy(self, name, type)
        copy: DeviceCopy = found
        return copy

    def copy_name(self, layout: Layout) -> str:
        """The name of copies here under a layout: the device's, if they are row-major."""
        return f"{self.name}{layout}"


class Entered:
    """The block in which a device is entered. Ctrl-C waits for its end, so that no step is issued
    in part. (Not a generator: a small step takes only some microseconds in all.)"""

    def __init__(self, device: Device, in_capture: bool) -> None:
        self._device, self._in_capture = device, in_capture

    def __enter__(self) -> None:
        INTERRUPTS.begin()
        try:
            self._device.enter(self._in_capture)
        except BaseException:
            INTERRUPTS.end()
            raise

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        try:
            self._device.leave()
            self._device.convert_error(error)
        finally:
            INTERRUPTS.end()


class DeviceArena:
    """The memory for inputs, outputs and work that all programs of a device share: one allocation,
    as large as the largest program needs."""

    def __init__(self, driver: Any) -> None:
        self._driver = driver
        self._memory: Any = None
        self.nbytes = 0
        self.address = 0

    def reserve(self, nbytes: int) -> None:
        """Grow to at least `nbytes`. The address changes if it grows, after the device is idle.
        Raises the driver's MemoryError; then only the contents are lost."""
        if nbytes <= self.nbytes:
            return
        self._driver.Context.synchronize()
        if self._memory is not None:
            self._memory.free()
        self._memory, self.nbytes, self.address = None, 0, 0
        self._memory = self._driver.mem_alloc(nbytes)
        self.nbytes, self.address = nbytes, int(self._memory)


class DeviceCopy:
    """The contents of a StateBuffer on a device in the layout of `type`, at a fixed `address`.

    `version` is that of the contents, -1 at first; `name` is among the buffer's copies.
    """

    def __init__(self, device: Device, name: str, type: Type) -> None:
        self._device, self.lock = device, device.lock
        self.name, self.type, self.nbytes = name, type, type.nbytes
        memory = device.driver.mem_alloc(max(self.nbytes, 1))
        self.address = int(memory)
        self.version = -1
        # Not __del__: a collector that finds a cycle would finalize the memory itself as well.
        weakref.finalize(self, device.retire, memory).atexit = False

    def read_into(self, array: Array) -> None:
        """Copy the contents as of the last call into the host's array."""
        plain = self.type.layout == ROW_MAJOR
        whole = array if plain else np.empty(self.type.storage_shape, array.dtype)
        with self._device.entered():
            self._device.staging.download(whole, self.address, self._device.streams[0])
        if not plain:
            array[...] = elements(whole, self.type)

    def refresh(self, buffer: StateBuffer) -> None:
        """Bring the newest contents here, in the order of stream 0."""
        if self.version != buffer.version:
            buffer.refresh_host()
            array = np.ascontiguousarray(stored(buffer.array, self.type.layout))
            self._device.staging.upload(self.address, array, self._device.streams[0])
            self.version = buffer.version


_LOCK = free_after_fork(threading.Lock(), FINDING)


@functools.cache
def gpu_found() -> bool:
    """Whether this machine has a GPU and all that is needed to use it, a compiler included unless
    compiled kernels were brought along."""
    try:
        find_device("cuda")
        if cubins() is None:
            find_compiler()
    except (CompileError, RunError):
        return False
    return True


def find_device(name: str, check: bool = False) -> Device:
    """The device called "cuda", "cuda:N" or "sim". `check` lets the simulated one check every
    memory access. Raises RunError, naming what is missing, if there is none."""
    kind, _, number = name.partition(":")
    with _LOCK:
        if kind == "sim":
            return _simulated(check, config.sim_gpu())
        return _gpu(int(number or 0))


def lacks_tensor_cores(name: str) -> bool:
    """Whether there is a device called "cuda", "cuda:N" or "sim" whose compute capability is below
    8.0. No context is created."""
    kind, _, number = name.partition(":")
    if kind == "sim":
        from graphc.runtime.sim.cards import simulated_card

        return not simulated_card().tensor_cores
    return _lacks_tensor_cores(int(number or 0))


@functools.cache
def _lacks_tensor_cores(ordinal: int) -> bool:
    from graphc.runtime.cuda.driver import open_driver

    try:
        arch = open_driver(ordinal).arch
    except RunError:
        return False
    return int(arch.strip("sm_af")) < 80


def gpu_name(name: str) -> str | None:
    """What the times of kernels on a device depend on; None for one that is absent or simulated."""
    if not name.startswith("cuda"):
        return None
    try:
        found = find_device(name)
    except RunError:
        return None
    driver = found.driver
    version = driver.get_driver_version()
    return f"{driver.Device(found.ordinal).name()}, {driver.arch}, driver {version}"


@functools.cache
def _gpu(ordinal: int) -> Device:
    from graphc.runtime.cuda.driver import open_driver

    driver = open_driver(ordinal)
    return Device(driver, f"cuda:{ordinal}", ordinal, captures=driver.captures)


@functools.cache
def _simulated(check: bool, gpu: str) -> Device:
    """`gpu` is what the environment names; it is part of the key."""
    from graphc.runtime.sim import Simulator

    return Device(Simulator(check=check), "sim checked" if check else "sim", declares=True)
