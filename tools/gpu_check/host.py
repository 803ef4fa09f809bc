"""Measure the host's cost of a step: `python -m tools.gpu_check.host cuda`.

The last line is JSON: microseconds of a step of a small network whose results nothing waits for,
and GB/s of large inputs on their way to the device by number of threads.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import numpy as np

from graphc.runtime.cuda import find_device, staging
from tests.support.executable import batch, trainer

STEPS = 200
BYTES = 64 << 20
"""Bytes of a large input."""


def main(device: str) -> None:
    found = {"us per step": step(device), "GB/s of inputs": inputs(device)}
    print(json.dumps(found))


def step(device: str) -> float:
    """Microseconds of the host per step, with few enough steps that the device keeps up."""
    train = trainer("mlp", device)
    executable: Any = train._executable
    arrays = batch("mlp")
    executable.run(arrays)
    return round(1e6 * median(timed(lambda: executable.submit(arrays)) for _ in range(STEPS)), 1)


def inputs(device: str) -> dict[str, float]:
    """GB/s of a large input by the number of copying threads."""
    place, rates = find_device(device), dict[str, float]()
    known: Any = staging  # whose count of cores is replaced
    cores = known.usable_cores
    array = np.ones(BYTES, np.uint8)
    with place.entered():
        memory = place.driver.mem_alloc(BYTES)
        stream = place.streams[0]

        def upload() -> None:
            place.staging.upload(int(memory), array, stream)
            stream.synchronize()

        for threads in range(1, staging.COPIERS + 1):
            known.usable_cores = lambda count=2 * threads: count
            upload()
            seconds = median(timed(upload) for _ in range(9))
            rates[str(threads)] = round(BYTES / seconds / 1e9, 2)
        known.usable_cores = cores
    return rates


def timed(play: Callable[[], object]) -> float:
    begin = time.perf_counter()
    play()
    return time.perf_counter() - begin


if __name__ == "__main__":
    main(sys.argv[1])
