"""What a driver that records is asked for while `graphc.fit` trains, as JSON.

test_training_ahead.py runs this in a process of its own, with the recording driver in place of
libcuda. Each step's record ends where the host begins the next one.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np

import graphc
from graphc import nn, optim
from graphc.runtime.cuda.driver import PycudaDriver
from graphc.training import Callback, Run
from tests.cuda.recording import DRIVER, Record, compiled, taken

STEPS, BATCH, EPOCHS = 8, 4, 2
X = np.zeros((STEPS * BATCH, 6), np.float32)
Y = np.zeros((STEPS * BATCH, 1), np.float32)


class Steps(Callback):
    """Keeps the record of each step and of the end of each epoch."""

    def __init__(self, reads: bool) -> None:
        self.reads = reads
        self.steps: list[Record] = []
        self.ends: list[Record] = []

    def step(self, run: Run) -> None:
        if self.reads:
            assert list(run.metrics) == ["loss"]
        self.steps.append(taken())

    def epoch(self, run: Run) -> None:
        self.ends.append(taken())


def main() -> None:
    PycudaDriver.products = PycudaDriver.convolutions = None  # type: ignore[assignment]
    PycudaDriver.compile = compiled  # type: ignore[method-assign]
    DRIVER.fake_machine(1, 1 << 34)
    falling = optim.schedules.Cosine(0.1, 40)
    found = {
        "host": trained(optim.Adam(lr=0.1)),
        "schedule": trained(optim.SGD(lr=falling, momentum=0.9)),
        "last rate": falling(STEPS * EPOCHS),
        "large": large(),
        "reads": trained(optim.Adam(lr=0.1), reads=True),
        "scaled": trained(optim.SGD(lr=falling), mixed="float16"),
        "behind": behind(),
    }
    print(json.dumps(found))


def program(rule: Any, **options: Any) -> Any:
    return graphc.compile(
        lambda model, x, y: graphc.mean((model(x) - y) ** 2),
        nn.Linear(6, 1),
        graphc.spec((BATCH, 6)),
        graphc.spec((BATCH, 1)),
        update=rule,
        device="cuda",
        **options,
    )


def trained(rule: Any, reads: bool = False, **options: Any) -> dict[str, Any]:
    """The records of the steps and ends of some epochs, and what the history says."""
    step, kept = program(rule, **options), Steps(reads)
    step(X[:BATCH], Y[:BATCH])
    taken()
    batches = graphc.data.Batches((X, Y), BATCH, shuffle=1)
    history = graphc.fit(step, batches, EPOCHS, callbacks=[kept], progress=False)
    return {
        "steps": kept.steps,
        "ends": kept.ends,
        "losses": len(history["loss"]),
        "rate": step._clock.rate.array.item(),
    }


def large() -> list[Record]:
    """The records of steps whose inputs are larger than half of the staging memory."""
    features = (10 << 20) // 4 // BATCH
    step = graphc.compile(
        lambda model, x: graphc.mean(model.weight * graphc.mean(x)),
        nn.Linear(6, 1),
        graphc.spec((BATCH, features)),
        update=optim.SGD(lr=0.1),
        device="cuda",
    )
    x, kept = np.zeros((2 * BATCH, features), np.float32), Steps(reads=False)
    step(x[:BATCH])
    taken()
    graphc.fit(step, graphc.data.Batches(x, BATCH), 3, callbacks=[kept], progress=False)
    return kept.steps


def behind() -> list[Record]:
    """Three submitted calls of a program on a GPU that is two calls behind: their records."""
    step = program(optim.Adam(lr=0.1))
    step(X[:BATCH], Y[:BATCH])
    DRIVER.fake_pending(1)
    records, held = [], []
    for _ in range(3):
        taken()
        held.append(step.submit(X[:BATCH], Y[:BATCH]))
        records.append(taken())
    DRIVER.fake_pending(0)
    return records


if __name__ == "__main__":
    main()
