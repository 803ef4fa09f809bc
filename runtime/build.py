"""Building C++ sources into shared objects, and the cache that holds them.

One source makes one object, `NAME-KEY.so`, whose key is the digest of everything that it is made
of: the source, the headers, the flags, the compiler's version and the CPU's features. The object
ends in the digest of its own bytes, which the loader of the system does not look at, so a file
that was cut short or changed is seen and built again. Files come into place by renaming: any
number of processes may build the same object. The source stays beside it.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import hashlib
import os
import platform
import re
import shlex
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from graphc.config import cache_dir, usable_cores
from graphc.errors import CompileError
from graphc.kernels.kernel import Kernel
from graphc.messages import log
from graphc.target import Target

FLAGS = (
    "-std=c++20",
    "-O3",
    "-march=native",
    "-ffp-contract=fast",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-Wno-psabi",
    "-fPIC",
    "-shared",
)
"""Never -ffast-math: it breaks NaN, and turns on flush-to-zero in the whole process."""

_PACKAGE = Path(__file__).parent.parent
KERNEL_HEADERS = _PACKAGE / "kernels"
"""The folder that kernels include `cpu/....h` from."""
PLAYER_SOURCE = _PACKAGE / "runtime" / "native" / "cpu" / "player.cpp"

_DIGEST_BYTES = hashlib.sha256().digest_size


@dataclass(frozen=True)
class Compiler:
    """A C++ compiler: the words of its command and the first line of its `--version`."""

    command: tuple[str, ...]
    version: str


@dataclass(frozen=True)
class Source:
    """One C++ file to be built. `what` and `where` say in errors whose it is."""

    name: str
    text: str
    what: str
    where: str = ""
    flags: tuple[str, ...] = ()


def build_kernels(
    kernels: Mapping[str, Kernel],
    wheres: Mapping[str, object] | None = None,
    lanes: int | None = None,
) -> dict[str, int]:
    """The address of each kernel's function, by the kernel's name; built where not in the cache.

    `wheres` says what a kernel comes from, for errors; `lanes` are those of the target that the
    kernels were made for, by default those of this CPU. Raises CompileError.
    """
    if not kernels:
        return {}
    flags = (f"-DGRAPHC_LANES={lanes or cpu_target().lanes}", f"-I{KERNEL_HEADERS}")
    sources = [
        Source(k.name, k.source, f"kernel {k.name}", str((wheres or {}).get(name, "")), flags)
        for name, k in kernels.items()
    ]
    libraries = build(sources, headers_digest(KERNEL_HEADERS / "cpu"))
    return {
        name: _address(library, kernel.name)
        for (name, kernel), library in zip(kernels.items(), libraries, strict=True)
    }


@functools.cache
def player_library() -> ctypes.CDLL:
    """The native player, built where not in the cache. Raises CompileError."""
    flags = (f"-I{PLAYER_SOURCE.parent}", "-pthread")
    source = Source("player", PLAYER_SOURCE.read_text(), "the CPU player", flags=flags)
    (library,) = build([source], headers_digest(PLAYER_SOURCE.parent))
    return library


def build(sources: list[Source], headers: str) -> list[ctypes.CDLL]:
    """The loaded shared object of each source. `headers` is the digest of what they include."""
    compiler = find_compiler()
    folder = cache_dir() / "cpu"
    with _writing(folder), ThreadPoolExecutor(usable_cores()) as pool:
        return list(pool.map(lambda s: _library(s, headers, compiler, folder), sources))


def build_object(source: Source, headers: str, kind: str) -> bytes:
    """The shared object of one source, not loaded, from the cache of that `kind` ("sim")."""
    compiler, folder = find_compiler(), cache_dir() / kind
    with _writing(folder):
        return _object(source, headers, compiler, folder).read_bytes()


def find_compiler() -> Compiler:
    """The compiler that CXX names, else g++, else clang++. Raises CompileError with the remedy."""
    chosen = os.environ.get("CXX", "").strip()
    for words in [shlex.split(chosen)] if chosen else [["g++"], ["clang++"]]:
        path = shutil.which(words[0])
        if path:
            return Compiler((path, *words[1:]), _version(path))
    missing = f"CXX names {chosen!r}, which is" if chosen else "g++ and clang++ are"
    raise CompileError(
        f"no C++ compiler: {missing} not on the PATH. Install one (Debian and Ubuntu: "
        "apt install g++; macOS: xcode-select --install) or let CXX name it; "
        'device="reference" runs without a compiler'
    )


@functools.cache
def cpu_target() -> Target:
    """The CPU of this machine, from what the system says of it: no compiler is asked."""
    features = cpu_features()
    if "avx512f" in features:
        lanes, vectors = 16, "avx512"
    elif "avx2" in features:
        lanes, vectors = 8, "avx2"
    else:
        lanes, vectors = 4, "128 bit"
    digest = hashlib.sha256(" ".join(features).encode()).hexdigest()[:12]
    return Target("cpu", lanes, f"{platform.machine()} {vectors} {digest}")


@functools.cache
def cpu_features() -> tuple[str, ...]:
    """The CPU's model and instruction sets, sorted, as far as the system tells."""
    words = {platform.machine(), platform.processor()}
    try:
        description = Path("/proc/cpuinfo").read_text()
    except OSError:
        description = ""
    pattern = r"^(flags|Features|vendor_id|cpu family|model|CPU part)\s*:(.*)$"
    seen = set()
    for key, value in re.findall(pattern, description, re.MULTILINE):
        if key in ("flags", "Features"):
            words.update(value.split())
        elif key not in seen:
            words.add(f"{key}={value.strip()}")
        seen.add(key)
    return tuple(sorted(words - {""}))


