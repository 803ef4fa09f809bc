"""Soak and fault checks of the whole project: `python -m tools.soak`, or `make soak`.

Each check is a function in a process of its own with a limit of time, so a crash or a hang is found
too. It is given an amount of work and an empty folder, and returns figures or raises an exception.
The results go to build/soak.json, and as a table to standard output.

    python -m tools.soak [--quick] [--only NAME ...] [--seconds 1200] [--out FILE]

A check may take its share of --seconds; with --quick all of them take a minute or two.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tools.soak.checks import CHECKS, Check

ROOT = Path(__file__).resolve().parents[2]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the checks, and return how many failed."""
    parser = argparse.ArgumentParser(prog="soak", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="the amounts of the tests")
    parser.add_argument("--only", nargs="*", metavar="NAME", help="only these checks")
    parser.add_argument("--seconds", type=float, default=1800.0, help="time for all checks")
    parser.add_argument("--out", type=Path, default=Path("build/soak.json"))
    options = parser.parse_args(arguments)
    chosen = [c for c in CHECKS if not options.only or c.name in options.only]
    end = time.monotonic() + options.seconds
    results: list[dict[str, Any]] = []
    for check in chosen:
        amount = check.quick if options.quick else check.amount
        left = end - time.monotonic()
        if left < 1:
            result: dict[str, Any] = {"check": check.name, "failed": "no time was left"}
        else:
            result = run(check, amount, min(left, check.seconds))
        results.append(result)
        said = result.get("failed") or ", ".join(f"{k} {v}" for k, v in result["found"].items())
        print(f"{check.name}: {said} ({result.get('seconds', 0)} s)", flush=True)
        write(options.out, results)
    print("\n" + table(results))
    return sum("failed" in result for result in results)


def run(
    check: Check, amount: int, seconds: float, variables: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Run a check in a process of its own, and return its figures or why it failed.

    The process has the environment `variables`, by default `environment()`.
    """
    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile("w+") as said:
        command = [sys.executable, "-m", "tools.soak.child", check.name, str(amount), folder]
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=environment() if variables is None else variables,
            stdout=said,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            status: int | None = process.wait(seconds)
        except subprocess.TimeoutExpired:
            status = None
            process.send_signal(signal.SIGABRT)  # which shows the stacks of its threads
            time.sleep(0.5)
        finally:
            end_group(process)
        said.seek(0)
        text = said.read()
    result: dict[str, Any] = {"check": check.name, "amount": amount}
    result["seconds"] = round(time.monotonic() - begin, 1)
    lines = text.strip().splitlines()
    if status == 0 and lines:
        return {**result, "found": json.loads(lines[-1])}
    why = f"hung for {seconds:.0f} s" if status is None else f"status {status}"
    return {**result, "failed": f"{why}: {text[-3000:].strip()}"}


def end_group(process: subprocess.Popen[Any]) -> None:
    """Kill a process with all that it has started, and wait for it."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()


def environment() -> dict[str, str]:
    """Return the environment of checks: that of this process without settings of graphc, but for
    the place of its cache."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("GRAPHC_")}
    if "GRAPHC_CACHE_DIR" in os.environ:
        kept["GRAPHC_CACHE_DIR"] = os.environ["GRAPHC_CACHE_DIR"]
    return {**kept, "PYTHONFAULTHANDLER": "1"}


def write(path: Path, results: Sequence[dict[str, Any]]) -> None:
    """Write the results so far, with the machine that they are of."""
    path.parent.mkdir(parents=True, exist_ok=True)
    whole = {"machine": machine(), "python": platform.python_version(), "results": results}
    path.write_text(json.dumps(whole, indent=1) + "\n")


def machine() -> str:
    """Return the name of the CPU and the number of cores."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f"{names[0] if names else platform.processor()}, {os.cpu_count()} cores"


def table(results: Sequence[dict[str, Any]]) -> str:
    """Return the results as a table in Markdown."""
    about = {check.name: check.about for check in CHECKS}
    rows = ["| check | what is found | seconds |", "| --- | --- | --- |"]
    for result in results:
        found = ", ".join(f"{k} {v}" for k, v in result.get("found", {}).items())
        said = found if "found" in result else f"FAILED: {result['failed'].splitlines()[0]}"
        rows.append(f"| {about[result['check']]} | {said} | {result.get('seconds', '')} |")
    return "\n".join(rows)


if __name__ == "__main__":
    sys.exit(main())
