"""Which steps are compiled: all workloads of the benchmarks, each in every precision and with what
has to be asked for."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from benchmarks.run import compiled
from benchmarks.workload import Workload


@dataclass(frozen=True)
class Settings:
    """A `precision` of `compile`, variables of the environment that are 1, and the
    architectures that have what they ask for."""

    precision: str
    asked: tuple[str, ...] = ()
    archs: tuple[str, ...] = ("sm_90a", "sm_80")


SETTINGS: Mapping[str, Settings] = {
    "float32": Settings("float32"),
    "tf32": Settings("tf32"),
    "float32x3": Settings("float32x3"),
    "bfloat16": Settings("bfloat16"),
    "clusters": Settings("tf32", ("GRAPHC_CLUSTERS",), ("sm_90a",)),
    "wgmma": Settings("bfloat16", ("GRAPHC_WGMMA",), ("sm_90a",)),
    "tma": Settings("bfloat16", ("GRAPHC_WGMMA", "GRAPHC_TMA"), ("sm_90a",)),
}


def texts(workload: Workload, settings: Settings) -> dict[str, str]:
    """The CUDA text of each kernel of a step on one stream, by the kernel's name."""
    options = {"device": "cuda", "streams": 1, "precision": settings.precision}
    mode = "train" if "train" in workload.modes else "forward"
    with _asked(settings.asked):
        return dict(compiled(workload, workload.data(), mode, options).kernels)


@contextmanager
def _asked(variables: tuple[str, ...]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(dict.fromkeys(variables, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
