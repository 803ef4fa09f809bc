"""What a replayed step costs the host, on a driver that records, as JSON.

test_host_time.py runs this as test_pycuda.py runs recording.py. Times are medians of rounds, each
of many steps: microseconds, and how often they hold a loop of 100 calls of nothing, which is
measured beside them, so that it matters little how fast the machine is and what else it does.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from statistics import median
from typing import Any

from graphc.runtime.cuda.driver import PycudaDriver
from tests.cuda.recording import DRIVER, batch, compiled, taken, trainer
from tests.small_models import MODELS

ROUNDS, STEPS = 200, 30


def main() -> None:
    PycudaDriver.products = PycudaDriver.convolutions = None  # type: ignore[assignment]
    PycudaDriver.compile = compiled  # type: ignore[method-assign]
    DRIVER.fake_machine(1, 1 << 34)
    train = trainer(MODELS["lenet"][0](), "cuda")
    executable: Any = train._executable
    x, y = batch()
    parts: dict[str, Callable[[], object]] = {
        "loop": loop,
        "run": lambda: executable.run((x, y)),
        "call": lambda: train(x, y),
    }
    for _ in range(10):
        train(x, y)
    found: dict[str, Any] = {"calls": calls(parts["call"])}
    taken()
    train(x, y)
    found["driver"] = taken()
    rounds = [{name: microseconds(play) for name, play in parts.items()} for _ in range(ROUNDS)]
    found["us"] = {name: median(r[name] for r in rounds) for name in parts}
    found["loops"] = {name: median(r[name] / r["loop"] for r in rounds) for name in parts}
    print(json.dumps(found))


def loop() -> None:
    for _ in range(100):
        nothing()


def nothing() -> None:
    pass


def microseconds(play: Callable[[], object]) -> float:
    taken()
    begin = time.perf_counter()
    for _ in range(STEPS):
        play()
    return 1e6 * (time.perf_counter() - begin) / STEPS


def calls(play: Callable[[], object]) -> int:
    """How many functions are called, Python's and those of C."""
    events: list[str] = []
    sys.setprofile(lambda frame, event, what: events.append(event))
    play()
    sys.setprofile(None)
    return sum(event in ("call", "c_call") for event in events)


if __name__ == "__main__":
    main()
