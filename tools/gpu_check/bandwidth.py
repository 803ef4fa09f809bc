"""Measure how close memory-bound work comes to the speed of a copy: `python -m
tools.gpu_check.bandwidth cuda`.

The last line is JSON: for each such workload and number of rows the microseconds of a training step
and its share of copy bandwidth, which is the time of a copy of as many bytes divided by the step's.
The bytes are those of inputs and results, the least that it can move. Both times are means of many
repetitions in one graph. Arrays of few rows may stay in the second-level cache, the copy's too;
those of many do not.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import graphc
from benchmarks.families.pointwise import WORKLOADS, Pointwise
from benchmarks.kernel_times import repeated
from benchmarks.run import Model, backward
from graphc.runtime.cuda import Device, find_device

ROWS = (4096, 32768)
FEW = (64,)
"""Rows on a simulated device, whose times mean nothing."""


def main(device: str) -> None:
    place = find_device(device)
    rows = ROWS if device.startswith("cuda") else FEW
    print(json.dumps({title(w): share(w, place) for w in chosen(rows)}))


def chosen(rows: Sequence[int]) -> list[Pointwise]:
    return [replace(w, batch=count) for count in rows for w in WORKLOADS]


def title(workload: Pointwise) -> str:
    """The name of the workload in the results."""
    return f"{workload.name} {workload.batch} rows"


def share(workload: Pointwise, place: Device) -> dict[str, float]:
    """Microseconds of a step and its share of copy bandwidth."""
    data = workload.data()
    specs = [graphc.spec(a.shape, a.dtype) for a in (data.x, data.y)]
    model = Model(workload, data)
    program = graphc.compile(backward, model, *specs, device=place.name, streams=1)
    executable: Any = program._executable
    plan = executable.plan
    nbytes = sum(b.value.type.nbytes for b in (*plan.inputs, *plan.outputs))
    executable.run([data.x, data.y])
    with place.entered():
        step = repeated([issue for issue, _ in executable._issues], place)
        copied = copying(nbytes // 2, place)
    return {"us": round(step, 2), "share": round(copied / step, 3)}


def copying(nbytes: int, place: Device) -> float:
    """Microseconds of a copy on the device that reads and writes `nbytes`."""
    driver = place.driver
    here, there = (driver.mem_alloc(nbytes) for _ in range(2))
    copy = partial(driver.memcpy_dtod_async, int(there), int(here), nbytes, place.streams[0])
    return repeated([copy], place)


if __name__ == "__main__":
    main(sys.argv[1])
