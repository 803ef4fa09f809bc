"""Building C++ sources into shared objects, and the cache that holds them.

One source makes one object, `NAME-KEY.so`, whose key is the digest of everything that it is made
of: the source, the headers, the flags, the compiler's version and the CPU's features. The object
ends in the digest of its own bytes, which the loader of the system does not look at, so a file
that was cut short or changed is seen and built again. Files come into place by renaming: any
number of processes may build the same object. The source stays beside it. The CPU's kernels are
built many at once: see `units.py`.
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
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from graphc.config import cache_dir, usable_cores
from graphc.errors import CompileError
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
PLAYER_SOURCE = _PACKAGE / "runtime" / "cpu" / "native" / "player.cpp"

_DIGEST_BYTES = hashlib.sha256().digest_size


@dataclass(frozen=True)
class Compiler:
    """A C++ compiler: the words of its command and the first line of its `--version`."""

    command: tuple[str, ...]
    version: str

    @property
    def is_clang(self) -> bool:
        return "clang" in self.version


@dataclass(frozen=True)
class Source:
    """One C++ file to be built. `what` and `where` say in errors whose it is."""

    name: str
    text: str
    what: str
    where: str = ""
    flags: tuple[str, ...] = ()


def player_library() -> ctypes.CDLL:
    """The native player, built where not in the cache. Raises CompileError."""
    begin_player().join()
    return _player()


@functools.cache
def begin_player() -> threading.Thread:
    """Builds the player beside whatever else there is to do, once per process. An error comes to
    who asks for the player."""

    def build_player() -> None:
        with contextlib.suppress(CompileError):
            _player()

    thread = threading.Thread(target=build_player, name="graphc-player")
    thread.start()
    return thread


@functools.cache
def _player() -> ctypes.CDLL:
    flags = (f"-I{PLAYER_SOURCE.parent}", "-pthread", "-O2")  # -O3 takes half as long again
    source = Source("player", PLAYER_SOURCE.read_text(), "the CPU player", flags=flags)
    (library,) = build([source], headers_digest(PLAYER_SOURCE.parent))
    return library


def build(sources: list[Source], headers: str) -> list[ctypes.CDLL]:
    """The loaded shared object of each source. `headers` is the digest of what they include."""
    compiler = find_compiler()
    folder = cache_dir() / "cpu"
    with writing(folder), ThreadPoolExecutor(usable_cores()) as pool:
        return list(pool.map(lambda s: _library(s, headers, compiler, folder), sources))


def build_object(source: Source, headers: str, kind: str) -> bytes:
    """The shared object of one source, not loaded, from the cache of that `kind` ("sim")."""
    compiler, folder = find_compiler(), cache_dir() / kind
    with writing(folder):
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
    """The digest of the names and contents of all headers in `folder` and the one around it."""
    digest = hashlib.sha256()
    for path in sorted((*folder.glob("*.h"), *folder.parent.glob("*.h"))):
        digest.update(f"{path.name}\0".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


@contextlib.contextmanager
def writing(folder: Path) -> Iterator[None]:
    """The folder exists; errors of writing there become a CompileError."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        raise CompileError(
            f"cannot write the cache of compiled kernels in {folder}: {error.strerror}; "
            "make room there, or let GRAPHC_CACHE_DIR name another folder"
        ) from error


def key(text: str, headers: str, flags: tuple[str, ...], compiler: Compiler) -> str:
    """The digest of all that an object is made of."""
    parts = (text, headers, *FLAGS, *flags, compiler.version, *cpu_features())
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]


def intact(path: Path) -> bool:
    """Whether `path` is an object as it was built."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return False
    body, digest = content[:-_DIGEST_BYTES], content[-_DIGEST_BYTES:]
    return hashlib.sha256(body).digest() == digest


def seal(path: Path) -> None:
    """Put the digest of its own bytes behind an object."""
    body = path.read_bytes()
    path.write_bytes(body + hashlib.sha256(body).digest())


def run(command: list[str]) -> subprocess.CompletedProcess[str]:
    """What the command says, in English."""
    environment = {**os.environ, "LC_ALL": "C"}
    return subprocess.run(
        command, capture_output=True, text=True, errors="replace", env=environment
    )


def failure(
    what: str, where: str, command: list[str], done: subprocess.CompletedProcess[str]
) -> CompileError:
    """The error of a compiler's command that ended like this."""
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    errors = [line for line in lines if re.search(r"\berror: ", line)]
    first = (errors or lines or [f"the compiler ended with status {done.returncode}"])[0]
    whose = f"{what} ({where})" if where else what
    return CompileError(f"{whose} does not compile: {first}\ncommand: {shlex.join(command)}")


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
    path = folder / f"{source.name}-{key(text, headers, source.flags, compiler)}.so"
    if not intact(path):
        _compile(source, path.with_suffix(".cpp"), path, compiler)
    return path


def _compile(source: Source, file: Path, path: Path, compiler: Compiler) -> None:
    with tempfile.TemporaryDirectory(dir=path.parent) as scratch:
        written = Path(scratch) / "source"
        written.write_text(source.text)
        written.replace(file)
        built = Path(scratch) / "object"
        command = [*compiler.command, *FLAGS, *source.flags, str(file), "-o"]
        begin = time.perf_counter()
        done = run([*command, str(built)])
        if done.returncode != 0:
            raise failure(source.what, source.where, [*command, os.devnull], done)
        seal(built)
        built.replace(path)
        log("info", f"{source.what}: built in {time.perf_counter() - begin:.2f} s")


@functools.cache
def _version(path: str) -> str:
    done = run([path, "--version"])
    return done.stdout.splitlines()[0] if done.stdout else path
