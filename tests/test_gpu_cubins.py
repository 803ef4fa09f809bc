"""Kernels that are compiled before a check of a GPU, and loaded there."""

from __future__ import annotations

import os
import re

import pytest

from graphc.runtime.cuda import compile as compiling
from tests.tools import missing, need_nvrtc, need_package, run_python
from tools.driver_stub import find_headers
from tools.gpu_check import __main__ as kit
from tools.gpu_check import cubins, goals


def test_kernels_that_were_compiled_before_are_loaded(tmp_path, monkeypatch):
    """Those of the smoke stage, made on a driver that only records."""
    need_package("pycuda")
    need_nvrtc()
    if find_headers() is None:
        missing("there is no cuda.h: neither a CUDA toolkit nor nvidia-cuda-runtime")
    folder = tmp_path / "cubins"
    told = run_python("-m", "tools.gpu_check.cubins", str(folder), "--only", "smoke")
    assert re.search(r"^smoke: .* 1 kernels", told, re.MULTILINE), told
    monkeypatch.setenv("GRAPHC_CUBINS", str(folder))
    monkeypatch.setattr(compiling, "find_compiler", lambda: pytest.fail("compiled"))
    from tools.gpu_check import smoke

    cubin = compiling.compile_cuda(smoke.SOURCE.read_text(), "smoke", "sm_90a")
    assert cubin.image.startswith(b"\x7fELF") and "mma_bf16" in cubin.usage


def test_the_kit_hands_the_folder_of_kernels_to_what_it_starts(tmp_path, monkeypatch):
    monkeypatch.setattr(kit, "play", lambda kit, stages: None)
    monkeypatch.setenv("GRAPHC_CUBINS", "")
    with pytest.raises(SystemExit):
        kit.main(["--device", "sim", "--out", str(tmp_path / "a"), "--cubins", str(tmp_path)])
    assert os.environ["GRAPHC_CUBINS"] == str(tmp_path)


def test_the_kernels_of_every_stage_are_compiled_before() -> None:
    titles = [title for title, _ in cubins.commands()]
    assert titles[:5] == ["smoke", "ops", "models", "kernels", "calibration"]
    assert titles[5:7] == ["host", "bandwidth"]
    ours = [m.name for m in goals.decisive(goals.CHOSEN) if m.peer == "graphc"]
    assert titles[7 : 7 + len(ours)] == ours and len(set(titles)) == len(titles)
