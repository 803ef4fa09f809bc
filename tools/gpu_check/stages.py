"""The stages of a check in order of value, each with a time limit."""

from __future__ import annotations

import json
import re
import shutil
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tools.gpu_check import benchmarks, counters, goals, machine, predicted
from tools.gpu_check.comparison import compared
from tools.gpu_check.process import ENDED, Countdown, Done, python
from tools.gpu_check.report import CheckReport

LEAST_SECONDS = 5.0
"""The least remaining seconds with which a stage starts."""
TESTS = ("tests/cuda/test_gpu.py", "tests/cuda/test_gpu_torch.py")
SIMULATED = 10
"""The factor by which a simulated GPU's stages get more time."""


@dataclass(frozen=True)
class Kit:
    """The context of all stages: the device, the report, the time, the workloads."""

    device: str
    report: CheckReport
    clock: Countdown
    workloads: tuple[str, ...] = goals.CHOSEN


@dataclass(frozen=True)
class Stage:
    """A stage; `run(kit, seconds)` returns its result, with a `failure` if something was wrong."""

    name: str
    seconds: float
    """Its time limit."""
    run: Callable[[Kit, float], dict[str, Any]]


def play(kit: Kit, stages: Sequence[Stage]) -> None:
    """Run the stages one after another and write the report after each, whatever happens. A stage
    that the total time cuts short is left to the next run."""
    for stage in stages:
        if kit.report.stage(stage.name) is not None:
            continue
        limit = stage.seconds * (SIMULATED if kit.device == "sim" else 1)
        seconds = min(limit, kit.clock.left())
        if seconds < LEAST_SECONDS:
            kit.report.add_stage(stage.name, {"skipped": f"{max(seconds, 0):.0f} s were left"})
            continue
        before = kit.clock.left()
        try:
            found = stage.run(kit, seconds)
        except Exception:
            found = {"failure": traceback.format_exc()}
        if seconds < limit and found.get("failure", "").startswith(ENDED):
            found = {"skipped": found["failure"]}
        kit.report.add_stage(stage.name, {"seconds": round(before - kit.clock.left(), 1), **found})


def smoke(kit: Kit, seconds: float) -> dict[str, Any]:
    """Launches, copies, streams, graphs, and the operand layouts of tensor cores."""
    done = python(["-m", "tools.gpu_check.smoke", kit.device], seconds)
    try:
        checks = json.loads(done.out.splitlines()[-1])
    except (IndexError, ValueError):
        return {"failure": done.failure or "it printed nothing"}
    wrong = [f"{name}: {text}" for name, text in checks.items() if text != "ok"]
    failure = "\n".join(wrong) or done.failure
    return {"checks": checks, **({"failure": failure} if failure else {})}


def ops(kit: Kit, seconds: float) -> dict[str, Any]:
    """Every core op against its reference."""
    return run_tests(kit.device, "an_op_means", seconds)


def models(kit: Kit, seconds: float) -> dict[str, Any]:
    """Training of small models: PyTorch and graphc, and equal bits for every number of streams."""
    return run_tests(kit.device, "not an_op_means", seconds)


def run_tests(device: str, which: str, seconds: float) -> dict[str, Any]:
    """Counts of the tests, and the text of failed ones. Warnings of other packages do not fail
    here, unlike in the suite."""
    chosen = ["-k", f"sim and {which}"] if device == "sim" else ["-m", "gpu", "-k", which]
    command = ["-m", "pytest", "-v", "-rfE", "-W", "default", "-p", "no:cacheprovider"]
    done = python([*command, "--tb=short", *chosen, *TESTS], seconds)
    verdicts = re.findall(r"^\S+::.* (PASSED|FAILED|SKIPPED|ERROR)\b", done.out, re.MULTILINE)
    counts = {v.lower(): verdicts.count(v) for v in dict.fromkeys(verdicts)}
    failure = done.failure
    if not failure and not counts.get("passed"):
        failure = f"no test passed: {done.out[-1000:]}"
    return {**counts, **({"failure": failure} if failure else {})}


