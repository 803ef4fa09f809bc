"""Time from a saved program to its first result: `python -m benchmarks.loading [WORKLOAD ...]`.

A program is compiled with all of its kernels, and saved. Then processes load the file, one after
the other, with a cache that has the kernels, and call the program once. The time begins after the
imports of NumPy and graphc and ends with the result. The table gives, for each mode, the least of
the rounds: seconds on the clock, CPU seconds of the process and of the thread that loads, seconds
of `load` alone; and the size of the file.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from benchmarks.run import compiled
from benchmarks.workloads import find

LOAD = """
import sys, time
import numpy as np
import graphc
path, inputs = sys.argv[1:]
arrays = list(np.load(inputs).values())
wall, cpu, thread = time.perf_counter(), time.process_time(), time.thread_time()
program = graphc.load(path)
loaded = time.perf_counter()
program(*arrays)
print(time.perf_counter() - wall, time.process_time() - cpu, time.thread_time() - thread,
      loaded - wall)
"""


def save(name: str, mode: str, path: Path, inputs: Path) -> None:
    """Save a workload's program, whose kernels are compiled then, and the arrays of a call."""
    workload = find(name)
    data = workload.data()
    arrays = [data.x] if mode == "forward" else [data.x, data.y]
    np.savez(inputs, *arrays)
    program = compiled(workload, data, mode, {"device": "cpu", "threads": 2, "wait": True})
    program.save(path)


def least(path: Path, inputs: Path, rounds: int) -> list[float]:
    """The least wall, CPU and thread seconds of some processes, and those of `load` alone."""
    times = []
    for _ in range(rounds):
        done = subprocess.run(
            [sys.executable, "-c", LOAD, str(path), str(inputs)],
            capture_output=True,
            text=True,
            check=True,
        )
        times.append(tuple(map(float, done.stdout.split())))
    return [min(column) for column in zip(*times, strict=True)]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("workloads", nargs="*", default=["resnet18-b1", "resnet18-b8"])
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    print("| workload | mode | s | CPU s | thread's s | load alone, s | file, MB |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for name in options.workloads:
        workload = find(name)
        for mode in workload.modes:
            with tempfile.TemporaryDirectory() as made:
                path, inputs = Path(made) / "program", Path(made) / "inputs.npz"
                save(name, mode, path, inputs)
                figures = least(path, inputs, options.rounds)
                size = path.stat().st_size / 1e6
            cells = [name, mode, *(f"{figure:.3f}" for figure in figures), f"{size:.1f}"]
            print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
