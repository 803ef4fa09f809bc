"""Build C++ sources into shared objects.

One source makes one object, `NAME-KEY.so`, whose key is the digest of everything that determines
it: the source, the headers, the flags, the compiler's defaults and version, and the CPU's features.
The source is stored next to it, in the cache of `cache.py`. A lasting object has a second name
whose digest leaves out the compiler, under which it is found when there is none. The CPU's kernels
are built many at once; see `translation_units.py`.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import hashlib
import os
import platform
import re
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from graphc.base import config
from graphc.base.errors import CompileError
from graphc.base.messages import log
from graphc.base.target import Target
from graphc.runtime.compilers import cache
from graphc.runtime.compilers.compiler import (
    Compiler,
    failure,
    find_compiler,
    run,
    side_by_side,
)
from graphc.runtime.compilers.core_caches import read_caches

FLAGS = (
    "-std=c++20",
    "-O3",
    "-march=native",
    "-ffp-contract=off",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-fwrapv",
    "-Wno-psabi",
    "-fPIC",
    "-shared",
)
"""Compiler flags. Never -ffast-math: it breaks NaN and turns on flush-to-zero in the whole process.
Products and sums are fused only where the text says fma: the graph decides what is rounded.
Integers wrap around, so no compiler may take `x * x % x` for 0; kernels without signed ones are
built with -fno-wrapv (translation_units.py)."""

_PACKAGE = Path(__file__).parent.parent.parent
KERNEL_HEADERS = _PACKAGE / "kernels"
"""The folder that kernels include `cpu/....h` from."""


@dataclass(frozen=True)
class CppSource:
    """A C++ file to build."""

    name: str
    text: str
    what: str
    """What it is, for errors."""
    where: str = ""
    """Where in the user's program it comes from, for errors; "" if nowhere."""
    flags: tuple[str, ...] = ()
    """Additional compiler flags."""
    lasting: bool = False
    """Whether the object is also found where the compiler that built it is gone."""


def build(sources: list[CppSource], headers: str) -> list[ctypes.CDLL]:
    """The loaded shared object of each source; `headers` is the digest of what they include."""
    compiler = compiler_or_none()
    with cache.open_folder("cpu") as folder:
        return side_by_side(lambda s: _library(s, headers, compiler, folder), sources)


def build_object(source: CppSource, headers: str, kind: str) -> bytes:
    """The shared object of one source, not loaded, from the cache folder `kind`."""
    compiler = compiler_or_none()
    with cache.open_folder(kind) as folder:
        return _object(source, headers, compiler, folder).read_bytes()


def cpu_target() -> Target:
    """The CPU of this machine as reported by the system, without running a compiler; with
    GRAPHC_ISA as far as that instruction set goes."""
    return _cpu_target(config.isa())


@functools.cache
def _cpu_target(isa: str) -> Target:
    features = cpu_features()
    own = "avx512" if "avx512f" in features else "avx2" if "avx2" in features else ""
    vectors = isa or own or "128 bit"
    lanes = config.INSTRUCTION_SETS.get(vectors, 4)
    digest = hashlib.sha256(" ".join(features).encode()).hexdigest()[:12]
    pairs = vectors == own == "avx512" and {"avx512_bf16", "avx512bw"} <= set(features)
    tiles = pairs and {"amx_tile", "amx_bf16"} <= set(features) and allows_tiles()
    arch = f"{platform.machine()} {vectors} {digest}"
    return Target("cpu", lanes, arch, read_caches(), pairs, tiles)


def isa_flags() -> tuple[str, ...]:
    """Compiler flags for GRAPHC_ISA: none where it names what this CPU has, or more, whose wider
    registers the compiler makes of those that there are."""
    isa = config.isa()
    wider = {"sse2": "avx2", "avx2": "avx512f"}.get(isa)
    level = {"sse2": "x86-64", "avx2": "x86-64-v3"}.get(isa)
    return (f"-march={level}", "-mtune=native") if level and wider in cpu_features() else ()


def allows_tiles() -> bool:
    """Whether Linux lets this process use AMX tile registers, after requesting them once for all
    current and future threads."""
    if sys.platform != "linux" or platform.machine() != "x86_64":
        return False
    arch_prctl, request_permission, tile_data = 158, 0x1023, 18
    call = ctypes.CDLL(None, use_errno=True).syscall
    call.restype = ctypes.c_long
    allowed: bool = call(*map(ctypes.c_long, (arch_prctl, request_permission, tile_data))) == 0
    if not allowed:
        why = os.strerror(ctypes.get_errno())
        log("info", f"the system refuses AMX's registers ({why}): products of bf16 go in pairs")
    return allowed


