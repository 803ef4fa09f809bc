"""Compile CUDA text to cubins by NVRTC or nvcc, with a cache.

NVRTC, the compiler as a library (cuda-bindings and nvidia-cuda-nvrtc of `pip install
'graphc[cuda]'`), needs no toolkit and takes a quarter of nvcc's time; nvcc is the alternative. One
kernel makes one `NAME-KEY.cubin`, whose key is the digest of the text, its headers, the options and
the compiler's version, in the cache of `runtime/compilers/cache.py`, together with the text and the
compiler's log, which has the kernel's register count. NVRTC runs within this process, so
GRAPHC_COMPILE_SECONDS limits only nvcc. With GRAPHC_CUBINS kernels that were compiled elsewhere
need no compiler (`cubins.py`).
"""

from __future__ import annotations

import functools
import hashlib
import re
import shlex
import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from graphc.base import config
from graphc.base.config import denormals, early_launch
from graphc.base.errors import CompileError
from graphc.runtime.compilers import cache
from graphc.runtime.compilers.compiler import run
from graphc.runtime.cuda import cubins

HEADERS = Path(__file__).parent.parent.parent / "kernels"
"""The folder that kernels include `cuda/....cuh` from."""

MEANT = ("-std=c++20", "-fmad=false")
"""Options that the meaning of kernels depends on."""
OPTIONS = (MEANT[0], "-lineinfo", *MEANT[1:], f"-I{HEADERS}")
"""Options of both compilers."""
NVRTC_OPTIONS = ("--ptxas-options=-v", "--device-as-default-execution-space")
"""NVRTC, which has no host code, would take generic lambdas for host functions."""
NVCC_OPTIONS = ("-cubin", "-Xptxas", "-v")


@dataclass(frozen=True)
class Usage:
    """A kernel's use of a multiprocessor."""

    registers: int
    """Registers per thread."""
    spilled: int
    """Spilled bytes per thread."""
    shared: int
    """Bytes of static shared memory per block."""


@dataclass(frozen=True)
class Cubin:
    """A compiled kernel file: the loadable image, and the usage of each symbol in it."""

    image: bytes
    usage: dict[str, Usage]


@dataclass(frozen=True)
class CudaCompiler:
    """A CUDA compiler."""

    command: tuple[str, ...]
    """The command that errors show."""
    version: str
    """Its version, part of the cache's keys."""
    options: tuple[str, ...]
    """Its own options."""
    compile: Callable[[Path, tuple[str, ...]], tuple[bytes, str]]
    """`compile(file, options)` returns the image and the log, or raises _Failed."""

    @property
    def title(self) -> str:
        """The last line of the version."""
        return self.version.strip().splitlines()[-1] if self.version.strip() else ""


def compile_cuda(
    text: str, name: str, arch: str, where: str = "", compiler: CudaCompiler | None = None
) -> Cubin:
    """The cubin of the kernel `name` for `arch`, such as "sm_90a", from the cache if it is there.
    Raises CompileError.

    `where` is the line of the user's program that it comes from, for errors; `compiler` defaults to
    the installed one.
    """
    flush = "true" if denormals() == "flush" else "false"
    early = ("-DGRAPHC_EARLY_LAUNCH",) if early_launch() else ()
    meant = (f"-arch={arch}", f"-ftz={flush}", *early)
    digest = _headers_digest(_includes(text))
    carried = (
        cubins.cubin_path(folder, (text, digest, *meant)) if (folder := config.cubins()) else None
    )
    if carried and (found := cubins.read(carried)):
        return Cubin(found[0], parse_usage(found[1]))
    compiler = compiler or find_compiler()
    image, log = _built(text, name, where, compiler, (*OPTIONS, *meant, *compiler.options))
    if carried:
        cubins.write(carried, image, log)
    return Cubin(image, parse_usage(log))


def compile_fatbin(
    text: str, name: str, archs: Sequence[str], flush: bool, where: str = ""
) -> bytes:
    """The fat binary of the kernel `name`, by nvcc, from the cache if it is there: machine code for
    each of `archs` called as "sm_90a", PTX of those called as "compute_80". It names no file of
    this machine. Raises CompileError."""
    compiler = nvcc()
    if compiler is None:
        raise CompileError("no nvcc on the PATH: it makes the kernels of several architectures")
    options = (*MEANT, f"-I{HEADERS}", *fatbin_options(archs, flush))
    return _built(text, name, where, compiler, options)[0]


def fatbin_options(archs: Sequence[str], flush: bool) -> tuple[str, ...]:
    """nvcc's options for a fat binary, besides MEANT and where headers are."""
    virtual = [f"compute_{arch.partition('_')[2]}" for arch in archs]
    codes = [f"-gencode=arch={v},code={arch}" for v, arch in zip(virtual, archs, strict=True)]
    return ("-fatbin", f"-ftz={'true' if flush else 'false'}", *codes)


def _built(
    text: str, name: str, where: str, compiler: CudaCompiler, options: tuple[str, ...]
) -> tuple[bytes, str]:
    """The image and the log of a kernel, from the cache if they are there. Raises CompileError."""
    digest = _headers_digest(_includes(text))
    parts = (text, digest, *options, *compiler.command, compiler.version)
    key = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]
    with cache.open_folder("cuda") as folder:
        stem = folder / f"{name}-{key}"
        try:
            return _cached(stem, key) or _compiled(text, stem, key, compiler, options)
        except _Failed as failed:
            whose = f"kernel {name} ({where})" if where else f"kernel {name}"
            command = shlex.join([*compiler.command, *options, f"{stem}.cu"])
            error = f"{whose} does not compile: {_first_error(str(failed))}\ncommand: {command}"
            raise CompileError(error) from None


