"""Describe the machine of a check, and install the packages that it needs."""

from __future__ import annotations

import datetime
import os
import platform
import shutil
import sys
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed
from pathlib import Path
from typing import Any

from tools.gpu_check.process import ROOT, python, run

PYCUDA = "pycuda"
NEEDED = ("numpy", "networkx", "pytest", PYCUDA, "cuda-bindings")
SHOWN = ("numpy", "pycuda", "cuda-bindings", "nvidia-cuda-nvrtc", "torch", "triton")
NVRTC = "nvidia-cuda-nvrtc"
MISSING = "not installed"


def about() -> dict[str, Any]:
    """The commit, today's date and the machine."""
    commit = run(["git", "-C", str(ROOT), "rev-parse", "HEAD"], 10).out.strip()
    return {
        "commit": commit or "unknown",
        "date": datetime.date.today().isoformat(),
        "machine": machine(),
    }


def machine() -> dict[str, Any]:
    """The GPUs and their driver, this Python, and the versions of the packages involved."""
    return {
        "gpus": nvidia_smi("name,driver_version,memory.total,compute_cap"),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "versions": {name: version(name) for name in SHOWN},
        "nvcc": run(["nvcc", "--version"], 10).out.strip().split("\n")[-1],
    }


def clocks() -> list[str]:
    """The current clocks, temperature and power of each GPU."""
    return nvidia_smi("clocks.sm,clocks.mem,temperature.gpu,power.draw")


def nvidia_smi(query: str) -> list[str]:
    done = run(["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader"], 20)
    return done.out.splitlines() if done.status == 0 else []


def install_missing(wheels: Path, folder: Path) -> str:
    """Install what is missing from wheels into a folder that this process and its children import
    from; returns what went wrong, or "".

    NVRTC's wheel is large: it is skipped if the folder lacks it or the machine has it. So is
    PyCUDA's if the folder lacks it, as cuda-bindings do without.
    """
    missing = [name for name in NEEDED if version(name) == MISSING]
    if PYCUDA in missing and not list(wheels.glob(f"{PYCUDA}-*")):
        missing.remove(PYCUDA)
    if version(NVRTC) == MISSING and list(wheels.glob("nvidia_cuda_nvrtc*")) and not has_compiler():
        missing.append(NVRTC)
    failure = ""
    if missing:
        pip = ["-m", "pip", "install", "-q", "--no-index", "--upgrade"]
        command = [*pip, "--find-links", str(wheels), "--target", str(folder), *missing]
        failure = python(command, 120).failure
    sys.path.insert(0, str(folder))
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join([str(folder), *([before] if before else [])])
    return failure


def has_compiler() -> bool:
    """Whether nvcc or NVRTC is installed."""
    code = "from cuda.bindings import nvrtc; print(nvrtc.nvrtcVersion())"
    return shutil.which("nvcc") is not None or python(["-c", code], 30).status == 0


def version(package: str) -> str:
    try:
        return installed(package)
    except PackageNotFoundError:
        return MISSING
