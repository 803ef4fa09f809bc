"""What `graphc doctor` says of GPUs: what is there, and the command for what is missing."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from graphc.base.errors import CompileError
from graphc.runtime.cuda import parts
from tests.cuda.records import DRIVERS, recorded, verbs
from tests.tools import need_nvrtc

NVRTC = "pip install 'nvidia-cuda-nvrtc==13.0.*'"


@pytest.mark.parametrize("by", DRIVERS)
def test_a_gpu_without_a_toolkit_has_all_that_it_needs(by: str, tmp_path: Path):
    """And a step's kernels are compiled, loaded and captured."""
    need_nvrtc()
    seen = recorded("recording_doctor", tmp_path, by)
    gpu, driver, packages, kernels = seen["lines"]
    assert gpu == "cuda:0 a driver that records, sm_90a, 17.2 GB"
    assert driver == "driver: CUDA 13.0"
    assert packages.startswith("packages: PyCUDA 20") == (by == "pycuda")
    assert "cuda-bindings 13." in packages
    assert re.fullmatch(
        r"kernels: compiled by nvrtc 13\.\d+; CUDA's headers are not needed", kernels
    )
    assert seen["compiled"] >= 2
    assert verbs(seen["step"]) == [
        "copy_to_device",
        "graph_launch",
        "copy_to_host",
        "record",
        "event_synchronize",
    ]


@pytest.mark.parametrize(
    ("pycuda", "bindings", "line"),
    [
        (
            "",
            "",
            "missing: pip install 'graphc[cuda]', which builds PyCUDA, or from wheels alone: "
            "pip install 'graphc[cuda-bindings]'",
        ),
        ("", "13.0", "cuda-bindings 13.0, which do without PyCUDA"),
        (
            "2026.1",
            "",
            "PyCUDA 2026.1; steps are not captured without cuda-bindings: pip install "
            "'cuda-bindings>=13.0.3,<14'",
        ),
        ("2026.1", "13.0", "cuda-bindings 13.0; PyCUDA 2026.1 cannot be loaded: it is broken"),
    ],
)
def test_packages_and_how_to_get_them(monkeypatch, pycuda: str, bindings: str, line: str):
    monkeypatch.setattr(parts, "_installed", {"pycuda": pycuda, "cuda-bindings": bindings}.get)
    monkeypatch.setattr(parts, "_import_problem", lambda module: "it is broken")
    monkeypatch.setattr(parts, "_driver", lambda: "CUDA 13.0")
    assert parts._packages() == line


def test_both_packages_are_named_where_only_the_driver_is_missing(monkeypatch):
    monkeypatch.setattr(parts, "_installed", {"pycuda": "2026.1", "cuda-bindings": "13.0"}.get)
    monkeypatch.setattr(parts, "_driver", lambda: parts.MISSING)
    assert parts._packages() == "PyCUDA 2026.1, cuda-bindings 13.0"


@pytest.mark.parametrize(
    ("version", "line"),
    [
        (13020, "CUDA 13.2"),
        (
            12080,
            "too old, for CUDA 12.8: install NVIDIA's driver 580 or newer; nvidia-smi shows it",
        ),
        (None, "missing (libcuda.so.1): install NVIDIA's driver 580 or newer; nvidia-smi shows it"),
    ],
)
def test_the_driver_and_the_oldest_that_will_do(monkeypatch, version: int | None, line: str):
    def answer(place: Any) -> int:
        place._obj.value = version
        return 0

    def load(name: str) -> Any:
        if version is None:
            raise OSError("no such file")
        return SimpleNamespace(cuDriverGetVersion=answer)

    monkeypatch.setattr(parts.ctypes, "CDLL", load)
    assert parts._driver() == line


def test_without_a_compiler_the_package_is_named(monkeypatch):
    def missing() -> Any:
        raise CompileError("no CUDA compiler: NVRTC is not installed and nvcc is not on the PATH")

    monkeypatch.setattr(parts, "find_compiler", missing)
    assert parts._compiler() == (
        f"no CUDA compiler: NVRTC is not installed and nvcc is not on the PATH: {NVRTC}"
    )


def test_nvcc_will_do_and_nvrtc_is_faster(monkeypatch):
    monkeypatch.setattr(
        parts, "find_compiler", lambda: SimpleNamespace(command=("/bin/nvcc",), title="13.0")
    )
    monkeypatch.setattr(parts, "compile_cuda", lambda text, name, arch: None)
    assert parts._compiler() == (
        f"compiled by /bin/nvcc 13.0; NVRTC is four times as fast: {NVRTC}"
    )


def test_headers_that_are_missing_are_named(monkeypatch, tmp_path: Path):
    monkeypatch.setattr(parts, "HEADERS", tmp_path)
    assert parts._compiler() == (
        f"graphc's headers are missing from {tmp_path}: pip install --force-reinstall graphc"
    )
