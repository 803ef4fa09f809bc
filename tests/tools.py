"""What several tests need: tools that may be missing, and how tests run a program."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

import pytest

from graphc.base.errors import CompileError
from graphc.runtime.cuda.compile import CudaCompiler, find_compiler, nvcc, nvrtc
from tools.gpu_model.sass import NoDisassemblerError, find_nvdisasm

ROOT = Path(__file__).resolve().parent.parent


def need_module(name: str) -> ModuleType:
    """The module, such as torch; without it the test skips, or fails where CI=true."""
    try:
        return import_module(name)
    except ImportError as error:
        return missing(f"{name} is not installed: {error}")


def need_package(name: str) -> None:
    """Like `need_module` for one that cannot be imported here, such as PyCUDA without a driver."""
    try:
        found = find_spec(name) is not None
    except ModuleNotFoundError:
        found = False
    if not found:
        missing(f"{name} is not installed")


def need_command(*names: str) -> str:
    """The path of the first of these commands that is there; else skips, or fails where CI=true."""
    for name in names:
        path = shutil.which(name)
        if path:
            return path
    return missing(f"none of these commands is on the PATH: {', '.join(names)}")


def need_nvrtc() -> CudaCompiler:
    """NVRTC as a compiler of CUDA text; else skips, or fails where CI=true."""
    return nvrtc() or missing("NVRTC is not installed")


def need_nvcc() -> CudaCompiler:
    """nvcc as a compiler of CUDA text; else skips, or fails where CI=true."""
    return nvcc() or missing("nvcc is not on the PATH")


def need_cuda_compiler() -> CudaCompiler:
    """NVRTC or nvcc; else skips, or fails where CI=true."""
    try:
        return find_compiler()
    except CompileError as error:
        return missing(str(error))


def need_nvdisasm() -> str:
    """The path of nvdisasm; else skips, or fails where CI=true."""
    try:
        return find_nvdisasm()
    except NoDisassemblerError as error:
        return missing(str(error))


def need_clang(folder: Path) -> str:
    """The path of clang++, or of a script in `folder` that runs the one of the package ziglang;
    else skips, or fails where CI=true."""
    path = shutil.which("clang++")
    if path:
        return path
    need_module("ziglang")
    script = folder / "clang++"
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m ziglang c++ "$@"\n')
    script.chmod(0o755)
    return str(script)


def run_python(
    *arguments: str, environment: Mapping[str, str] | None = None, folder: Path = ROOT
) -> str:
    """The output of this Python on `arguments`, run in `folder`, warnings being errors; the test
    fails with all it printed if it fails."""
    result = subprocess.run(
        [sys.executable, "-W", "error", *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), **(environment or {})},
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, f"{arguments}:\n{result.stdout}\n{result.stderr}"
    return result.stdout


def first_quick(count: int, values: Iterable[Any]) -> list[Any]:
    """The values as parameters of a test: the first `count` in `make test`, the others slow."""
    return [
        pytest.param(v, marks=() if i < count else pytest.mark.slow) for i, v in enumerate(values)
    ]


def missing(reason: str) -> NoReturn:
    """Skips the test, or the module that is being collected; or fails where CI=true."""
    if os.environ.get("CI") == "true":
        pytest.fail(f"{reason}; CI=true asks for it")
    pytest.skip(reason, allow_module_level=True)
