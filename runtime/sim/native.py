"""The native half of the simulated GPU: its memory, loaded kernels, and launches with findings."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import itertools
import re
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from graphc.base.cached import cached_property
from graphc.base.locks import NOTES, free_after_fork
from graphc.runtime.sim.build import simulator_object
from graphc.runtime.sim.elf import shared_variables
from graphc.runtime.sim.errors import LaunchError, LogicError, MemoryError
from graphc.runtime.sim.queues import Bytes

FORWARD, BACKWARD, SHUFFLED = ORDERS = (0, 1, 2)
"""In which order threads and blocks run."""

LOCK = free_after_fork(threading.RLock(), NOTES)
"""Allows one launch at a time. It is reentrant, as the collector may free memory while this thread
holds it."""

_serials = itertools.count(1)


class _Index3(ctypes.Structure):
    _fields_ = (("x", ctypes.c_uint32), ("y", ctypes.c_uint32), ("z", ctypes.c_uint32))


class _Finding(ctypes.Structure):
    _fields_ = (
        ("pc", ctypes.c_uint64),
        ("block", _Index3),
        ("thread", _Index3),
        ("has_thread", ctypes.c_int32),
        ("text", ctypes.c_char * 492),
    )


class _Range(ctypes.Structure):
    _fields_ = (
        ("start", ctypes.c_uint64),
        ("stop", ctypes.c_uint64),
        ("reads", ctypes.c_int32),
        ("writes", ctypes.c_int32),
        ("scratch", ctypes.c_int32),
        ("period", ctypes.c_int32),
        ("live", ctypes.c_int32),
        ("unused", ctypes.c_int32),
        ("name", ctypes.c_char_p),
    )


class _SharedVariable(ctypes.Structure):
    _fields_ = (
        ("offset", ctypes.c_uint64),
        ("bytes", ctypes.c_uint64),
        ("name", ctypes.c_char_p),
    )


class _Request(ctypes.Structure):
    _fields_ = (
        ("entry", ctypes.c_void_p),
        ("packed", ctypes.c_char_p),
        ("grid", _Index3),
        ("block", _Index3),
        ("dynamic", ctypes.c_void_p),
        ("shared_bytes", ctypes.c_uint32),
        ("order", ctypes.c_uint32),
        ("seed", ctypes.c_uint32),
        ("check", ctypes.c_uint32),
        ("touch_serial", ctypes.c_uint32),
        ("opening", ctypes.c_uint32),
        ("completes", ctypes.c_uint32),
        ("range_count", ctypes.c_uint32),
        ("shared_count", ctypes.c_uint32),
        ("milliseconds", ctypes.c_uint32),
        ("cooperative", ctypes.c_uint32),
        ("cluster", ctypes.c_uint32),
        ("ranges", ctypes.POINTER(_Range)),
        ("shared_variables", ctypes.POINTER(_SharedVariable)),
    )


@dataclass(frozen=True)
class Extents:
    """The configuration of a launch."""

    grid: tuple[int, int, int]
    """Blocks along each axis."""
    block: tuple[int, int, int]
    """Threads along each axis."""
    shared: int
    """Bytes of dynamic shared memory."""
    milliseconds: int
    """Processor time that the launch may take."""
    cooperative: bool = False
    """Whether all blocks run at once."""


@dataclass(frozen=True)
class Declared:
    """The bytes that a launch may read, must write, and may use as scratch."""

    reads: tuple[Bytes, ...] = ()
    """Bytes that it may read."""
    writes: tuple[Bytes, ...] = ()
    """Bytes that it must write."""
    scratch: tuple[Bytes, ...] = ()
    """Bytes that it may write and read back."""

    @cached_property
    def packed(self) -> tuple[Any, int]:
        """An array of ranges, one per range of bytes, and its length."""
        done: dict[tuple[int, int], list[Any]] = {}
        for kind, places in enumerate((self.reads, self.writes, self.scratch)):
            for place in places:
                entry = done.setdefault((place.start, place.stop), [0, 0, 0, 0, 0, place.name])
                entry[kind] = 1
                if kind == 1:
                    entry[3:5] = place.period, place.live
        array = (_Range * len(done))(
            *(
                _Range(start, stop, *numbers, 0, (name or hex(start)).encode())
                for (start, stop), (*numbers, name) in done.items()
            )
        )
        return array, len(done)


@dataclass
class LaunchGroup:
    """Launches that write the same outputs together."""

    serial: int = 0


@functools.cache
def library() -> ctypes.CDLL:
    """The simulator, with global symbols that kernels resolve against. Raises CompileError."""
    loaded = _load(simulator_object(), ctypes.RTLD_GLOBAL)
    for name in ("allocate", "base", "size"):
        getattr(loaded, f"graphc_sim_{name}").restype = ctypes.c_uint64
    loaded.graphc_sim_findings.restype = ctypes.POINTER(_Finding)
    return loaded


def allocate(nbytes: int) -> int:
    """The address of new bytes of the device, all 0xFF."""
    with LOCK:
        address = int(library().graphc_sim_allocate(ctypes.c_uint64(nbytes)))
    if not address:
        raise MemoryError(f"mem_alloc: this machine has not {nbytes} bytes left")
    return address


def free(address: int) -> None:
    """Free memory of the device."""
    with LOCK:
        library().graphc_sim_free(ctypes.c_uint64(address))


def on_device(address: int) -> bool:
    """Whether an address is one of the device's."""
    base, size = _device()
    return base <= address < base + size


def wrote(address: int, nbytes: int) -> None:
    """Note that the host, or a copy, has written bytes of the device."""
    with LOCK:
        library().graphc_sim_wrote(ctypes.c_uint64(address), ctypes.c_uint64(nbytes))


