"""Processes that are killed while they write: a file is the old one or the new one, never half."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import graphc
from tools.soak.nets import digest, trainer, trajectory
from tools.soak.vitals import check

STEPS = 40
WRITES = """
import sys, graphc
from pathlib import Path
from tools.soak.nets import batch, trainer
folder = Path(sys.argv[1])
program = trainer(width=2048)
first = program.state_dict()
graphc.load_checkpoint(folder / "run", program)
print("ready", flush=True)
while True:
    if program.update.step >= 40:
        for path in sorted((folder / "run").glob("*")):
            path.unlink()
        program.load_state_dict(first)
    program(*batch(program.update.step))
    if sys.argv[2] == "checkpoints":
        graphc.save_checkpoint(folder / "run", program.update.step, program, keep=2)
    else:
        program.save(folder / "program")
"""


def killed_while_writing(amount: int, folder: Path, what: str) -> int:
    """Kill writers at random moments, and look at the files after each.

    Returns:
        How many were killed before they had written anything.
    """
    draw, early = random.Random(amount), 0
    program = trainer(width=2048)
    expected = trajectory(program, STEPS)
    for number in range(amount):
        process = subprocess.Popen(
            [sys.executable, "-c", WRITES, str(folder), what], stdout=subprocess.PIPE, text=True
        )
        with process:
            assert process.stdout is not None
            check(process.stdout.readline() == "ready\n", f"writer {number}")
            time.sleep(draw.uniform(0.0, 0.15 if what == "checkpoints" else 0.6))
            check(process.poll() is None, f"writer {number} ended by itself")
            process.kill()
        if what == "checkpoints":
            found = graphc.load_checkpoint(folder / "run", program)
            early += found is None
            check(found is None or not found.skipped, f"kill {number}: {found}")
        elif (folder / "program").exists():
            program = graphc.load(folder / "program")
        else:
            early += 1
            continue
        step = program.update.step
        check(digest(program.state_dict()) == expected[step], f"kill {number}: step {step}")
    return early


def kill_checkpoints(amount: int, folder: Path) -> Mapping[str, Any]:
    """Kill processes that write checkpoints."""
    early = killed_while_writing(amount, folder, "checkpoints")
    return {"kills": amount, "before the first file": early}


def kill_programs(amount: int, folder: Path) -> Mapping[str, Any]:
    """Kill processes that save programs."""
    early = killed_while_writing(amount, folder, "programs")
    return {"kills": amount, "before the first file": early}
