"""Records of what PyCUDA and cuda-bindings ask of a driver, and how to read them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.support import cublas, cudnn
from tests.tools import missing, need_command, need_package, run_python
from tools.driver_stub import build_stub, find_headers

PARTS = ("driver", "maps", "captures", "lookup")
FAKES = [Path(__file__).with_name(f"fake_{part}.c") for part in PARTS]


WITHOUT_PYCUDA = """
import runpy, sys
sys.modules["pycuda"] = None
runpy.run_module("tests.cuda.{module}", run_name="__main__")
"""
DRIVERS = ("pycuda", "bindings")
"""What drives a GPU: PyCUDA, or cuda-bindings alone."""


def recorded(module: str, folder: Path, by: str = "pycuda") -> dict[str, Any]:
    """What the module of this package prints, in a process whose driver only records."""
    if by == "pycuda":
        need_package("pycuda")
    need_package("cuda.bindings")
    need_command("gcc")
    headers = find_headers()
    if headers is None:
        missing("there is no cuda.h: neither a CUDA toolkit nor nvidia-cuda-runtime")
    build_stub(headers, folder, FAKES)
    places = {"LD_LIBRARY_PATH": str(folder), "GRAPHC_CACHE_DIR": str(folder / "cache")}
    places["FAKE_CUBLAS"] = str(cublas.build_fake(folder))
    places["FAKE_CUDNN"] = str(cudnn.build_fake(folder))
    alone = ("-c", WITHOUT_PYCUDA.format(module=module))
    arguments = ("-m", f"tests.cuda.{module}") if by == "pycuda" else alone
    printed = run_python(*arguments, environment=places)
    return json.loads(printed)


def verbs(lines: list[str]) -> list[str]:
    return [line.split()[0] for line in lines]


def count(lines: list[str], names: tuple[str, ...]) -> int:
    return sum(verb in names for verb in verbs(lines))


def parts(step: list[str]) -> tuple[list[str], list[str]]:
    """What the first step issues at once, and what it captures."""
    begin, end = verbs(step).index("begin_capture"), verbs(step).index("end_capture")
    return step[:begin], step[begin + 1 : end]
