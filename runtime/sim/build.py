"""Compile CUDA text for the simulated GPU: a C++ compiler with a header that stands for CUDA's.

The text is not changed. Appended code exports each kernel as a function that unpacks the arguments
of a launch. A check build calls the simulator at each load and store.
"""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Sequence
from pathlib import Path

from graphc.base.config import denormals
from graphc.base.errors import CompileError
from graphc.runtime.compilers.compiler import Compiler, find_compiler
from graphc.runtime.compilers.shared_objects import (
    KERNEL_HEADERS,
    CppSource,
    build_object,
    cpu_features,
    headers_digest,
)
from graphc.runtime.sim.cards import simulated_card

NATIVE = Path(__file__).parent / "host"

FLAGS = (
    "-O1",
    "-g1",
    "-gdwarf-4",
    "-w",
    "-fwrapv",
    "-ffp-contract=off",
    "-fno-strict-aliasing",
    "-fno-exceptions",
    "-fno-rtti",
    "-fvisibility=hidden",
    "-fno-threadsafe-statics",
    "-include",
    str(NATIVE / "device.h"),
    f"-I{KERNEL_HEADERS}",
)
GCC = (
    "-fno-gnu-unique",  # static variables of templates must not be shared between modules
    "-fno-extern-tls-init",
)
"""What clang does by default."""
LINK = ("-nodefaultlibs", "-Wl,-Bsymbolic,--no-as-needed", "-lm", "-lc")
CHECK = (
    "-fsanitize=thread",
    "-fsanitize=bounds",
    "--param=tsan-instrument-func-entry-exit=0",
    "-ftrivial-auto-var-init=pattern",
    "-DGRAPHC_SIM_CHECK",
)

_KERNEL = re.compile(
    r"__global__\s+void\s+(?:__launch_bounds__\s*\(([^)]*)\)\s*)?"
    r"(?:__cluster_dims__\s*\(\s*(\d+)[^)]*\)\s*)?(\w+)\s*\(([^)]*)\)"
)
_DYNAMIC = re.compile(r"extern\s+__shared__[^;]*?(\w+)\s*\[\s*\]\s*;")
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)


def compile_text(text: str, name: str, check: bool, where: str = "") -> bytes:
    """A shared object of the kernels in `text`. Raises CompileError; lines are those of the file
    `name`.cu, which is `text`."""
    return _object([(text, name)], check, f"kernel {name}", where)


def compile_texts(kernels: Sequence[tuple[str, str, str]], check: bool) -> list[bytes]:
    """The object of each (text, name, where): one for all, which takes half the time. If that does
    not compile, one each, so that the CompileError is that of one kernel."""
    if len(kernels) > 1:
        names = ", ".join(name for _, name, _ in kernels)
        texts = [(text, name) for text, name, _ in kernels]
        with contextlib.suppress(CompileError):
            return [_object(texts, check, f"kernels {names}")] * len(kernels)
    return [compile_text(text, name, check, where) for text, name, where in kernels]


def _object(texts: Sequence[tuple[str, str]], check: bool, what: str, where: str = "") -> bytes:
    flags = _flags(find_compiler(), check, f"{what} ({where})" if where else what)
    parts = [f'#line 1 "{name}.cu"\n{text}\n' for text, name in texts]
    ends = exports("\n".join(text for text, _ in texts))
    whole = "".join([*parts, '#line 1 "exports"\n', ends])
    keeps = ("-DGRAPHC_SIM_KEEP_DENORMALS",) if denormals() == "keep" else ()
    older = () if simulated_card().tensor_cores else ("-DGRAPHC_SIM_TURING",)
    source = CppSource(texts[0][1], whole, what, where, (*flags, *keeps, *older))
    return build_object(source, _headers(), "sim")


def _flags(compiler: Compiler, check: bool, what: str) -> tuple[str, ...]:
    # Else each multiply-add would be a call of the C library.
    flags = (*FLAGS, "-mfma") if "fma" in cpu_features() else FLAGS
    if not compiler.is_clang:
        return (*flags, *GCC, *(CHECK if check else ()), *LINK)
    if check:
        raise CompileError(
            f"{what} cannot be checked: GRAPHC_CHECK=race needs g++, got {compiler.version}, which "
            "drops accesses before they are seen; install g++ or let CXX name it"
        )
    return (*flags, *LINK)


def exports(text: str) -> str:
    """The code that exports the kernels of a text. They may be in any namespace: functions with C
    linkage and one name are the same."""
    bare = _COMMENT.sub(" ", text)
    lines = []
    for bounds, cluster, name, parameters in _KERNEL.findall(bare):
        threads = bounds.partition(",")[0].strip()
        lines += [
            f'namespace graphc {{ extern "C" void {name}({" ".join(parameters.split())}); }}',
            f"GRAPHC_SIM_KERNEL({name}, {threads if threads.isdecimal() else 0}, {cluster or 1})",
        ]
    dynamic = sorted(set(_DYNAMIC.findall(bare)))[:1]
    lines += [f"GRAPHC_SIM_DYNAMIC({symbol})" for symbol in dynamic]
    places = [f"&graphc_sim_dynamic_{symbol}" for symbol in dynamic]
    return "\n".join([*lines, f"GRAPHC_SIM_MODULE({places[0] if places else 'nullptr'})", ""])


def simulator_object() -> bytes:
    """The shared object that runs launches and that all kernels call."""
    text = '#include "simulator.cpp"\n'
    source = CppSource("simulator", text, "the simulated GPU", flags=(f"-I{NATIVE}", "-g1"))
    return build_object(source, _headers(), "sim")


@functools.cache
def _headers() -> str:
    """The digest of everything that kernels and the simulator include."""
    files = [*sorted((KERNEL_HEADERS / "cuda").rglob("*.cuh")), *sorted(KERNEL_HEADERS.glob("*.h"))]
    files.append(NATIVE / "simulator.cpp")
    return headers_digest(NATIVE) + "".join(path.read_text() for path in files)
