"""The library of prebuilt kernels: built once for a machine and instruction set.

Its sources are `kernels/prebuilt/*.cpp`, compiled with the flags of generated kernels, a file at a
time, and linked to one shared object in the cache. Objects of the files stay there too: a process
that ends while the library is being built leaves its successor less to do. Without a compiler, a
library that an earlier one has built is loaded. A wheel brings the library for every instruction
set (`shipped.py`).
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
from dataclasses import dataclass
from pathlib import Path

from graphc.base.cached import cached_property
from graphc.base.config import cache_dir
from graphc.base.errors import CompileError
from graphc.runtime.compilers import cache, shipped
from graphc.runtime.compilers.compiler import (
    BackgroundThread,
    Compiler,
    Jobs,
    find_compiler,
    side_by_side,
)
from graphc.runtime.compilers.shared_objects import (
    address_of,
    compiler_or_none,
    key,
    make_object,
)
from graphc.runtime.compilers.shipped import LIBRARY_FLAGS, LIBRARY_SOURCES, library_headers
from graphc.runtime.compilers.translation_units import kernel_flags

SOURCES = LIBRARY_SOURCES
"""The folder of the library's sources and headers."""


@dataclass(frozen=True)
class PrebuiltLibrary:
    """The loaded library."""

    handle: ctypes.CDLL
    """The shared object."""

    def address(self, symbol: str) -> int | None:
        """The address of a function; None if the library has none of this name."""
        with contextlib.suppress(AttributeError):
            return address_of(self.handle, symbol)
        return None


_loaded: dict[tuple[str, ...], PrebuiltLibrary] = {}
_begun: dict[tuple[str, ...], BackgroundThread] = {}


def build_library() -> PrebuiltLibrary:
    """The library for this CPU or GRAPHC_ISA, built if it is not in the cache. Raises
    CompileError."""
    building = _Building(compiler_or_none(), kernel_flags())
    return building.load() or building.build()


def find_library(build: bool = True) -> PrebuiltLibrary | None:
    """The library if the cache or a wheel has it. If not, None, and it is built in the background,
    if `build`: the next program finds it. Raises CompileError for a cache that cannot be used."""
    building = _Building(compiler_or_none(), kernel_flags())
    library = building.load()
    if library is None and building.compiler is not None and build:
        building.begin()
    return library


@dataclass(frozen=True)
class _Building:
    """Finds and builds the library."""

    compiler: Compiler | None
    flags: tuple[str, ...]

    def load(self) -> PrebuiltLibrary | None:
        """The library, if the cache or a wheel has it."""
        if self._identity not in _loaded:
            with cache.open_folder("cpu") as folder:
                built = self._path(folder)
                intact = cache.intact(built, built.stem[-32:])
                path = built if intact else shipped.prebuilt_of_this_cpu()
                if path is None:
                    return None
                with contextlib.suppress(OSError):  # intact, but of another system
                    _loaded[self._identity] = PrebuiltLibrary(ctypes.CDLL(str(path)))
        return _loaded.get(self._identity)

    def build(self) -> PrebuiltLibrary:
        """The library, built on all cores."""
        compiler = self.compiler or find_compiler()
        command = [*compiler.command, *LIBRARY_FLAGS, *self.flags]
        with cache.open_folder("cpu") as folder:

            def compiled(source: Path) -> Path:
                found = self._key(source.name + source.read_text())
                path = folder / f"{source.stem}-{found}.o"
                if not cache.intact(path, found):
                    part = [w for w in command if w != "-shared"]
                    make_object(_WHAT, "", [*part, "-c", str(source)], path)
                return path

            parts = side_by_side(compiled, sorted(SOURCES.glob("*.cpp")))
            path, anyones = self._path(folder), _Building(None, self.flags)._path(folder)
            make_object(_WHAT, "", [*command, *map(str, parts)], path, [anyones])
            library = PrebuiltLibrary(ctypes.CDLL(str(path)))
        return _loaded.setdefault(self._identity, library)

    def begin(self) -> None:
        """Build it in the background, at the least priority, unless that was begun before."""

        def build() -> None:
            with contextlib.suppress(CompileError):  # programs do without
                self.build()

        if self._identity not in _begun:
            thread = BackgroundThread(build, "graphc-prebuilt", Jobs(in_background=True))
            _begun[self._identity] = thread
            thread.try_start()

    @property
    def _identity(self) -> tuple[str, ...]:
        """What tells libraries of one process apart."""
        command = self.compiler.command if self.compiler else ()
        return (str(SOURCES), str(cache_dir()), *self.flags, *command)

    def _path(self, folder: Path) -> Path:
        sources = sorted(SOURCES.glob("*.cpp"))
        digests = [hashlib.sha256(path.read_bytes()).hexdigest() for path in sources]
        return folder / f"prebuilt-{self._key(' '.join(digests))}.so"

    def _key(self, text: str) -> str:
        return key(f"{LIBRARY_FLAGS} {text}", self._headers, self.flags[:-1], self.compiler)

    @cached_property
    def _headers(self) -> str:
        """The digests of all that the sources include."""
        return library_headers(SOURCES)


_WHAT = "the library of prebuilt kernels"
