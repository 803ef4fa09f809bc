"""Build the CPU's kernels: equal ones once, and many per translation unit.

A compiler takes 0.15 s to start, to read the headers and to link, as long as for a small kernel. So
kernels that are not in the cache are grouped into units, each kernel in a namespace of its own, and
the cores build the units in parallel. Each kernel is found again by itself, whatever it was built
with: `KEY.so` is another name of its unit's object, and its function is `kernel_KEY`. The key is
the digest of the kernel's text without names (`kernels/program/form.py`), so kernels that differ
only in names share one function. All functions of the headers are inlined always or never, or
compiled independently of their callers (SHARED), so a kernel's instructions do not depend on its
neighbours.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from graphc.base.cores import usable_cores
from graphc.base.errors import CompileError
from graphc.base.messages import log, progress
from graphc.kernels.program.kernel import Kernel
from graphc.runtime.compilers import cache, shared_objects
from graphc.runtime.compilers.compiler import (
    BackgroundThread,
    Compiler,
    failure,
    find_compiler,
    run,
    side_by_side,
)
from graphc.runtime.compilers.shared_objects import (
    FLAGS,
    KERNEL_HEADERS,
    address_of,
    kernel_headers,
    key,
)

UNIT_COST = 60.0
"""The largest cost of a unit, in simple kernels: some seconds of compilation."""

_COSTS = {"attend": 30.0, "contract": 4.0, "reduce": 3.0}
"""The compile cost of a kernel by template, in simple kernels of 30 ms each, without headers."""

_INCLUDE = re.compile(r"^#include .*\n", re.MULTILINE)
_SIGNED = re.compile(r"\bint(?:8|32|64)_t\b")


@dataclass(frozen=True)
class PendingKernel:
    """A kernel to build: the first of those with one key."""

    kernel: Kernel
    """The kernel."""
    where: str
    """Where in the user's program it comes from; "" if nowhere."""
    key: str
    """The key of its object in the cache."""

    @property
    def symbol(self) -> str:
        """The name of its function."""
        return f"kernel_{self.key}"

    @property
    def cost(self) -> float:
        """Its compile cost, in simple kernels."""
        return _COSTS.get(self.kernel.template, 1.0)

    @property
    def wraps(self) -> bool:
        """Whether it may compute with signed integers, which wrap around."""
        return _SIGNED.search(self.kernel.source) is not None

    def text(self) -> str:
        """The kernel's text without includes, with its function renamed to the symbol."""
        text = _INCLUDE.sub("", self.kernel.source)
        text = re.sub(rf"\bvoid {self.kernel.name}\(", f"void {self.symbol}(", text)
        return f"namespace {self.symbol}_space {{\n{text}}}\n"


def build_kernels(
    kernels: Mapping[str, Kernel],
    wheres: Mapping[str, object] | None = None,
    lanes: int | None = None,
    keys: Mapping[str, str] | None = None,
) -> dict[str, int]:
    """The address of each kernel's function, by the kernel's name; built if it is not in the cache.
    Raises CompileError.

    Kernels that do the same share an address. `wheres` tells where kernels come from, for errors;
    `lanes` are those of the kernels' target, by default this CPU's; `keys` are the result of
    `kernel_keys`, if known.
    """
    if not kernels:
        return {}
    keys = keys or kernel_keys(kernels, lanes)
    wanted = pending_kernels(kernels, keys, wheres)
    with kernel_builder(lanes) as builder:
        builder.build(builder.missing(wanted.values()))
        functions = {found: builder.address(pending) for found, pending in wanted.items()}
    return {name: functions[found] for name, found in keys.items()}


def pending_kernels(
    kernels: Mapping[str, Kernel],
    keys: Mapping[str, str],
    wheres: Mapping[str, object] | None = None,
) -> dict[str, PendingKernel]:
    """The kernels by their keys, each once; `keys` are those of `kernel_keys`, `wheres` as for
    `build_kernels`."""
    wanted: dict[str, PendingKernel] = {}
    for name, kernel in kernels.items():
        found = keys[name]
        wanted.setdefault(found, PendingKernel(kernel, str((wheres or {}).get(name, "")), found))
    return wanted


@contextlib.contextmanager
def kernel_builder(lanes: int | None = None) -> Iterator[KernelBuilder]:
    """What builds kernels into the cache. Raises CompileError if there is no compiler, and for what
    `cache.open_folder` refuses."""
    with cache.open_folder("cpu") as folder:
        yield KernelBuilder(find_compiler(), kernel_flags(lanes), folder)


def kernel_keys(kernels: Mapping[str, Kernel], lanes: int | None = None) -> dict[str, str]:
    """The key of each kernel's object in the cache, by the kernel's name."""
    compiler, headers = find_compiler(), kernel_headers()
    flags = kernel_flags(lanes)[:-1]
    return {n: key(kernel.canonical, headers, flags, compiler) for n, kernel in kernels.items()}


def object_of(name: str) -> bytes:
    """The shared object of this name in the cache, without its seal. Raises CompileError if the
    cache has lost it."""
    with cache.open_folder("cpu") as folder:
        body, _ = cache.unsealed(cache.read(folder / name))
    if not body:
        raise CompileError(f"the cache of compiled kernels has lost {name}: compile again")
    return body


def toolchain() -> str:
    """The digest of what kernels are built with: compiler, flags, headers, CPU features."""
    return key("", kernel_headers(), kernel_flags(None)[:-1], find_compiler())


def kernel_flags(lanes: int | None = None) -> tuple[str, ...]:
    """The flags of kernels besides FLAGS, the folder of the headers last; `lanes` as for
    `build_kernels`."""
    width = lanes or shared_objects.cpu_target().lanes
    return (f"-DGRAPHC_LANES={width}", *shared_objects.isa_flags(), f"-I{KERNEL_HEADERS}")


