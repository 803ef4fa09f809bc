"""The command line, the clock and the JSON line that all frameworks share."""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.workload import MODES, Workload
from benchmarks.workloads import WORKLOADS, find

CHUNK_SECONDS = 0.005
"""Steps are timed in chunks that last at least this long, so that the clock does not count."""


@dataclass(frozen=True)
class Case:
    """One measurement: a workload, "train" or "forward", on so many threads."""

    workload: Workload
    mode: str
    threads: int
    variant: str
    device: str


@dataclass(frozen=True)
class GpuStep:
    """A step of which a GPU can say what it takes by itself: `alone(repeats, rounds)` gives the
    microseconds of a step in each round, by events around `repeats` of them, one behind another.
    Their inputs lie on the GPU and nothing is fetched."""

    step: Callable[[], Any]
    alone: Callable[[int, int], list[float]]
    kernels: Callable[[], dict[str, Any]] = dict
    """What is known of its kernels, each alone, by their names."""

    def __call__(self) -> Any:
        return self.step()


@dataclass(frozen=True)
class TieredStep:
    """A step that takes longer until all of its kernels are compiled, which `wait()` waits for."""

    step: Callable[[], Any]
    wait: Callable[[], None]

    def __call__(self) -> Any:
        return self.step()


def main(
    peer: str,
    variants: Sequence[str],
    prepare: Callable[[Case], Callable[[], Any]],
    arguments: Sequence[str] | None = None,
) -> None:
    """Measure what the command line asks for and print one JSON line.

    `prepare(case)` builds the model and returns a step: called without arguments it does one
    training step and gives the loss, or one forward pass and gives the output. SystemExit for a
    mode that the workload does not have.
    """
    rows = "\n".join(f"  {name:16} {', '.join(w.modes)}" for name, w in WORKLOADS.items())
    parser = argparse.ArgumentParser(
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=f"workloads and their modes:\n{rows}",
    )
    parser.add_argument("--workload", required=True, help="one of those below")
    parser.add_argument("--mode", choices=MODES, default="train")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--variant", choices=variants, default=variants[0])
    parser.add_argument("--seconds", type=float, default=2.0, help="how long to measure")
    parser.add_argument("--json", action="store_true", help="the output is always one JSON line")
    options = parser.parse_args(arguments)
    case = Case(
        find(options.workload), options.mode, options.threads, options.variant, options.device
    )
    if case.mode not in case.workload.modes:
        raise SystemExit(f"{case.workload.name} has no mode {case.mode!r}")
    for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ[variable] = str(case.threads)
    if case.threads == 1 and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    print(json.dumps({"peer": peer, "variant": case.variant, **_measured(case, prepare, options)}))


def _measured(
    case: Case, prepare: Callable[[Case], Callable[[], Any]], options: argparse.Namespace
) -> dict[str, Any]:
    begin = time.perf_counter()
    step = prepare(case)
    results = [step()]
    first_call = time.perf_counter() - begin
    if np.ndim(results[0]) == 0:
        results += [step() for _ in range(4)]
        check = [float(loss) for loss in results]
    else:
        check = [float(value) for value in np.asarray(results[0]).ravel()[:5]]
    if isinstance(step, TieredStep):
        step.wait()
        step = step.step
    times, work, waited = _times(step, options.seconds)
    return {
        "workload": case.workload.name,
        "mode": case.mode,
        "threads": case.threads,
        "median_ms": round(1e3 * statistics.median(times), 4),
        "p10": round(1e3 * times[len(times) // 10], 4),
        "p90": round(1e3 * times[len(times) * 9 // 10], 4),
        "gpu_ms": _gpu_alone(step, options.seconds),
        "cpu_ms": round(1e3 * work, 4),
        "first_call_s": round(first_call, 3),
        "peak_rss_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
        "gflop_fwd": round(case.workload.gflop, 5),
        "check": [round(value, 6) for value in check],
        "noise": round(waited / case.threads, 3),
        **({"kernels": step.kernels()} if isinstance(step, GpuStep) else {}),
    }


def _times(
    step: Callable[[], Any], seconds: float, least: int = 7
) -> tuple[list[float], float, float]:
    """Seconds per step of each chunk, ascending, after a quarter of the time to warm up; the CPU
    time of a step, all threads together, over all chunks, as the clock of other threads may be
    some ms behind; and the seconds per second that our threads waited for cores that others had."""
    begin = time.perf_counter()
    warm = min(0.5, seconds / 4)
    while time.perf_counter() - begin < warm:
        step()
    single = time.perf_counter()
    step()
    single = time.perf_counter() - single
    chunk = max(1, int(CHUNK_SECONDS / max(single, 1e-7)))
    times: list[float] = []
    begin, worked, waited = time.perf_counter(), time.process_time(), _waited()
    while time.perf_counter() - begin < seconds or len(times) < least:
        start = time.perf_counter()
        for _ in range(chunk):
            step()
        times.append((time.perf_counter() - start) / chunk)
    work = (time.process_time() - worked) / (len(times) * chunk)
    return sorted(times), work, (_waited() - waited) / (time.perf_counter() - begin)


def _gpu_alone(step: Callable[[], Any], seconds: float, rounds: int = 5) -> float | None:
    """Milliseconds of a step on a GPU whose inputs lie there; None on a CPU."""
    if not isinstance(step, GpuStep):
        return None
    (once,) = step.alone(1, 1)
    repeats = max(1, min(1000, int(1e6 * seconds / rounds / max(once, 1.0))))
    return round(statistics.median(step.alone(repeats, rounds)) / 1e3, 5)


def _waited() -> float:
    """Seconds that the threads of this process could run but had no core; 0 where the system
    does not say."""
    files = Path("/proc/self/task").glob("*/schedstat")
    return sum(int(file.read_text().split()[1]) for file in files) / 1e9