def headers_digest(folder: Path) -> str:
    """The digest of the names and contents of all headers in `folder`."""
    digest = hashlib.sha256()
    for path in sorted(folder.glob("*.h")):
        digest.update(f"{path.name}\0".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


@contextlib.contextmanager
def _writing(folder: Path) -> Iterator[None]:
    """The folder exists; errors of writing there become a CompileError."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        raise CompileError(
            f"cannot write the cache of compiled kernels in {folder}: {error.strerror}; "
            "make room there, or let GRAPHC_CACHE_DIR name another folder"
        ) from error


def _library(source: Source, headers: str, compiler: Compiler, folder: Path) -> ctypes.CDLL:
    path = _object(source, headers, compiler, folder)
    try:
        return ctypes.CDLL(str(path))
    except OSError:  # intact, but of another system
        _compile(source, path.with_suffix(".cpp"), path, compiler)
        return ctypes.CDLL(str(path))


def _object(source: Source, headers: str, compiler: Compiler, folder: Path) -> Path:
    """The file of the shared object, built if there is none or if it was changed."""
    # Comments name the user's lines: a line added above a model is no reason to compile again.
    text = re.sub(r"^//.*\n", "", source.text, flags=re.MULTILINE)
    parts = (text, headers, *FLAGS, *source.flags, compiler.version, *cpu_features())
    key = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]
    path = folder / f"{source.name}-{key}.so"
    if not _intact(path):
        _compile(source, path.with_suffix(".cpp"), path, compiler)
    return path


def _intact(path: Path) -> bool:
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return False
    body, digest = content[:-_DIGEST_BYTES], content[-_DIGEST_BYTES:]
    return hashlib.sha256(body).digest() == digest


def _compile(source: Source, file: Path, path: Path, compiler: Compiler) -> None:
    with tempfile.TemporaryDirectory(dir=path.parent) as scratch:
        written = Path(scratch) / "source"
        written.write_text(source.text)
        written.replace(file)
        built = Path(scratch) / "object"
        command = [*compiler.command, *FLAGS, *source.flags, str(file), "-o"]
        begin = time.perf_counter()
        done = _run([*command, str(built)])
        if done.returncode != 0:
            raise _failure(source, [*command, os.devnull], done)
        body = built.read_bytes()
        built.write_bytes(body + hashlib.sha256(body).digest())
        built.replace(path)
        log("info", f"{source.what}: built in {time.perf_counter() - begin:.2f} s")


def _failure(
    source: Source, command: list[str], done: subprocess.CompletedProcess[str]
) -> CompileError:
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    errors = [line for line in lines if re.search(r"\berror: ", line)]
    first = (errors or lines or [f"the compiler ended with status {done.returncode}"])[0]
    whose = f"{source.what} ({source.where})" if source.where else source.what
    return CompileError(f"{whose} does not compile: {first}\ncommand: {shlex.join(command)}")


def _address(library: ctypes.CDLL, name: str) -> int:
    address = ctypes.cast(library[name], ctypes.c_void_p).value
    assert address is not None
    return address


@functools.cache
def _version(path: str) -> str:
    done = _run([path, "--version"])
    return done.stdout.splitlines()[0] if done.stdout else path


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "LC_ALL": "C"}
    return subprocess.run(
        command, capture_output=True, text=True, errors="replace", env=environment
    )