@functools.cache
def _device() -> tuple[int, int]:
    return int(library().graphc_sim_base()), int(library().graphc_sim_size())


class Loaded:
    """A module of kernels, loaded from the bytes of its shared object."""

    def __init__(self, image: bytes) -> None:
        library()
        self._image = image
        try:
            self.library = _load(image, ctypes.DEFAULT_MODE)
        except OSError as error:
            raise LogicError(f"module_from_buffer: not a module: {error}") from error
        self.library.graphc_sim_dynamic.restype = ctypes.c_void_p
        self.check = hasattr(self.library, "graphc_sim_checked")
        variables = shared_variables(image)
        self.shared = (_SharedVariable * len(variables))(
            *(_SharedVariable(offset, nbytes, n.encode()) for offset, nbytes, n in variables)
        )

    def kernel(self, name: str) -> NativeKernel:
        if not hasattr(self.library, f"graphc_sim_run_{name}"):
            raise LogicError(f"get_function: the module has no kernel {name}")
        return NativeKernel(self, name)

    def line(self, pc: int) -> str:
        """Where the instruction before `pc` comes from, innermost first: "a.cuh:3, from b.cu:7"."""
        tool = shutil.which("addr2line")
        if tool is None:
            return f"address {pc:#x}"
        offset = hex(pc - 1 - self._base())
        with _file(self._image) as path:
            command = [tool, "-s", "-i", "-e", path, offset]
            done = subprocess.run(command, capture_output=True, text=True)
        lines = [re.sub(r" \(discriminator \d+\)$", "", x) for x in done.stdout.splitlines()]
        return ", from ".join(dict.fromkeys(lines)) or offset

    def _base(self) -> int:
        """The address where the file's first byte is loaded."""
        touch = ctypes.cast(self.library.graphc_sim_touch, ctypes.c_void_p).value
        with open("/proc/self/maps") as maps:
            regions = [line.split() for line in maps]
        assert touch is not None
        inode = next(r[4] for r in regions if _inside(r[0], touch))
        return min(int(r[0].split("-")[0], 16) for r in regions if r[4] == inode)


@dataclass
class NativeKernel:
    """A kernel of a module."""

    module: Loaded
    name: str
    threads: int = field(init=False)
    """Its __launch_bounds__; 0 for none."""
    cluster: int = field(init=False)
    """Blocks of a cluster, by its __cluster_dims__; 1 for none."""
    packed_bytes: int = field(init=False)
    """Bytes of its packed arguments."""

    def __post_init__(self) -> None:
        library = self.module.library
        self.threads = getattr(library, f"graphc_sim_threads_{self.name}")()
        self.cluster = getattr(library, f"graphc_sim_cluster_{self.name}")()
        self.packed_bytes = getattr(library, f"graphc_sim_packed_{self.name}")()
        entry = getattr(library, f"graphc_sim_run_{self.name}")
        self._entry = ctypes.cast(entry, ctypes.c_void_p).value

    def run(
        self,
        extents: Extents,
        packed: bytes,
        declared: Declared,
        order: int,
        seed: int,
        group: LaunchGroup,
        opening: bool,
        completes: bool,
    ) -> None:
        """Run a launch now. Raises LaunchError if a check finds something.

        `group` is that of the launches that write `declared.writes`, of which this one is the first
        (`opening`), the last (`completes`), both or neither.
        """
        module = self.module
        ranges, count = declared.packed
        with LOCK:
            if opening:
                group.serial = next(_serials)
            module.library.graphc_sim_touch()
            request = _Request(
                self._entry,
                packed,
                _Index3(*extents.grid),
                _Index3(*extents.block),
                module.library.graphc_sim_dynamic(),
                extents.shared,
                order,
                seed,
                module.check,
                group.serial,
                opening,
                completes,
                count,
                len(module.shared),
                extents.milliseconds,
                extents.cooperative,
                self.cluster,
                ranges,
                module.shared,
            )
            found = library().graphc_sim_launch(ctypes.byref(request))
            findings = library().graphc_sim_findings()
            texts = [self._text(findings[i]) for i in range(found)]
        if texts:
            raise LaunchError("\n".join(texts))

    def _text(self, finding: _Finding) -> str:
        b, t = finding.block, finding.thread
        where = []
        if finding.has_thread:
            where += [f"block ({b.x}, {b.y}, {b.z})", f"thread ({t.x}, {t.y}, {t.z})"]
        if finding.pc:
            where.append(self.module.line(finding.pc))
        text = f"{self.name} {finding.text.decode()}"
        return f"{text} [{', '.join(where)}]" if where else text


def touched(address: int, nbytes: int, group: LaunchGroup) -> bytes:
    """For each byte 1 if the launches of the group have read it, 2 if they have written it, 3 if
    both; for check builds."""
    result = ctypes.create_string_buffer(nbytes)
    with LOCK:
        library().graphc_sim_touched(
            ctypes.c_uint64(address), ctypes.c_uint64(nbytes), group.serial, result
        )
    return result.raw


@contextlib.contextmanager
def _file(image: bytes) -> Iterator[str]:
    """The path of a file of these bytes, of a name that the process has not used before."""
    prefix = f"graphc-{next(_serials)}-"
    with tempfile.NamedTemporaryFile(prefix=prefix, suffix=".so") as file:
        file.write(image)
        file.flush()
        yield file.name


def _load(image: bytes, mode: int) -> ctypes.CDLL:
    with _file(image) as path:
        return ctypes.CDLL(path, mode=mode)


def _inside(region: str, address: int) -> bool:
    start, stop = (int(x, 16) for x in region.split("-"))
    return start <= address < stop
