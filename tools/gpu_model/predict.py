"""Predict what `make gpu-check` measures, before it does: `python -m tools.gpu_model.predict`.

It writes a file per machine, such as benchmarks/predictions/2026-11-29-h200.json. Each prediction
is [expected, least, most]: the model with its constants, with all of them at their fast ends and
with all at their slow ends (`machine.ENDS`). A measured time outside of its range proves the
formula wrong. Times are in microseconds. A kernel's time is that of its first call in a step, in a
graph that repeats this call alone; `code` is the digest of its machine code, by which a comparison
knows which kernels have changed since. The files are complete after each step, which
names its commit; a further run keeps the steps of the newest file, unless asked to predict anew.
"""

from __future__ import annotations

import argparse
import datetime
import json
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.run import PRECISIONS, STREAMS, TUNES
from benchmarks.workload import Workload
from benchmarks.workloads import WORKLOADS
from graphc.runtime.cuda.compile import find_compiler
from tools.gpu_check import bandwidth, goals
from tools.gpu_model.compiled import CompiledPlan, Images, compiled
from tools.gpu_model.machine import ENDS, MACHINES, Machine, ends
from tools.gpu_model.report import short
from tools.gpu_model.step_time import Walked, played, scheduled

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks" / "predictions"
PREDICTED = ("h100", "h200")
STEP_OF_HOST = (25.0, 8.0, 80.0)
"""Microseconds that the host takes per step: twice what it takes here without a driver's work."""
COPIER = (10.0, 5.0, 20.0)
"""GB/s that a thread of the host copies."""
SWITCHED = ("early", "tf32_clusters", "tf32_launches", "wgmma", "wgmma_tma")
"""Variants behind switches, which another process would have to set."""

Range = tuple[float, float, float]


@dataclass(frozen=True)
class Predictor:
    """Predicts for several machines at once, each with its two ends; what was compiled and walked
    serves all."""

    machines: dict[str, tuple[Machine, Machine, Machine]]
    images: Images
    walked: Walked

    def plan(self, workload: Workload, streams: int, precision: str) -> CompiledPlan:
        return compiled(workload, streams, precision, self.images)

    def step(self, plan: CompiledPlan) -> dict[str, dict[str, Any]]:
        """By machine a step's time, its number of nodes and its kernels."""
        alone, found = dict(_alone(plan)), {}
        for name, three in self.machines.items():
            steps = [(played(plan, each, self.walked).nodes, each) for each in three]
            kernels = {
                kernel: {
                    "us": _range([_nodes(part, each, self.walked) for each in three]),
                    "code": _code(plan, kernel),
                }
                for kernel, part in alone.items()
            }
            us = _range([1e6 * scheduled(nodes, each) for nodes, each in steps])
            found[name] = {"us": us, "nodes": len(steps[0][0]), "kernels": kernels}
        return found

    def share(self, plan: CompiledPlan) -> dict[str, dict[str, Range]]:
        """By machine what the stage `bandwidth` measures of a workload: microseconds of a step, and
        the time of a copy of as many bytes over it."""
        found = {}
        for name, three in self.machines.items():
            steps = [_step(plan, each, self.walked) for each in three]
            copies = [_copy(plan.host_bytes, each) for each in three]
            shares = [copied / step for copied, step in zip(copies, steps, strict=True)]
            found[name] = {"us": _range(steps), "share": _range(shares)}
        return found


def _step(plan: CompiledPlan, machine: Machine, walked: Walked) -> float:
    return 1e6 * scheduled(played(plan, machine, walked).nodes, machine)


def _nodes(plan: CompiledPlan, machine: Machine, walked: Walked) -> float:
    return 1e6 * sum(node.seconds for node in played(plan, machine, walked).nodes)


def _range(three: Sequence[float]) -> Range:
    """From what is expected of a machine and at its ends."""
    return three[0], min(three), max(three)


def _copy(nbytes: int, m: Machine) -> float:
    """Microseconds of a copy on the device that reads and writes `nbytes`, one after another."""
    memory = nbytes / m.copy if nbytes > m.l2_keeps else 0.0
    return 1e6 * max(m.node, m.gap + max(memory, nbytes / m.l2))


def _alone(plan: CompiledPlan) -> Iterator[tuple[str, CompiledPlan]]:
    """For each kernel a plan of its first call, and for each joined launch one of its steps."""
    known = set()
    for joined in plan.joined:
        inside = [s for s in plan.steps if joined.first <= s.number < joined.stop]
        yield joined.kernel.name, replace(plan, steps=inside, joined=(joined,))
    for step in plan.steps:
        joins = any(j.first <= step.number < j.stop for j in plan.joined)
        if step.kind == "launch" and not joins and step.kernel not in known:
            known.add(step.kernel)
            yield step.kernel, replace(plan, steps=[step], joined=())