@functools.cache
def cpu_features() -> tuple[str, ...]:
    """The CPU's model and instruction sets, sorted, as far as the system reports them."""
    words = {platform.machine(), platform.processor()}
    try:
        description = Path("/proc/cpuinfo").read_text()
    except OSError:
        description = ""
    # An emulator of another machine may show what the CPU below it reports.
    sets = "flags" if platform.machine() in ("x86_64", "AMD64") else "Features"
    pattern = rf"^({sets}|vendor_id|cpu family|model|CPU part)\s*:(.*)$"
    seen = set()
    for key, value in re.findall(pattern, description, re.MULTILINE):
        if key == sets:
            words.update(value.split())
        elif key not in seen:
            words.add(f"{key}={value.strip()}")
        seen.add(key)
    return tuple(sorted(words - {""}))


def headers_digest(folder: Path) -> str:
    """The digest of the names and contents of all headers below `folder`, and beside it."""
    digest = hashlib.sha256()
    for path in sorted((*folder.rglob("*.h"), *folder.parent.glob("*.h"))):
        digest.update(f"{os.path.relpath(path, folder)}\0".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


@functools.cache
def kernel_headers() -> str:
    """The digest of the headers of generated kernels, as of the first call."""
    return headers_digest(KERNEL_HEADERS / "cpu")


def key(text: str, headers: str, flags: tuple[str, ...], compiler: Compiler | None) -> str:
    """The digest of everything that determines an object; without a compiler, of all else, under
    which lies what the last compiler has built."""
    built_by = (*compiler.command[1:], compiler.version) if compiler else ("any compiler",)
    parts = (text, headers, *FLAGS, *flags, *built_by, *cpu_features())
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]


def compiler_or_none() -> Compiler | None:
    """The compiler, if there is one."""
    with contextlib.suppress(CompileError):
        return find_compiler()
    return None


def make_object(
    what: str, where: str, command: Sequence[str], path: Path, aliases: Sequence[Path] = ()
) -> None:
    """Let a compiler's command write an object that the cache holds as `path` and `aliases`, whose
    names end with keys. Raises CompileError, which names what it is and where it comes from."""
    with cache.scratch(path.parent) as scratch:
        built = scratch / "object"
        begin = time.perf_counter()
        done = run([*command, "-o", str(built)], scratch)
        if done.returncode != 0:
            raise failure(what, where, [*command, "-o", os.devnull], done)
        cache.keep(built, (path, *aliases))
        log("info", f"{what}: built in {time.perf_counter() - begin:.2f} s")


def address_of(library: ctypes.CDLL, symbol: str) -> int:
    """The address of a function of a loaded object. Raises AttributeError if it has none of this
    name."""
    address = ctypes.cast(library[symbol], ctypes.c_void_p).value
    assert address is not None
    return address


def is_built(source: CppSource, headers: str) -> bool:
    """Whether the cache has the shared object of a source."""
    with cache.open_folder("cpu") as folder:
        return cache.intact(*_place(source, headers, compiler_or_none(), folder))


def _library(
    source: CppSource, headers: str, compiler: Compiler | None, folder: Path
) -> ctypes.CDLL:
    path = _object(source, headers, compiler, folder)
    try:
        return ctypes.CDLL(str(path))
    except OSError:  # intact, but of another system
        _compile(source, path, find_compiler())
        return ctypes.CDLL(str(path))


def _object(source: CppSource, headers: str, compiler: Compiler | None, folder: Path) -> Path:
    """The path of the shared object, built if it is missing or damaged."""
    path, found = _place(source, headers, compiler, folder)
    if not cache.intact(path, found):
        aliases = [_place(source, headers, None, folder)[0]] if source.lasting else []
        _compile(source, path, compiler or find_compiler(), *aliases)
    return path


def _place(
    source: CppSource, headers: str, compiler: Compiler | None, folder: Path
) -> tuple[Path, str]:
    """The path of a shared object, and its key."""
    # Comments name the user's lines: a line added above a model is no reason to compile again.
    text = re.sub(r"^//.*\n", "", source.text, flags=re.MULTILINE)
    found = key(text, headers, source.flags, compiler)
    return folder / f"{source.name}-{found}.so", found


def _compile(source: CppSource, path: Path, compiler: Compiler, *aliases: Path) -> None:
    file = cache.store_file(source.text.encode(), path.with_suffix(".cpp"))
    command = [*compiler.command, *FLAGS, *source.flags, str(file)]
    make_object(source.what, source.where, command, path, aliases)
