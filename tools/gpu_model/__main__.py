"""`python -m tools.gpu_model lenet-b100 --precision tf32`: how fast a step should be on a GPU.

    python -m tools.gpu_model mlp4x256-b16 resnet50-b32 --json now.json --table now.md
    python -m tools.gpu_model lenet-b100 --versus before.json
    python -m tools.gpu_model after.json --versus before.json
    python -m tools.gpu_model lenet-b100 --results gpu.json

The third runs nothing: two files, kernel by kernel. The last takes the constants that `make
gpu-check` has fitted, and shows its measured steps. Without names it lists the workloads. It ends
with status 1 if a workload does not compile. Needed are NVRTC or nvcc, and nvdisasm (`pip install
nvidia-cuda-nvdisasm`).
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from graphc.base.errors import CompileError, GraphError, PlanError
from tools.gpu_model.compiled import Images, compiled
from tools.gpu_model.figures import figures
from tools.gpu_model.fit import fitted
from tools.gpu_model.machine import (
    FORMULA,
    MACHINES,
    SOURCES,
    Machine,
    changed,
    machine_called,
)
from tools.gpu_model.report import report, short
from tools.gpu_model.sass import NoDisassemblerError
from tools.gpu_model.versus import versus
from tools.gpu_model.workloads import WORKLOADS, find, streams_of


def main(arguments: Sequence[str] | None = None) -> None:
    options = parser().parse_args(arguments)
    if not options.workloads:
        print("\n".join(WORKLOADS))
        return
    try:
        measured = json.loads(options.results.read_text()) if options.results else None
        machine = fitted_to(measured) if measured else MACHINES[options.machine]
        results = gathered(options, changed(machine, options.set))
    except (ValueError, NoDisassemblerError) as error:
        raise SystemExit(str(error)) from None
    if measured:
        results["measured"] = measured_steps(measured)
    before = json.loads(options.versus.read_text()) if options.versus else None
    text = versus(before, results) if before else report(results, options.kernels)
    if options.table:
        options.table.write_text(text)
    else:
        print(text)
    sys.exit(1 if results["failed"] else 0)


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="gpu_model", description="A model of a GPU: how fast steps should be. Nothing runs."
    )
    parser.add_argument("workloads", nargs="*", help="names, all, or JSON files of earlier runs")
    parser.add_argument("--machine", default="h200", choices=MACHINES)
    parser.add_argument("--precision", default="float32", help="as graphc.compile takes it")
    parser.add_argument("--streams", type=int, help="in place of a workload's own stream counts")
    parser.add_argument("--json", type=Path, help="where to write all figures")
    parser.add_argument("--table", type=Path, help="where to write the tables, not printed then")
    parser.add_argument("--versus", type=Path, help="a JSON file of before, to compare with")
    parser.add_argument("--results", type=Path, help="a file of gpu-check, with fitted constants")
    parser.add_argument("--set", action="append", default=[], help="NAME=VALUE of a constant")
    parser.add_argument("--kernels", type=int, default=10, help="rows of a workload; 0: steps only")
    return parser


def gathered(options: argparse.Namespace, machine: Machine) -> dict[str, Any]:
    """The contents of the JSON file: earlier files, and the workloads to run."""
    files = [Path(name) for name in options.workloads if name.endswith(".json")]
    wanted = [name for name in options.workloads if not name.endswith(".json")]
    names = dict.fromkeys(n for w in wanted for n in (WORKLOADS if w == "all" else [find(w).name]))
    results: dict[str, Any] = {"workloads": {}, "failed": {}}
    for file in files:
        read = json.loads(file.read_text())
        results = {**results, **read, "workloads": {**results["workloads"], **read["workloads"]}}
    if not names:
        return results
    results |= {
        "commit": commit(),
        "arch": machine.arch,
        "precision": options.precision,
        "machine": asdict(machine),
        "sources": dict(SOURCES),
        "formula": FORMULA,
    }
    images = Images(machine.arch)
    for name in names:
        for streams in [options.streams] if options.streams else streams_of(name):
            model(name, streams, options.precision, machine, images, results)
            if options.json:  # a long run may be ended
                options.json.write_text(compact(results))
    return results


def fitted_to(measured: Mapping[str, Any]) -> Machine:
    """The machine of a check's GPU with the constants that were fitted there. Raises ValueError if
    there are none."""
    found = measured["stages"].get("calibration", {}).get("constants")
    if not found:
        raise ValueError("--results: the file has no fitted constants (stage calibration)")
    return fitted(machine_called(measured["machine"]["gpus"][0]), found)


def measured_steps(measured: Mapping[str, Any]) -> dict[str, float]:
    """Microseconds of a check's steps by the GPU alone."""
    lines = (line for line in measured["benchmarks"] if line.get("gpu_ms"))
    return {line["name"]: 1e3 * line["gpu_ms"] for line in lines}


def model(
    name: str,
    streams: int,
    precision: str,
    machine: Machine,
    images: Images,
    results: dict[str, Any],
) -> None:
    """Add the figures of a workload to the results, or why it does not compile."""
    label, began = f"{name}-streams{streams}" if streams > 1 else name, time.monotonic()
    try:
        made = compiled(find(name), streams, precision, images)
    except (GraphError, CompileError, PlanError) as error:
        results["failed"][label] = str(error).splitlines()[0]
        print(f"{label}: {results['failed'][label]}", file=sys.stderr, flush=True)
        return
    results["workloads"][label] = found = figures(made, machine, precision)
    us, took = found["step"]["seconds"] * 1e6, time.monotonic() - began
    print(f"{label}: {us:.1f} us, in {took:.0f} s", file=sys.stderr, flush=True)


def compact(results: Mapping[str, Any]) -> str:
    """JSON with one line per kernel, and numbers of four digits."""
    parts = []
    for name, w in results["workloads"].items():
        kernels = ",\n".join(f"  {json.dumps(short(kernel))}" for kernel in w["kernels"])
        step = json.dumps(short(w["step"]))
        parts.append(f' {json.dumps(name)}: {{"step": {step}, "kernels": [\n{kernels}\n ]}}')
    rest = {key: value for key, value in results.items() if key != "workloads"}
    head = "".join(f" {json.dumps(key)}: {json.dumps(value)},\n" for key, value in rest.items())
    return "{\n" + head + ' "workloads": {\n' + ",\n".join(parts) + "\n }\n}\n"


def commit() -> str:
    """That of the checkout, as git describes it."""
    command = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty"]
    done = subprocess.run([*command, "--abbrev=10"], capture_output=True, text=True)
    return done.stdout.strip() or "unknown"


if __name__ == "__main__":
    main()
