"""A driver library whose GPU is the simulated one, and exports that run on it."""

from __future__ import annotations

import functools
import os
import re
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from benchmarks.exported import run
from benchmarks.exported_models import training_step
from graphc.runtime.sim.build import compile_text, simulator_object
from tests.tools import missing, need_command
from tools.driver_stub import build_stub, find_headers

KERNELS = import_module("graphc.export.cuda.kernels")
FAKE = Path(__file__).with_name("fake_cuda.c")


@functools.cache
def driver() -> Path:
    """The folder with libcuda.so.1 and the simulator; else skips, or fails where CI=true."""
    need_command("gcc")
    headers = find_headers()
    if headers is None:
        missing("there is no cuda.h: neither a CUDA toolkit nor nvidia-cuda-runtime")
    folder = Path(tempfile.mkdtemp(prefix="fake-cuda-"))
    build_stub(headers, folder, [FAKE])
    (folder / "simulator.so").write_bytes(simulator_object())
    return folder


def simulated(text: str, name: str, archs: Sequence[str], flush: bool, where: str = "") -> bytes:
    """What takes the place of `compile_fatbin`: a kernel for the simulated GPU."""
    return compile_text(text, name, False, where)


def settings(folder: Path, **more: str) -> dict[str, str]:
    """The environment in which an export in a folder is built, and runs on the simulated GPU."""
    found, headers = driver(), find_headers()
    assert headers is not None
    return {
        **os.environ,
        "CUDA_HOME": str(headers.parent),
        "LDFLAGS": f"-L{found}",
        "LD_LIBRARY_PATH": str(found),
        "FAKE_SIMULATOR": str(found / "simulator.so"),
        "FAKE_RECORD": str(folder / "record"),
        **more,
    }


def selftest(folder: Path, name: str, **more: str) -> list[str]:
    """Build an export and return the lines of its self-test."""
    environment = settings(folder, **more)
    run("sh", "build.sh", folder=folder, environment=environment)
    return run(f"build/{name}_selftest", folder=folder, environment=environment).splitlines()


def linked(folder: Path, text: str, name: str) -> Path:
    """The program of a C text, linked with the export in a folder, which has been built."""
    (folder / "driver.c").write_text(text)
    flags = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-I.", f"-L{driver()}"]
    words = ["gcc", *flags, "driver.c", f"build/lib{name}.a", "-lcuda", "-o", "driver"]
    run(*words, folder=folder)
    return folder / "driver"


def said(program: Path, **more: str) -> str:
    """What a program that `linked` made prints, on the simulated GPU."""
    environment: dict[str, Any] = settings(program.parent, **more)
    return subprocess.run(
        [str(program)],
        cwd=program.parent,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    ).stdout


@contextmanager
def simulated_kernels() -> Iterator[None]:
    """Exports have kernels for the simulated GPU where there would be fat binaries."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(KERNELS, "compile_fatbin", simulated)
        yield


@pytest.fixture(autouse=True)
def kernels_for_the_simulator() -> Iterator[None]:
    """As `simulated_kernels`, for all tests of a module that imports this."""
    with simulated_kernels():
        yield


def step_of(name: str, device: str, streams: int) -> tuple[Any, Any]:
    """The training step of a model of `exported_models`, and the arrays of its calls."""
    options = {} if device == "cpu" else {"streams": streams}
    return training_step(name, device=device, **options)


def all_equal(lines: list[str]) -> bool:
    """Whether a self-test says that all results have the bits that were expected."""
    found = re.fullmatch(r"(\d+) of (\d+) results have the bits of the simulator; .*", lines[0])
    return bool(found) and found[1] == found[2] and lines[1].startswith("0 results are wrong")
