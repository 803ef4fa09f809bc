"""What graphc does on this machine's GPU, as one JSON file: `make gpu-check`.

Runs the tests that need a GPU, training steps under compute-sanitizer where that is installed, and
the benchmarks beside PyTorch on the same GPU where that is. Nothing is downloaded: `--wheels` names
a folder of wheels from which missing packages are installed, into a folder of their own. Ends with
status 1 if a test failed or a check found something. Takes less than ten minutes.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
NEEDED = ("numpy", "networkx", "pytest", "pycuda", "cuda-bindings", "nvidia-cuda-nvrtc")

WORKLOADS = ("mlp-small-b20", "mlp-small-b100", "mnist-cnn-b100", "mnist-cnn-b1000")
GRAPHC = {"train": ("default", "streams2", "streams4"), "forward": ("default",)}
TORCH = {"train": ("eager", "eager_fused", "compile"), "forward": ("eager",)}
MISSING = "not installed"
SANITIZERS = ("memcheck", "racecheck", "synccheck", "initcheck")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--wheels", type=Path, help="a folder of wheels for what is missing")
    parser.add_argument("--device", default="cuda", help="cuda or cuda:N; sim tries the kit itself")
    parser.add_argument("--out", type=Path, help="the JSON file; default: by GPU and date")
    parser.add_argument("--minutes", type=float, default=9.5, help="benchmarks stop by then")
    options = parser.parse_args()
    end = time.monotonic() + 60 * options.minutes
    if options.wheels:
        install_missing(options.wheels, ROOT / "build" / "gpu-packages")
    results: dict[str, Any] = {"machine": machine(), **commit()}
    results["tests"] = run_tests(options.device)
    results["kernels"] = run_steps(options.device)
    results["sanitizer"] = run_sanitizers(options.device, end - 300)
    results["benchmarks"] = run_benchmarks(options.device, end)
    path = options.out or default_path(results)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(results, indent=1) + "\n")
    print("\n".join(summary(results)))
    print(path)
    sys.exit(0 if passed(results) else 1)


def install_missing(wheels: Path, folder: Path) -> None:
    """Install the packages that are missing from wheels into a folder that this process and those
    that it starts import from."""
    missing = [name for name in NEEDED if version(name) == MISSING]
    if shutil.which("nvcc") and not list(wheels.glob("nvidia_cuda_nvrtc*")):
        missing = [name for name in missing if name != "nvidia-cuda-nvrtc"]
    if missing:
        pip = [sys.executable, "-m", "pip", "install", "-q", "--no-index", "--upgrade"]
        command = [*pip, "--find-links", str(wheels), "--target", str(folder), *missing]
        subprocess.run(command, check=True)
    sys.path.insert(0, str(folder))
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join([str(folder), *([before] if before else [])])


def machine() -> dict[str, Any]:
    """The GPU and its driver, this Python, and the versions of what takes part."""
    query = "--query-gpu=name,driver_version,memory.total,compute_cap"
    gpus = output(["nvidia-smi", query, "--format=csv,noheader"]).splitlines()
    packages = ("numpy", "pycuda", "cuda-bindings", "nvidia-cuda-nvrtc", "torch")
    return {
        "gpus": gpus,
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "versions": {name: version(name) for name in packages},
        "nvcc": output(["nvcc", "--version"]).strip().split("\n")[-1],
    }


def commit() -> dict[str, str]:
    """The commit and today's date."""
    found = output(["git", "-C", str(ROOT), "rev-parse", "HEAD"]).strip()
    return {"commit": found or "unknown", "date": datetime.date.today().isoformat()}


def run_tests(device: str) -> dict[str, Any]:
    """Counts of the tests that need a GPU, and the names of those that failed."""
    chosen = ["-k", "sim"] if device == "sim" else ["-m", "gpu"]
    command = ["-m", "pytest", "-q", "-rfE", "-p", "no:cacheprovider", *chosen]
    begin = time.monotonic()
    printed = python([*command, "tests/cuda/test_gpu.py"]).stdout
    counts = {
        what: int(n) for n, what in re.findall(r"(\d+) (passed|failed|skipped|error)", printed)
    }
    failed = re.findall(r"^(?:FAILED|ERROR) (.*)$", printed, re.MULTILINE)
    print(printed[-3000:])
    return {"seconds": round(time.monotonic() - begin, 1), **counts, "failures": failed}


