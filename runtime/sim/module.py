"""Modules and functions of the simulated driver."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import Any

from graphc.runtime.sim import native
from graphc.runtime.sim.errors import LaunchError, LogicError
from graphc.runtime.sim.machine import SimulatedDevice
from graphc.runtime.sim.objects import Stream
from graphc.runtime.sim.queues import Bytes, StreamOperation

SHARED_BYTES = 48 * 1024
"""Bytes of shared memory that a launch may use without being allowed more."""
DYNAMIC_SHARED = 8
"""CUDA's number of the attribute MAX_DYNAMIC_SHARED_SIZE_BYTES."""
THREADS = 1024
MULTIPROCESSORS = 8
"""Blocks of a cooperative launch that run at once. Few, so that each does several blocks' work and
all threads' stacks fit this machine's memory."""


class Module:
    """A loaded shared object of kernels."""

    def __init__(self, driver: SimulatedDevice, buffer: bytes) -> None:
        self._driver = driver
        self._loaded = native.Loaded(buffer)

    def get_function(self, name: str) -> Function:
        """The kernel of that name. Raises LogicError if there is none."""
        return Function(self._driver, self._loaded.kernel(name))

    def get_cooperative(self, name: str) -> CooperativeFunction:
        """The kernel of that name, for cooperative launches. Raises LogicError if there is none."""
        return CooperativeFunction(self._driver, self._loaded.kernel(name))


class Function:
    """A kernel."""

    cooperative = False

    def __init__(self, driver: SimulatedDevice, kernel: native.NativeKernel) -> None:
        self._driver = driver
        self._kernel = kernel
        self._formats: Sequence[str] = ()
        self._dynamic_shared = SHARED_BYTES
        self.name = kernel.name
        self.max_threads_per_block = kernel.threads or THREADS

    def set_attribute(self, attribute: int, value: int) -> None:
        """Set an attribute; only MAX_DYNAMIC_SHARED_SIZE_BYTES has an effect."""
        if attribute == DYNAMIC_SHARED:
            most = self._driver.card.shared
            if value > most:
                raise LogicError(
                    f"{self.name}: {value} bytes of dynamic shared memory, there are at most {most}"
                )
            self._dynamic_shared = value

    def prepare(self, arg_types: Sequence[Any]) -> Function:
        """Set the argument types of prepared calls, as characters of `struct`."""
        self._formats = [str(each) for each in arg_types]
        return self

    def prepared_async_call(
        self,
        grid: Sequence[int],
        block: Sequence[int],
        stream: Stream | None,
        *args: Any,
        shared_size: int = 0,
    ) -> None:
        """Launch with arguments of the types that `prepare` was given."""
        values = [int(a) if f == "P" else a for f, a in zip(self._formats, args, strict=True)]
        buffer = struct.pack("".join(self._formats), *values)
        self._launch_kernel(grid, block, buffer, shared_size, stream)

    def _launch_kernel(
        self,
        grid: Sequence[int],
        block: Sequence[int],
        arg_buf: Any,
        shared: int,
        stream: Stream | None,
        reads: Iterable[Sequence[Any]] = (),
        writes: Iterable[Sequence[Any]] = (),
        scratch: Iterable[Sequence[Any]] = (),
        completes: bool = True,
    ) -> None:
        """Launch with a packed buffer of arguments, each aligned to its size.

        `reads`, `writes` and `scratch` are (start, stop) or (start, stop, name) in bytes: what the
        kernel may read, what it must write completely (or, with a period and a number after the
        name, that many bytes at the start of each period), and what it may write and read back.
        Several launches that together write `writes` run one after another on one stream, with
        `completes` false on all but the last. Without any of these nothing is checked.
        """
        arguments = bytes(arg_buf)
        milliseconds = round(self._driver.seconds * 1000)
        extents = native.Extents(
            _three(grid), _three(block), shared, milliseconds, self.cooperative
        )
        self._check_shape(extents)
        if len(arguments) != self._kernel.packed_bytes:
            raise LogicError(
                f"{self.name}: {len(arguments)} bytes of arguments, its parameters take "
                f"{self._kernel.packed_bytes}"
            )
        declared = native.Declared(*(tuple(Bytes(*r) for r in s) for s in (reads, writes, scratch)))
        choice = self._driver.scheduler.random
        order, seed = choice.choice(native.ORDERS), choice.getrandbits(32)
        group, opening = _group(stream, completes)

        def run(_: Any) -> None:
            self._kernel.run(extents, arguments, declared, order, seed, group, opening, completes)

        operation = StreamOperation(
            self.name, run, declared.reads, declared.writes + declared.scratch
        )
        self._driver.put(stream, operation)

    def _check_shape(self, extents: native.Extents) -> None:
        x, y, z = extents.grid
        threads = extents.block[0] * extents.block[1] * extents.block[2]
        if not (0 < x < 2**31 and 0 < y < 2**16 and 0 < z < 2**16):
            raise LogicError(f"{self.name}: no device runs a grid of {x} x {y} x {z} blocks")
        if not 0 < threads <= THREADS or extents.block[2] > 64:
            raise LogicError(f"{self.name}: no device runs blocks of {extents.block} threads")
        if self._kernel.cluster > 1 and not self._driver.card.clusters:
            raise LogicError(f"{self.name}: a {self._driver.card.name} has no clusters of blocks")
        if x % self._kernel.cluster:
            raise LogicError(
                f"{self.name}: {x} blocks along x, of which {self._kernel.cluster} are a cluster"
            )
        if threads > self.max_threads_per_block:
            raise LaunchError(
                f"{self.name}: {threads} threads per block, its __launch_bounds__ allow "
                f"{self.max_threads_per_block}"
            )
        if extents.shared > self._dynamic_shared:
            raise LogicError(
                f"{self.name}: {extents.shared} bytes of dynamic shared memory, allowed are "
                f"{self._dynamic_shared}: set MAX_DYNAMIC_SHARED_SIZE_BYTES"
            )


class CooperativeFunction(Function):
    """A kernel whose blocks may wait for each other: all blocks of a launch run at once."""

    cooperative = True

    def blocks(self, threads: int, shared: int, each: int = 1) -> int:
        """The most blocks of a launch with these threads and bytes of dynamic shared memory, at
        most `each` per multiprocessor, which is one here."""
        return MULTIPROCESSORS if threads <= self._driver.card.threads else 0

    def _check_shape(self, extents: native.Extents) -> None:
        super()._check_shape(extents)
        x, y, z = extents.grid
        most = self.blocks(extents.block[0], extents.shared)
        if x * y * z > most:
            raise LogicError(
                f"{self.name}: a cooperative launch of {x * y * z} blocks, of which {most} at "
                "most run at once"
            )


def _three(extents: Sequence[int]) -> tuple[int, int, int]:
    x, y, z = (*extents, 1, 1)[:3]
    return x, y, z


def _group(stream: Stream | None, completes: bool) -> tuple[native.LaunchGroup, bool]:
    """The launches that this one belongs to, and whether it is the first of them."""
    group = stream.group if stream else None
    if stream:
        stream.group = None if completes else group or native.LaunchGroup()
        return group or stream.group or native.LaunchGroup(), group is None
    return native.LaunchGroup(), True
