"""Compare graphc with PyTorch on one GPU, in measurements of a second each, in the order of
`goals.py`.

Each runs in a process of its own, so that a failure or a hang affects nothing else.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from tools.gpu_check.goals import Measurement, why_not
from tools.gpu_check.process import Countdown, python
from tools.gpu_check.report import CheckReport

MODULES = {"graphc": "benchmarks.run", "torch": "benchmarks.peer_torch"}
SIMULATED = 9.0
"""The compute capability of the simulated GPU."""
MOST_SECONDS = 120.0
"""Seconds of one measurement, compilation included."""
LEAST_SECONDS = 10.0
"""The least remaining seconds with which a measurement starts."""


def take_all(
    report: CheckReport, clock: Countdown, device: str, measurements: Sequence[Measurement]
) -> int:
    """Take the measurements that the report lacks while there is time, then those that failed in an
    earlier run; returns how many are left. What the GPU cannot do is noted as not applicable, which
    is no failure."""
    capability = report.capability if device.startswith("cuda") else SIMULATED
    for one in measurements:
        if why := why_not(one, capability):
            report.add_measurement(one.name, {"not applicable": why})
    measurements = [one for one in measurements if not report.measured(one.name)]
    failed = [one for one in measurements if report.tried(one.name)]
    left = 0
    for one in [*(w for w in measurements if w not in failed), *failed]:
        seconds = min(MOST_SECONDS, clock.left())
        line = measure(one, device, seconds) if seconds >= LEAST_SECONDS else None
        if line is None:
            left += 1
        else:
            report.add_measurement(one.name, line)
    return left


def command_of(each: Measurement, device: str, seconds: str = "1") -> list[str]:
    """Python's arguments for a measurement of this many seconds."""
    command = ["-m", MODULES[each.peer], "--variant", each.variant, "--workload", each.workload]
    return [*command, "--mode", each.mode, "--device", device, "--seconds", seconds, "--json"]


def measure(each: Measurement, device: str, seconds: float) -> dict[str, object] | None:
    """The JSON line of a measurement, or its `failure`; None if it exceeded the remaining time.
    Without a GPU PyTorch runs on the CPU."""
    place = device if each.peer == "graphc" or device.startswith("cuda") else "cpu"
    done = python(command_of(each, place), seconds)
    if done.ended and seconds < MOST_SECONDS:
        return None
    if done.failure:
        return {"failure": done.failure}
    try:
        line: dict[str, object] = json.loads(done.out.splitlines()[-1])
    except (IndexError, ValueError):
        return {"failure": f"no JSON line was printed: {done.out[-500:]}{done.err[-500:]}"}
    return line
