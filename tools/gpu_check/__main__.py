"""`python -m tools.gpu_check --out results.json`: see the package."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tools.gpu_check import machine
from tools.gpu_check.goals import CHOSEN
from tools.gpu_check.process import ROOT, Countdown
from tools.gpu_check.report import CheckReport
from tools.gpu_check.stages import SIMULATED, STAGES, Kit, play

CUBINS = ROOT / "build" / "cubins"


def main(arguments: Sequence[str] | None = None) -> None:
    options = parser().parse_args(arguments)
    clock = Countdown(60 * options.minutes * (SIMULATED if options.device == "sim" else 1))
    if options.cubins.is_dir():
        os.environ["GRAPHC_CUBINS"] = str(options.cubins.absolute())
    failure = ""
    if options.wheels:
        failure = machine.install_missing(options.wheels, ROOT / "build" / "gpu-packages")
    report = CheckReport(options.out, machine.about())
    if failure:
        report.add_stage("install", {"failure": failure})
    kit = Kit(options.device, report, clock, tuple(options.workloads.split(",")))
    wanted = options.only.split(",") if options.only else [s.name for s in STAGES]
    play(kit, [s for s in STAGES if s.name in wanted])
    print("\n".join(summary(report.results)))
    print(report.path)
    sys.exit(0 if passed(report.results) else 1)


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="gpu_check",
        description="Check and measure graphc on a GPU. Nothing is downloaded. Ends with status 1 "
        "if a check failed.",
    )
    parser.add_argument("--wheels", type=Path, help="a folder of wheels for what is missing")
    parser.add_argument(
        "--cubins",
        type=Path,
        default=CUBINS,
        help="kernels that were compiled before, if it exists",
    )
    parser.add_argument("--device", default="cuda", help="cuda or cuda:N; sim tries the kit itself")
    parser.add_argument("--out", type=Path, help="the JSON file; goes on with one of this commit")
    parser.add_argument("--minutes", type=float, default=6.5, help="all stages together")
    parser.add_argument("--only", help=f"of {','.join(s.name for s in STAGES)}")
    parser.add_argument("--workloads", default=",".join(CHOSEN), help="those that are measured")
    return parser


def passed(results: dict[str, Any]) -> bool:
    """Whether no stage and no measurement of graphc failed. Those of PyTorch may."""
    lines = [b for b in results["benchmarks"] if " graphc:" in b["name"]]
    return not any("failure" in found for found in (*results["stages"].values(), *lines))


def summary(results: dict[str, Any]) -> list[str]:
    lines = [f"gpus {results['machine']['gpus']}"]
    for name, found in results["stages"].items():
        verdict = "FAILED" if "failure" in found else found.get("skipped", "done")
        counts = {k: v for k, v in found.items() if k in ("passed", "failed", "skipped", "seconds")}
        lines.append(f"{name}: {verdict} {counts}")
    for line in results["benchmarks"]:
        what = line.get("failure", line.get("not applicable", "")).splitlines()[-1:]
        what = what or [f"{line.get('median_ms')} ms"]
        lines.append(f"{line['name']}: {what[0][:120]}")
    fitted = results["stages"].get("calibration", {}).get("constants", {})
    lines += [f"fitted {name}: {value:.4g}" for name, value in fitted.items()]
    told = results.get("predicted", {})
    lines += told.get("lines", [told["missing"]] if told else [])
    return [*lines, *results.get("comparison", ())]


if __name__ == "__main__":
    main()