def run_steps(device: str) -> dict[str, Any]:
    """What the kernels of the three models' training steps take: registers, spills, shared."""
    done = python(["-m", "tests.cuda.steps", device])
    if done.returncode:
        return {"error": done.stderr.strip()[-500:]}
    usage = json.loads(done.stdout.splitlines()[-1])
    return {"spilled": [symbol for symbol, (_, bytes_, _) in usage.items() if bytes_], **usage}


def run_sanitizers(device: str, end: float) -> dict[str, Any]:
    """What each tool of compute-sanitizer finds in two training steps of each model."""
    tool = shutil.which("compute-sanitizer")
    if tool is None:
        return {"missing": "compute-sanitizer is not on the PATH"}
    found: dict[str, Any] = {}
    for name in SANITIZERS:
        if time.monotonic() > end:
            found[name] = "no time was left"
            continue
        checked = [tool, "--tool", name, "--error-exitcode", "7"]
        done = python(["-m", "tests.cuda.steps", device], before=checked, seconds=120)
        lines = (done.stdout + done.stderr).splitlines()
        told = [line for line in lines if "ERROR SUMMARY" in line or "RACECHECK SUMMARY" in line]
        found[name] = {"status": done.returncode, "summary": told or lines[-3:]}
    return found


def run_benchmarks(device: str, end: float) -> list[dict[str, Any]]:
    """The JSON lines of graphc and of PyTorch, taking turns, as long as there is time."""
    modules = [("benchmarks.run", GRAPHC)]
    if version("torch") != MISSING:
        modules.append(("benchmarks.peer_torch", TORCH))
    lines = []
    for workload in WORKLOADS:
        for mode in ("train", "forward"):
            for module, variants in modules:
                for variant in variants[mode]:
                    if time.monotonic() < end - 60:
                        lines.append(measure(module, variant, workload, mode, device))
    return lines


def measure(module: str, variant: str, workload: str, mode: str, device: str) -> dict[str, Any]:
    command = ["-m", module, "--variant", variant, "--workload", workload, "--mode", mode]
    done = python([*command, "--device", device, "--seconds", "1", "--json"], seconds=120)
    if done.returncode:
        what = {"module": module, "variant": variant, "workload": workload, "mode": mode}
        return {**what, "error": (done.stderr or "it took too long").strip()[-500:]}
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def passed(results: dict[str, Any]) -> bool:
    tests, sanitizer = results["tests"], results["sanitizer"]
    clean = all(each.get("status", 0) == 0 for each in sanitizer.values() if isinstance(each, dict))
    return bool(tests.get("passed")) and not tests["failures"] and clean


def summary(results: dict[str, Any]) -> list[str]:
    lines = [f"gpus {results['machine']['gpus']}", f"tests {results['tests']}"]
    lines.append(f"kernels {len(results['kernels'])}, spilled {results['kernels'].get('spilled')}")
    lines += [f"{name} {found}" for name, found in results["sanitizer"].items()]
    for line in results["benchmarks"]:
        what = " ".join(str(line.get(k, "")) for k in ("workload", "mode", "peer", "variant"))
        lines.append(f"{what}: {line.get('median_ms', line.get('error'))} ms")
    return lines


def default_path(results: dict[str, Any]) -> Path:
    first = (results["machine"]["gpus"] or ["no GPU"])[0].split(",")[0]
    name = re.sub(r"[^a-z0-9]+", "-", first.lower()).strip("-")
    return ROOT / "benchmarks" / "results" / f"{results['date']}-{name}.json"


def python(
    arguments: Sequence[str], before: Sequence[str] = (), seconds: float = 400
) -> subprocess.CompletedProcess[str]:
    """This Python on `arguments`, in the checkout; status 124 if it takes too long."""
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    command = [*before, sys.executable, *arguments]
    environment = {**os.environ, "PYTHONPATH": path}
    try:
        return subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=seconds
        )
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(command, 124, "", "")


def output(command: Sequence[str]) -> str:
    """What a command prints; nothing if it is missing or fails."""
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return ""


def version(package: str) -> str:
    from importlib.metadata import PackageNotFoundError
    from importlib.metadata import version as installed

    try:
        return installed(package)
    except PackageNotFoundError:
        return MISSING


if __name__ == "__main__":
    main()