def kernels(kit: Kit, seconds: float) -> dict[str, Any]:
    """Registers, spills and shared memory of the kernels of the models' training steps."""
    done = python(["-m", "tests.cuda.steps", kit.device], seconds)
    if done.failure:
        return {"failure": done.failure}
    usage = json.loads(done.out.splitlines()[-1])
    return {"spilled": [symbol for symbol, (_, spilled, _) in usage.items() if spilled], **usage}


def module_stage(module: str) -> Callable[[Kit, float], dict[str, Any]]:
    """The stage of a module whose last line of output is JSON."""

    def listen(kit: Kit, seconds: float) -> dict[str, Any]:
        done = python(["-m", f"tools.gpu_check.{module}", kit.device], seconds)
        if done.failure:
            return {"failure": done.failure}
        found: dict[str, Any] = json.loads(done.out.splitlines()[-1])
        return found

    return listen


def sanitizer(name: str) -> Callable[[Kit, float], dict[str, Any]]:
    """The stage in which a tool of compute-sanitizer checks two training steps of each model."""

    def watch(kit: Kit, seconds: float) -> dict[str, Any]:
        tool = shutil.which("compute-sanitizer")
        if tool is None:
            return {"missing": "compute-sanitizer is not on the PATH"}
        watched = [tool, "--tool", name, "--error-exitcode", "7"]
        if name == "memcheck":  # PyCUDA and PyTorch ask for things that are not there, and go on
            watched += ["--report-api-errors", "no"]
        done = python(["-m", "tests.cuda.steps", kit.device], seconds, before=watched)
        return {"summary": summary(done), **({"failure": done.failure} if done.failure else {})}

    return watch


def summary(done: Done) -> list[str]:
    lines = (done.out + done.err).splitlines()
    found = [line for line in lines if "ERROR SUMMARY" in line or "RACECHECK SUMMARY" in line]
    return found or lines[-3:]


def measuring(
    select: Callable[[Sequence[str]], Sequence[goals.Measurement]],
) -> Callable[[Kit, float], dict[str, Any]]:
    """The stage of the benchmarks that `select` chooses from the workloads, as many as fit the
    time, and the comparisons with the goals and the predictions so far."""

    def measure(kit: Kit, seconds: float) -> dict[str, Any]:
        before, report = machine.clocks(), kit.report
        each = select(kit.workloads)
        left = benchmarks.take_all(report, Countdown(seconds), kit.device, each)
        report.results["comparison"] = compared(report.results["benchmarks"], kit.workloads)
        report.results["predicted"] = predicted.report(report.results)
        found = {"clocks before": before, "clocks after": machine.clocks()}
        return {**found, **({"skipped": f"{left} measurements: no time was left"} if left else {})}

    return measure


def furthest(kit: Kit, seconds: float) -> dict[str, Any]:
    """Counters of the kernels that are furthest from their predictions."""
    worst = predicted.report(kit.report.results).get("worst", ())
    return counters.read(worst, kit.device, Countdown(seconds), kit.workloads)


STAGES = (
    Stage("smoke", 25, smoke),
    Stage("ops", 100, ops),
    Stage("models", 60, models),
    Stage("calibration", 20, module_stage("calibration")),
    Stage("memcheck", 40, sanitizer("memcheck")),
    Stage("racecheck", 50, sanitizer("racecheck")),
    Stage("bandwidth", 40, module_stage("bandwidth")),
    Stage("host", 20, module_stage("host")),
    Stage("goals", 240, measuring(goals.decisive)),
    Stage("counters", 60, furthest),
    Stage("binding", 15, module_stage("binding")),
    Stage("kernels", 45, kernels),
    Stage("synccheck", 60, sanitizer("synccheck")),
    Stage("initcheck", 60, sanitizer("initcheck")),
    Stage("benchmarks", 3600, measuring(goals.measurements)),
)
