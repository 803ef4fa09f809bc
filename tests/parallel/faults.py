"""A rank that fails: `python -m tests.parallel.faults FOLDER HOW RANK STEP STEPS`.

Trains with a checkpoint after each step, from the newest one on. Before step STEP rank RANK is
killed, raises an exception, stops, or ends.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import graphc
from tests.parallel.cases import BATCH, batch, program


def fail(how: str) -> None:
    """What happens to the rank."""
    if how == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "raised":
        raise ValueError("no more data")
    if how == "stopped":
        time.sleep(12)
    if how == "ended":
        sys.exit(0)


def main(
    folder: str,
    how: str,
    rank: str,
    step: str,
    steps: str,
    timeout: str = "60",
    sharded: str = "",
) -> None:
    """Train, and print the losses by step; `sharded` says that ranks divide the moments."""
    parallel = graphc.DataParallel(
        shards=12, timeout=float(timeout), shard_optimizer_state=bool(sharded)
    )
    train, _ = program("adam", parallel)
    found = graphc.load_checkpoint(folder, train)
    first = 0 if found is None else found.step
    x, y = (a[parallel.part(BATCH)] for a in batch("adam"))
    losses: dict[str, Any] = {"first": first}
    for n in range(first, int(steps)):
        if parallel.rank == int(rank) and n == int(step):
            written = Path(folder, f"step-{n}.safetensors")
            while n > first and not written.exists():  # rank 0 may be writing it yet
                time.sleep(0.01)
            fail(how)
        losses[str(n)] = float(train(x, y))
        graphc.save_checkpoint(folder, n + 1, train)
    print(json.dumps(losses))


if __name__ == "__main__":
    main(*sys.argv[1:])