@functools.cache
def find_compiler() -> CudaCompiler:
    """NVRTC if it is installed, else nvcc. Raises CompileError with the remedy."""
    compiler = nvrtc() or nvcc()
    if compiler is None:
        raise CompileError(
            "no CUDA compiler: NVRTC is not installed and nvcc is not on the PATH. "
            "pip install 'graphc[cuda]' brings NVRTC"
        )
    return compiler


class _Failed(Exception):
    """A failed compilation, with the compiler's log."""


def nvrtc() -> CudaCompiler | None:
    """NVRTC; None if it is not installed."""
    try:
        from cuda.bindings import nvrtc as library

        error, major, minor = library.nvrtcVersion()
    except (ImportError, RuntimeError):  # the second where the library itself is missing
        return None
    if int(error):
        return None
    return CudaCompiler(("nvrtc",), f"{major}.{minor}", NVRTC_OPTIONS, _run_nvrtc)


def nvcc() -> CudaCompiler | None:
    """nvcc; None if it is not on the PATH."""
    path = shutil.which("nvcc")
    if path is None:
        return None
    version = run([path, "--version"]).stdout
    return CudaCompiler((path,), version, NVCC_OPTIONS, functools.partial(_run_nvcc, path))


def _run_nvrtc(file: Path, options: tuple[str, ...]) -> tuple[bytes, str]:
    from cuda.bindings import nvrtc

    def call(function: Any, *arguments: Any) -> Any:
        error, *results = function(*arguments)
        if int(error):
            raise _Failed(f"{function.__name__} failed: {error.name}")
        return results[0] if results else None

    program = call(nvrtc.nvrtcCreateProgram, file.read_bytes(), str(file).encode(), 0, [], [])
    try:
        words = [option.encode() for option in options]
        (error,) = nvrtc.nvrtcCompileProgram(program, len(words), words)
        log = b" " * call(nvrtc.nvrtcGetProgramLogSize, program)
        call(nvrtc.nvrtcGetProgramLog, program, log)
        printed = log.rstrip(b"\0 ").decode(errors="replace")
        if int(error):
            raise _Failed(printed or f"nvrtcCompileProgram failed: {error.name}")
        image = b" " * call(nvrtc.nvrtcGetCUBINSize, program)
        call(nvrtc.nvrtcGetCUBIN, program, image)
        return image, printed
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def _run_nvcc(path: str, file: Path, options: tuple[str, ...]) -> tuple[bytes, str]:
    with tempfile.TemporaryDirectory() as scratch:
        made = Path(scratch) / "image.cubin"
        command = [path, *options, str(file), "-o", str(made)]
        done = run(command)
        if done.returncode != 0:
            raise _Failed(done.stderr or f"nvcc ended with status {done.returncode}")
        return made.read_bytes(), done.stdout + done.stderr


def _compiled(
    text: str, stem: Path, key: str, compiler: CudaCompiler, options: tuple[str, ...]
) -> tuple[bytes, str]:
    """The image and the log, compiled into the cache; the image is stored last."""
    source = cache.store_file(text.encode(), Path(f"{stem}.cu"))
    image, log = compiler.compile(source, options)
    cache.store_file(log.encode(), Path(f"{stem}.log"))
    with cache.scratch(stem.parent) as scratch:
        made = scratch / "image"
        made.write_bytes(image)
        cache.seal(made, [key])
        made.replace(f"{stem}.cubin")
    return image, log


def _cached(stem: Path, key: str) -> tuple[bytes, str] | None:
    image, keys = cache.unsealed(cache.read(Path(f"{stem}.cubin")))
    log = cache.read(Path(f"{stem}.log"))
    return (image, log.decode()) if log is not None and key in keys else None


def parse_usage(log: str) -> dict[str, Usage]:
    """The usage of each kernel in a log of `ptxas -v`."""
    usage = {}
    for part in log.split("Compiling entry function '")[1:]:
        numbers = [
            int(found.group(1)) if (found := re.search(rf"(\d+) {what}", part)) else 0
            for what in ("registers", "bytes spill stores", "bytes smem")
        ]
        usage[part.partition("'")[0]] = Usage(*numbers)
    return usage


def _first_error(log: str) -> str:
    lines = [line for line in log.splitlines() if line.strip()]
    errors = [line for line in lines if re.search(r"\berror\b", line)]
    return (errors or lines or ["the compiler says nothing"])[0]


@functools.cache
def _headers_digest(names: tuple[str, ...]) -> str:
    """The digest of these headers and those that they include."""
    digest = hashlib.sha256()
    for path in _headers(names):
        digest.update(f"{path.relative_to(HEADERS)}\0{path.read_text()}\0".encode())
    return digest.hexdigest()


def included(texts: Sequence[str]) -> list[Path]:
    """The headers that texts of kernels include, and those that these include, sorted."""
    return _headers(tuple(dict.fromkeys(name for text in texts for name in _includes(text))))


def _headers(names: Sequence[str]) -> list[Path]:
    found: set[Path] = set()
    wanted = [HEADERS / name for name in names]
    while wanted:
        path = wanted.pop()
        if path in found or not path.is_file():  # which the compiler says better
            continue
        found.add(path)
        for name in _includes(path.read_text()):
            beside = path.parent / name
            wanted.append(beside if beside.is_file() else HEADERS / name)
    return sorted(found)


def _includes(text: str) -> tuple[str, ...]:
    """The names in quotes that a text includes."""
    return tuple(re.findall(r'^\s*#include "([^"]+)"', text, re.MULTILINE))