@contextlib.contextmanager
def building(kernels: Mapping[str, Kernel]) -> Iterator[Callable[[], None]]:
    """Within the block, the kernels are built in the background; yields a function that waits for
    them.

    An error is raised by `build_kernels`; an error within the block terminates the compilers.
    """

    def build() -> None:
        with contextlib.suppress(CompileError):
            build_kernels(kernels)

    thread = BackgroundThread(build, "graphc-kernels")
    thread.start()
    try:
        yield thread.finish
    except BaseException:
        thread.end()
        raise


@dataclass(frozen=True)
class KernelBuilder:
    """Builds kernels into the cache."""

    compiler: Compiler
    """The compiler."""
    flags: tuple[str, ...]
    """The result of `kernel_flags`."""
    folder: Path
    """The folder of the cache."""

    def missing(self, wanted: Iterable[PendingKernel]) -> list[PendingKernel]:
        """Those that the cache does not hold."""
        seen: dict[tuple[int, int], frozenset[str]] = {}
        return [pending for pending in wanted if not self._is_cached(pending, seen)]

    def build(self, missing: Sequence[PendingKernel]) -> None:
        """Build kernels, on all cores. Raises CompileError."""
        with progress("building kernels", len(missing)) as advance:

            def build(unit: Sequence[PendingKernel]) -> None:
                self.build_unit(unit)
                advance(len(unit))

            side_by_side(build, _units(missing))

    def _path(self, pending: PendingKernel) -> Path:
        return self.folder / f"{pending.key}.so"

    def _is_cached(
        self, pending: PendingKernel, seen: dict[tuple[int, int], frozenset[str]]
    ) -> bool:
        """Whether the cache holds the kernel. `seen` has the keys of objects that were read
        before."""
        path = self._path(pending)
        try:
            status = path.lstat()
        except FileNotFoundError:
            return False
        file = (status.st_dev, status.st_ino)
        if file not in seen:
            _, seen[file] = cache.unsealed(cache.read(path))
        return pending.key in seen[file]

    def address(self, pending: PendingKernel) -> int:
        """The address of the function of a kernel that the cache holds."""
        path = str(self._path(pending))
        try:
            library = ctypes.CDLL(path)
        except OSError:  # intact, but of another system
            self.build_unit([pending])
            library = ctypes.CDLL(path)
        return address_of(library, pending.symbol)

    def build_unit(self, unit: Sequence[PendingKernel]) -> None:
        """Build kernels in one unit; if that fails, one by one, so that the error names one kernel.
        Raises CompileError."""
        alike = [[w for w in unit if w.wraps == wraps] for wraps in (False, True)]
        if all(alike):
            for part in alike:
                self.build_unit(part)
            return
        begin = time.perf_counter()
        with cache.scratch(self.folder) as scratch:
            file, built = scratch / "unit.cpp", scratch / "object"
            file.write_text(_unit_text(unit))
            done = run(self._command(unit[0], file, str(built)), scratch)
            if done.returncode == 0:
                cache.keep(built, [self._path(wanted) for wanted in unit])
        if done.returncode != 0 and len(unit) > 1:
            for wanted in unit:
                self.build_unit([wanted])
        elif done.returncode != 0:
            raise self._failure(unit[0])
        else:
            seconds = time.perf_counter() - begin
            for wanted in unit:
                log("info", f"kernel {wanted.kernel.name}: built in {seconds / len(unit):.2f} s")

    def _command(self, pending: PendingKernel, file: Path, output: str) -> list[str]:
        # Loops over signed indices are faster where these need not wrap around: 5 to 18 % of
        # reductions along rows of 1024 (g++ 12, AVX-512).
        wrap = () if pending.wraps else ("-fno-wrapv",)
        flags = (*FLAGS, *wrap, *self.flags)
        return [*self.compiler.command, *flags, str(file), "-o", output]

    def _failure(self, pending: PendingKernel) -> CompileError:
        """The error of compiling a kernel's own text, which stays in the cache for inspection."""
        name = pending.kernel.name
        source = pending.kernel.source.encode()
        file = cache.store_file(source, self.folder / f"{name}-{pending.key}.cpp")
        command = self._command(pending, file, os.devnull)
        return failure(f"kernel {name}", pending.where, command, run(command))


def _units(pending: Sequence[PendingKernel]) -> list[list[PendingKernel]]:
    """The kernels in units of about equal cost, about one per core or more, the costliest first;
    those whose integers wrap around in units of their own."""
    whole, cores = sum(w.cost for w in pending), usable_cores()
    count = cores * max(1, round(whole / UNIT_COST / cores))
    apart = [[w for w in pending if w.wraps == wraps] for wraps in (False, True)]
    found = []
    for alike in filter(None, apart):
        share = round(count * sum(w.cost for w in alike) / whole)
        found += _of_equal_cost(alike, min(len(alike), max(1, share)))
    return found


def _of_equal_cost(pending: Sequence[PendingKernel], count: int) -> list[list[PendingKernel]]:
    units: list[list[PendingKernel]] = [[] for _ in range(count)]
    costs = [0.0] * count
    for each in sorted(pending, key=lambda w: -w.cost):
        least = costs.index(min(costs))
        units[least].append(each)
        costs[least] += each.cost
    return units


def _unit_text(unit: Sequence[PendingKernel]) -> str:
    includes = dict.fromkeys(i for w in unit for i in _INCLUDE.findall(w.kernel.source))
    return "".join([*includes, *(w.text() for w in unit)])
