"""Time first calls, of graphc and of JAX in turns: `python -m benchmarks.first_call --jax PYTHON`.

A first call begins with NumPy arrays, after imports, and ends with the loss of one training step.
Each is made in a process of its own. graphc's cache then holds what a machine builds once (the
player and the library of prebuilt kernels) and nothing else; JAX's compilation cache is off, as it
is by default. `PYTHON` is an interpreter that has JAX, such as that of a virtual environment.

A scenario is the name of a workload, or one of several programs in one process: `mlp-hidden` and
`lstm-hidden` are training steps of five hidden sizes; `mlp-batches` is a model of one named axis
called with eight batch sizes. The table gives the least of the rounds, and the largest in
parentheses: seconds on the clock; CPU seconds of the process; and those of the thread that calls,
which are mostly Python's. JAX's compiler is a library, whose time is the process's. graphc's
compilers run beside later steps and do not count; with `--wait` they do.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.families.recurrent import Recurrent
from benchmarks.families.stack import Layer, Model, Stack
from benchmarks.measure import Case
from benchmarks.workload import Data, Workload
from benchmarks.workloads import find

PROGRAMS = "mlp-small-b20", "mnist-cnn-b100", "lstm-h64-b256", "gpt4-b8", "resnet18-b8"
HIDDEN = 24, 40, 56, 72, 88
BATCHES = 1, 2, 4, 8, 16, 32, 64, 128
SCENARIOS = (*PROGRAMS, "mlp-hidden", "lstm-hidden", "mlp-batches")
CLOCKS = "wall", "cpu", "caller"
"""What a process reports of its first call, in seconds."""


def mlp(hidden: int) -> Workload:
    """mlp-small-b20 with another hidden size."""
    model = Model((Layer("l1", (hidden, 784)), Layer("l2", (10, hidden))), (784,))
    return Stack(f"mlp-h{hidden}", 20, model=model)


def lstm(hidden: int) -> Workload:
    """Two recurrent layers of a hidden size."""
    return Recurrent(f"lstm-h{hidden}", 32, hidden=hidden)


def workloads(scenario: str) -> list[Workload]:
    """The workloads whose training steps a scenario makes, one after the other."""
    if scenario == "mlp-hidden":
        return [mlp(hidden) for hidden in HIDDEN]
    if scenario == "lstm-hidden":
        return [lstm(hidden) for hidden in HIDDEN]
    return [find(scenario)]


class Given:
    """A workload whose data were made before the clock starts."""

    def __init__(self, workload: Workload) -> None:
        self._workload, self._data = workload, workload.data()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._workload, name)

    def data(self) -> Data:
        return self._data


def first_losses(given: Sequence[Given], framework: str, threads: int) -> list[Any]:
    """The first losses of training steps."""
    if framework == "jax":
        from benchmarks.peer_jax import prepare
    else:
        from benchmarks.run import prepare
    variant = "nhwc" if framework == "jax" else "default"
    cases = (Case(w, "train", threads, variant, "cpu") for w in given)  # type: ignore[arg-type]
    return [np.asarray(prepare(case)()).tolist() for case in cases]


def batches(framework: str, threads: int) -> Callable[[], list[Any]]:
    """What calls one model with all batch sizes."""
    data = mlp(32).data()
    arrays = [np.resize(data.x, (n, 784)) for n in BATCHES]
    parameters = list(data.parameters.values())
    if framework == "jax":
        import jax

        def forward(parameters: Any, x: Any) -> Any:
            w1, b1, w2, b2 = parameters
            return jax.nn.relu(x @ w1.T + b1) @ w2.T + b2

        call = jax.jit(forward)
        return lambda: [float(np.sum(call(parameters, x))) for x in arrays]
    import graphc
    from benchmarks.run import Model as Wrapped

    def several() -> list[Any]:
        model = Wrapped(mlp(32), data)
        program = graphc.compile(model, graphc.spec(("batch", 784)), threads=threads, streams=1)
        return [float(np.sum(program(x))) for x in arrays]

    return several


def measured(scenario: str, framework: str, threads: int) -> dict[str, Any]:
    """The clocks of a scenario in this process, and the losses."""
    if scenario == "mlp-batches":
        call = batches(framework, threads)
    else:
        given = [Given(workload) for workload in workloads(scenario)]

        def call() -> list[Any]:
            return first_losses(given, framework, threads)

    if framework == "jax":
        import jax

        jax.devices()
    else:
        import benchmarks.run  # noqa: F401
    before = time.perf_counter(), _cpu_seconds(), time.thread_time()
    losses = call()
    after = time.perf_counter(), _cpu_seconds(), time.thread_time()
    spent = [b - a for a, b in zip(before, after, strict=True)]
    return {**dict(zip(CLOCKS, spent, strict=True)), "losses": losses}


def _cpu_seconds() -> float:
    """Of this process and of children that have ended."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def in_process(
    interpreter: str, scenario: str, framework: str, threads: int, environment: Mapping[str, str]
) -> dict[str, Any]:
    """What `measured` returns in a new process."""
    command = [interpreter, "-m", "benchmarks.first_call", "--only", scenario]
    command += ["--framework", framework, "--threads", str(threads)]
    own = {"JAX_PLATFORMS": "cpu", "NPROC": str(threads), "GRAPHC_NUM_THREADS": str(threads)}
    own |= {"JAX_ENABLE_COMPILATION_CACHE": "0"}
    done = subprocess.run(
        command, env={**os.environ, **own, **environment}, capture_output=True, text=True
    )
    if done.returncode:
        raise SystemExit(f"{framework}, {scenario}: {done.stderr}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def prepared(folder: Path) -> Path:
    """A cache with what a machine builds once."""
    from graphc.runtime.compilers.player_library import player_library
    from graphc.runtime.compilers.prebuilt_library import build_library

    os.environ["GRAPHC_CACHE_DIR"] = str(folder / "machine")
    build_library()
    player_library()
    return folder / "machine"


def measurements(
    scenario: str, machine: Path, options: argparse.Namespace
) -> dict[str, list[dict[str, Any]]]:
    """The measurements of a scenario by framework; frameworks take turns."""
    interpreters = {"graphc": sys.executable} | ({"jax": options.jax} if options.jax else {})
    found: dict[str, list[dict[str, Any]]] = {framework: [] for framework in interpreters}
    for number in range(options.rounds):
        for framework, python in interpreters.items():
            cache = machine.parent / f"{scenario}-{number}"
            shutil.copytree(machine, cache)
            tier = "1" if options.wait else ""
            environment = {"GRAPHC_CACHE_DIR": str(cache), "GRAPHC_TIER": tier}
            one = in_process(python, scenario, framework, options.threads, environment)
            found[framework].append(one)
            shutil.rmtree(cache, ignore_errors=True)
    return found


def lines(scenario: str, found: Mapping[str, Sequence[Mapping[str, Any]]]) -> Iterator[str]:
    """The rows of a table in Markdown."""
    least = {f: min(one["wall"] for one in many) for f, many in found.items()}
    for framework, many in found.items():
        clocks = []
        for clock in CLOCKS:
            numbers = [one[clock] for one in many]
            clocks.append(f"{min(numbers):.2f} ({max(numbers):.2f})")
        compared = framework != "jax" and "jax" in least
        ratio = f"{least[framework] / least['jax']:.2f}" if compared else ""
        yield f"| {' | '.join([scenario, framework, *clocks, ratio])} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--scenarios", nargs="+", choices=SCENARIOS, default=SCENARIOS)
    parser.add_argument("--jax", metavar="PYTHON", help="an interpreter that has JAX")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--wait", action="store_true", help="for graphc's compiled kernels")
    parser.add_argument("--only", choices=SCENARIOS, help="one scenario in this process")
    parser.add_argument("--framework", choices=("graphc", "jax"), default="graphc")
    options = parser.parse_args()
    if options.only:
        print(json.dumps(measured(options.only, options.framework, options.threads)))
        sys.stdout.flush()
        os._exit(0)  # no need to wait for compilers
    print("| first call | framework | wall | CPU | calling thread | wall over JAX's |")
    print("| --- | --- | --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory() as folder:
        machine = prepared(Path(folder))
        for scenario in options.scenarios:
            found = measurements(scenario, machine, options)
            print("\n".join(lines(scenario, found)), flush=True)


if __name__ == "__main__":
    main()
