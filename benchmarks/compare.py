"""graphc beside PyTorch on this machine: `python -m benchmarks.compare --workload mnist-cnn-b100`.

Each measurement is a process of its own, and the frameworks take turns (A B A B ...), so that
what else the machine does falls on all of them. The table gives the median of the rounds'
medians, their spread, the ratio to graphc, and GFLOP/s beside the machine's measured peak (a
training step counts three forward passes). Noise is the share of the time that a thread waited for
a core: rounds with more than a few per cent are left out if there are others. Before each
measurement the machine gets `--patience` seconds to become quiet.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from benchmarks.workloads import WORKLOADS, find

PEERS = {"graphc": "benchmarks.run", "torch": "benchmarks.peer_torch"}
CHECK_TOLERANCE = 2e-4
"""Relative difference of losses, and of outputs where they are not tiny."""

QUIET = 0.05
"""Rounds with more noise than this count only if there is none with less."""


@dataclass(frozen=True)
class Entry:
    """A framework and its variant, such as torch:eager."""

    peer: str
    variant: str

    def __str__(self) -> str:
        return f"{self.peer}:{self.variant}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("entries", nargs="*", default=["graphc:default", "torch:eager"])
    parser.add_argument("--workload", default=",".join(WORKLOADS), help="names, comma-separated")
    parser.add_argument("--mode", default="train,forward")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=1.5)
    parser.add_argument("--patience", type=float, default=20.0)
    options = parser.parse_args()
    entries = [Entry(*text.split(":")) for text in options.entries]
    if find_spec("torch") is None:
        entries = [entry for entry in entries if entry.peer != "torch"]
        print("torch is not installed: graphc alone")
    _wait_for_quiet(options.patience)
    peak = fma_peak(options.threads)
    print(f"{options.threads} thread(s), peak {peak:.0f} GFLOP/s" if peak else "no compiler")
    for name in options.workload.split(","):
        workload = find(name)
        for mode in options.mode.split(","):
            if mode not in workload.modes:
                continue
            rounds = [
                {entry: _measure(entry, name, mode, options) for entry in entries}
                for _ in range(options.rounds)
            ]
            print(f"\n{name} {mode}")
            print("\n".join(_table(entries, rounds, peak, mode)), flush=True)


def fma_peak(threads: int) -> float:
    """The machine's multiply-add peak in GFLOP/s on so many threads; 0 without a compiler."""
    compiler = shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        return 0.0
    with tempfile.TemporaryDirectory() as folder:
        source, binary = Path(__file__).with_name("machine.cpp"), Path(folder) / "machine"
        flags = ["-std=c++20", "-O3", "-march=native", "-ffp-contract=fast", "-pthread"]
        subprocess.run([compiler, *flags, source, "-o", binary], check=True)
        output = subprocess.run([binary, str(threads)], check=True, capture_output=True, text=True)
    return float(output.stdout.split()[0])


def _measure(entry: Entry, workload: str, mode: str, options: argparse.Namespace) -> dict:
    command = [sys.executable, "-m", PEERS[entry.peer], "--variant", entry.variant]
    command += ["--workload", workload, "--mode", mode, "--threads", str(options.threads)]
    command += ["--seconds", str(options.seconds), "--json"]
    _wait_for_quiet(options.patience)
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode:
        raise SystemExit(f"{' '.join(command)}\n{result.stderr}")
    return json.loads(result.stdout.splitlines()[-1])


def _wait_for_quiet(patience: float, share: float = 0.05) -> None:
    """Return when the cores are idle but for `share` of their time, or after `patience` seconds."""
    end = time.monotonic() + patience
    while time.monotonic() < end:
        busy, begin = _busy(), time.monotonic()
        time.sleep(0.4)
        if _busy() - busy < share * (time.monotonic() - begin) * (os.cpu_count() or 1):
            return


def _busy() -> float:
    """Seconds that all cores have worked since the start; 0 where the system does not say."""
    path = Path("/proc/stat")
    if not path.exists():
        return 0.0
    ticks = [int(word) for word in path.read_text().split("\n")[0].split()[1:]]
    return (sum(ticks) - ticks[3] - ticks[4]) / os.sysconf("SC_CLK_TCK")


def _table(
    entries: list[Entry], rounds: list[dict[Entry, dict]], peak: float, mode: str
) -> list[str]:
    quiet = {e: _quiet([r[e] for r in rounds]) for e in entries}
    medians = {e: statistics.median(r["median_ms"] for r in quiet[e]) for e in entries}
    first = entries[0]
    lines = []
    for entry in entries:
        results = quiet[entry]
        low, high = min(r["p10"] for r in results), max(r["p90"] for r in results)
        work = results[0]["gflop_fwd"] * (3 if mode == "train" else 1)
        rate = 1000 * work / medians[entry]
        speed = f"{rate:7.1f} GFLOP/s" if work else f"{'':15}"
        share = f" {100 * rate / peak:4.0f} % of peak" if peak and work else ""
        ratio = medians[entry] / medians[first]
        line = (
            f"  {entry!s:18} {medians[entry]:9.3f} ms  ({low:.3f} to {high:.3f})  {ratio:5.2f}x"
            f"  {speed}{share}  CPU {min(r['cpu_ms'] for r in results):.3f} ms"
            f"  first {results[0]['first_call_s']:.2f} s"
            f"  {results[0]['peak_rss_mb']} MB  noise {max(r['noise'] for r in results):.2f}"
        )
        if not _agree(results[0]["check"], rounds[0][first]["check"]):
            line += f"  DIFFERS: {results[0]['check']} and {rounds[0][first]['check']}"
        lines.append(line)
    return lines


def _quiet(results: list[dict]) -> list[dict]:
    """Those with little noise; the one with the least if all have much."""
    least = min(result["noise"] for result in results)
    return [result for result in results if result["noise"] <= max(least, QUIET)]


def _agree(a: list[float], b: list[float]) -> bool:
    return all(
        abs(x - y) <= CHECK_TOLERANCE * max(abs(x), abs(y), 0.01) for x, y in zip(a, b, strict=True)
    )


if __name__ == "__main__":
    main()
