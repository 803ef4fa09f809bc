"""The steps to compile: all workloads of the benchmarks, in every precision and with all
options."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from benchmarks.run import compiled
from benchmarks.workload import Workload


@dataclass(frozen=True)
class Settings:
    """Options of a compilation."""

    precision: str
    """The `precision` of `compile`."""
    asked: tuple[tuple[str, str], ...] = ()
    """Environment variables with their values."""
    archs: tuple[str, ...] = ("sm_90a", "sm_80")
    """Architectures that support the options."""
    dtype: str = "float32"
    """The dtype of parameters and inputs."""
    streams: int = 1
    """The number of streams."""


HOPPER = ("sm_90a",)
WGMMA, TMA = ("GRAPHC_WGMMA", "1"), ("GRAPHC_TMA", "1")
SETTINGS: Mapping[str, Settings] = {
    "float32": Settings("float32"),
    "tf32": Settings("tf32"),
    "float32x3": Settings("float32x3"),
    "bfloat16": Settings("bfloat16"),
    "float16": Settings("float32", dtype="float16"),
    "streams": Settings("tf32", streams=4),
    "launches": Settings("tf32", (("GRAPHC_TICKETS", "0"),)),
    "early": Settings("tf32", (("GRAPHC_EARLY_LAUNCH", "1"),), HOPPER),
    "clusters": Settings("tf32", (("GRAPHC_CLUSTERS", "1"),), HOPPER),
    "wgmma": Settings("bfloat16", (WGMMA,), HOPPER),
    "tma": Settings("bfloat16", (WGMMA, TMA), HOPPER),
}
"""`early` has the texts of `tf32`, but other compiler options, so `asked` also holds while
compiling."""


def texts(workload: Workload, settings: Settings) -> dict[str, str]:
    """The CUDA text of each kernel of a step, joined launches included, by the kernel's name."""
    options = {
        "device": "cuda",
        "streams": settings.streams,
        "precision": settings.precision,
    }
    mode = "train" if "train" in workload.modes else "forward"
    with asked(settings):
        program = compiled(workload, workload.data(), mode, options, settings.dtype)
    joined = {run.kernel.name: run.kernel.source for run in program.plan.joined}
    return {**program.kernels, **joined}


@contextmanager
def asked(settings: Settings) -> Iterator[None]:
    """The block in which the environment has the variables of the settings."""
    before = {name: os.environ.get(name) for name, _ in settings.asked}
    os.environ.update(settings.asked)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
