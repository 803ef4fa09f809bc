"""What programs on a GPU need of a machine, for `graphc doctor`: what is there, and for what is
missing the command that mends it."""

from __future__ import annotations

import ctypes
import importlib
from collections.abc import Iterator
from ctypes import byref, c_int
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from graphc.base.errors import CompileError
from graphc.runtime.cuda.compile import HEADERS, compile_cuda, find_compiler
from graphc.runtime.cuda.driver import describe_gpus, driver_library

OLDEST = 13000
"""The version of CUDA, as the driver counts, that kernels and packages are made for."""
DRIVER = "install NVIDIA's driver 580 or newer; nvidia-smi shows it"
MISSING = f"missing ({driver_library()}): {DRIVER}"
BOTH = (
    "pip install 'graphc[cuda]', which builds PyCUDA, or from wheels alone: "
    "pip install 'graphc[cuda-bindings]'"
)
BINDINGS = "pip install 'cuda-bindings>=13.0.3,<14'"
NVRTC = "pip install 'nvidia-cuda-nvrtc==13.0.*'"
PROBE = """#include "cuda/shared/intrinsics.cuh"
extern "C" __global__ void doctor(float* x) { *x += 1.0f; }
"""
"""A kernel that includes one of graphc's headers."""


def describe_parts() -> list[str]:
    """A line for each GPU, and for each thing that programs on one need."""
    return [*describe_gpus(), *_parts()]


def _parts() -> Iterator[str]:
    yield f"driver: {_driver()}"
    yield f"packages: {_packages()}"
    yield f"kernels: {_compiler()}"


def _driver() -> str:
    try:
        library: Any = ctypes.CDLL(driver_library())
    except OSError:
        return MISSING
    found = c_int()
    library.cuDriverGetVersion(byref(found))
    supported = f"CUDA {found.value // 1000}.{found.value % 1000 // 10}"
    return supported if found.value >= OLDEST else f"too old, for {supported}: {DRIVER}"


def _packages() -> str:
    pycuda, bindings = _installed("pycuda"), _installed("cuda-bindings")
    if pycuda and bindings:
        problem = _import_problem("pycuda.driver") if _driver() != MISSING else ""
        alone = f"cuda-bindings {bindings}; PyCUDA {pycuda} cannot be loaded: {problem}"
        return alone if problem else f"PyCUDA {pycuda}, cuda-bindings {bindings}"
    if bindings:
        return f"cuda-bindings {bindings}, which do without PyCUDA"
    if pycuda:
        return f"PyCUDA {pycuda}; steps are not captured without cuda-bindings: {BINDINGS}"
    return f"missing: {BOTH}"


def _compiler() -> str:
    if not any((HEADERS / "cuda").rglob("*.cuh")):
        return f"graphc's headers are missing from {HEADERS}: pip install --force-reinstall graphc"
    try:
        compiler = find_compiler()
        compile_cuda(PROBE, "doctor", "sm_80")
    except CompileError as error:
        return f"{str(error).splitlines()[0]}: {NVRTC}"
    nvrtc = compiler.command == ("nvrtc",)
    note = "CUDA's headers are not needed" if nvrtc else f"NVRTC is four times as fast: {NVRTC}"
    return f"compiled by {compiler.command[0]} {compiler.title}; {note}"


def _installed(package: str) -> str:
    """The version of a package; "" if it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def _import_problem(module: str) -> str:
    """Why a module cannot be imported; "" if it can."""
    try:
        importlib.import_module(module)
    except ImportError as error:
        return str(error)
    return ""
