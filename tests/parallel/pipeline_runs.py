"""A run of a pipeline: `python -m tests.parallel.pipeline_runs FOLDER STEPS [HOW RANK STEP]`.

Trains with a checkpoint after each step, from the newest one on, and then evaluates by a program
without an update. Before step STEP rank RANK is killed, raises an exception, or stops. One process
does the same with `accumulate=`.
"""

from __future__ import annotations

import hashlib
import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

import graphc
from tests.parallel.faults import fail
from tests.parallel.pipelines import batch, program

BATCHES = 4


def digest(arrays: Any) -> str:
    """That of arrays by name."""
    return hashlib.sha256(b"".join(arrays[n].tobytes() for n in sorted(arrays))).hexdigest()


def run(
    folder: str, steps: int, parallel: Any = None, how: str = "", rank: int = 0, step: int = 0
) -> dict[str, Any]:
    """Train and evaluate; what was found, the same on all ranks."""
    train, model = program("tied", BATCHES, parallel)
    x, y = batch("tied")
    checkpoint = graphc.load_checkpoint(folder, train)
    first = 0 if checkpoint is None else checkpoint.step
    found: dict[str, Any] = {"first": first}
    for n in range(first, steps):
        if how and parallel.rank == rank and n == step:
            written = Path(folder, f"step-{n}.safetensors")
            while n > first and not written.exists():  # rank 0 may be writing it yet
                time.sleep(0.01)
            fail(how)
        found[str(n)] = float(train(x, y))
        graphc.save_checkpoint(folder, n + 1, train)
    how_many = {} if parallel is None else {"parallel": parallel}
    evaluate = graphc.compile(model, graphc.spec(x.shape, "int32"), **how_many)
    logits = evaluate(x)
    found["logits"] = hashlib.sha256(np.ascontiguousarray(logits).tobytes()).hexdigest()
    state = train.state_dict()
    found["state"], found["names"] = digest(state), sorted(state)
    model.load_state_dict({n: state[n] for n in model.state_types()})
    found["model"] = digest(model.state_dict())
    return found


def main(folder: str, steps: str, how: str = "", rank: str = "0", step: str = "0") -> None:
    """Print what a rank has found."""
    parallel = graphc.PipelineParallel(BATCHES, timeout=60)
    print(json.dumps(run(folder, int(steps), parallel, how, int(rank), int(step))))


if __name__ == "__main__":
    main(*sys.argv[1:])