def _code(plan: CompiledPlan, name: str) -> str:
    kernels = {**plan.kernels, **{joined.kernel.name: joined.kernel for joined in plan.joined}}
    return kernels[name].code


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="gpu_model.predict", description=__doc__)
    parser.add_argument("--workloads", default=",".join(goals.CHOSEN), help="those of the goals")
    parser.add_argument("--rows", default=bandwidth.ROWS, type=_numbers, help="of bandwidth's")
    parser.add_argument("--folder", type=Path, default=FOLDER)
    parser.add_argument("--anew", action="store_true", help="predict what is there again")
    options = parser.parse_args(arguments)
    options.folder.mkdir(parents=True, exist_ok=True)
    predict(options.workloads.split(","), options.rows, options.folder, options.anew)


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in text.split(",") if number)


def predict(
    workloads: Sequence[str], rows: Sequence[int], folder: Path, anew: bool = False
) -> None:
    """Write or extend the file of each machine."""
    machines = {name: (MACHINES[name], *ends(MACHINES[name])) for name in PREDICTED}
    predictor = Predictor(machines, Images("sm_90a"), Walked())
    results = {name: begun(three, folder, name) for name, three in machines.items()}

    for result in results.values() if anew else ():
        result["bandwidth"] = {}
        for each in measured(workloads):
            result["steps"].pop(each.name, None)

    def write() -> None:
        for name, each in results.items():
            (folder / f"{each['date']}-{name}.json").write_text(lines(each))

    for workload in bandwidth.chosen(rows):
        title = bandwidth.title(workload)
        if any(title not in each["bandwidth"] for each in results.values()):
            plan = predictor.plan(workload, 1, "float32")
            for name, share in predictor.share(plan).items():
                results[name]["bandwidth"][title] = share
    for each in measured(workloads):
        if all(each.name in result["steps"] for result in results.values()):
            continue
        if why := why_not(each.variant):
            for result in results.values():
                result["not predicted"][each.name] = why
            continue
        began = time.monotonic()
        streams, precision = STREAMS.get(each.variant, 1), PRECISIONS.get(each.variant, "float32")
        plan = predictor.plan(WORKLOADS[each.workload], streams, precision)
        for name, step in predictor.step(plan).items():
            results[name]["steps"][each.name] = {"commit": results[name]["commit"], **step}
        print(f"{each.name}: {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
        write()
    write()


def begun(three: Sequence[Machine], folder: Path, name: str) -> dict[str, Any]:
    """The contents of the file of a machine so far: those of its newest one if compiler and
    constants are the same."""
    from tools.gpu_model.__main__ import commit

    compiler = find_compiler()
    result = {
        "commit": commit(),
        "date": datetime.date.today().isoformat(),
        "compiler": " ".join((compiler.command[-1], compiler.title)),
        "machine": asdict(three[0]),
        "ends": dict(ENDS),
        "host": host(three),
        "bandwidth": {},
        "not predicted": {},
        "steps": {},
    }
    known = sorted(folder.glob(f"*-{name}.json"))
    before = json.loads(known[-1].read_text()) if known else {}
    same = all(before.get(key) == short(result[key]) for key in ("compiler", "machine", "ends"))
    kept = ("bandwidth", "not predicted", "steps")
    return {**result, **{key: before[key] for key in kept}} if same else result


def measured(workloads: Sequence[str]) -> list[goals.Measurement]:
    """graphc's measurements of the stage `goals`."""
    return [each for each in goals.decisive(workloads) if each.peer == "graphc"]


def why_not(variant: str) -> str:
    """Why a variant is not predicted; "" if it is."""
    if variant in TUNES:
        return "its kernels are chosen by measurement"
    return "it needs a switch" if variant in SWITCHED else ""


def host(three: Sequence[Machine]) -> dict[str, Any]:
    """What the stage `host` measures."""
    from graphc.runtime.cuda.staging import COPIERS

    rates = {
        str(count): tuple(
            min(count * copier, m.host / 1e9)
            for copier, m in zip(COPIER, (three[0], three[2], three[1]), strict=True)
        )
        for count in range(1, COPIERS + 1)
    }
    return {"us per step": STEP_OF_HOST, "GB/s of inputs": rates}


def lines(result: dict[str, Any]) -> str:
    """JSON with a line per kernel and numbers of four digits."""

    def rows(found: dict[str, Any], indent: str) -> str:
        each = (f"{indent}{json.dumps(name)}: {json.dumps(short(x))}" for name, x in found.items())
        return "{\n" + ",\n".join(each) + f"\n{indent[1:]}}}" if found else "{}"

    steps = []
    for name, step in result["steps"].items():
        told = {"commit": step["commit"], "us": short(step["us"]), "nodes": step["nodes"]}
        head = json.dumps(told)[1:-1]
        steps.append(f'  {json.dumps(name)}: {{{head}, "kernels": {rows(step["kernels"], "   ")}}}')
    parts = {name: rows(x, "  ") for name, x in result.items() if isinstance(x, dict)}
    parts |= {name: json.dumps(x) for name, x in result.items() if not isinstance(x, dict)}
    parts["steps"] = "{\n" + ",\n".join(steps) + "\n }"
    return "{\n" + ",\n".join(f" {json.dumps(name)}: {parts[name]}" for name in result) + "\n}\n"


if __name__ == "__main__":
    main()
