"""Read the counters of the kernels that are furthest from their predictions, by `ncu`."""

from __future__ import annotations

import csv
import re
import shutil
from collections.abc import Mapping, Sequence
from typing import Any

from tools.gpu_check import benchmarks, goals
from tools.gpu_check.process import Countdown, python

SECTIONS = ("SpeedOfLight", "Occupancy", "WarpStateStats", "MemoryWorkloadAnalysis")
LAUNCHES = 40
"""Launches of a step's kernels that are profiled, of which the first of each counts."""
FORBIDDEN = "ERR_NVGPUCTRPERM"
LEAST_SECONDS = 10.0
"""The least remaining seconds with which a step is profiled."""


def read(
    worst: Sequence[Mapping[str, Any]], device: str, clock: Countdown, workloads: Sequence[str]
) -> dict[str, Any]:
    """Counters by kernel, or why there are none: `missing` says so."""
    tool = shutil.which("ncu")
    if tool is None:
        return {"missing": "ncu is not on the PATH"}
    if not worst:
        return {"missing": "no kernel was compared with a prediction"}
    found: dict[str, Any] = {}
    for each in goals.measurements(workloads):
        kernels = [w["name"].removeprefix(f"{each.name} ") for w in worst
                   if w["name"].startswith(f"{each.name} ")]  # fmt: skip
        if not kernels or clock.left() < LEAST_SECONDS:
            continue
        command = benchmarks.command_of(each, device, "0.001")
        done = python(command, clock.left(), before=[tool, *options(kernels)])
        if FORBIDDEN in done.out + done.err:
            return {"missing": f"this user may not read the GPU's counters ({FORBIDDEN})"}
        if done.failure:
            return {**found, "failure": done.failure}
        found[each.name] = counters(done.out)
    return found


def options(kernels: Sequence[str]) -> list[str]:
    """ncu's options for the launches of these kernels, whose symbols begin with their names."""
    names = "|".join(re.escape(name) for name in kernels)
    sections = [word for section in SECTIONS for word in ("--section", section)]
    chosen = ["--kernel-name", f"regex:^({names})", "--launch-count", str(LAUNCHES)]
    return [*chosen, *sections, "--csv", "--page", "details", "--target-processes", "all"]


def counters(printed: str) -> dict[str, dict[str, str]]:
    """By kernel the metrics of its first launch, with their units, from ncu's CSV, which stands
    among what the program prints."""
    lines = printed.splitlines()
    heads = [i for i, line in enumerate(lines) if line.startswith('"ID"')]
    found: dict[str, dict[str, str]] = {}
    first: dict[str, str] = {}
    for row in csv.DictReader(lines[heads[0] :]) if heads else ():
        kernel, metric = row.get("Kernel Name"), row.get("Metric Name")
        if not kernel or not metric or first.setdefault(kernel, row["ID"]) != row["ID"]:
            continue
        value = f"{row['Metric Value']} {row['Metric Unit']}".strip()
        found.setdefault(kernel, {})[metric] = value
    return found
