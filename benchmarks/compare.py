"""graphc beside its peers: `python -m benchmarks.compare --workload mnist-cnn-b100 --all`.

An entry is a framework and its variant, such as `torch:compile`; with `+kept` behind it glibc is
told to keep freed memory, which spares large tensors their page faults. `--all` stands for all
entries whose framework is installed. Each measurement is a process of its own, and the entries take
turns (A B A B ...), so that what else the machine does falls on all of them. The table gives the
median of the rounds' medians, their spread, the ratio to graphc, and GFLOP/s beside the machine's
measured peak (a training step counts three forward passes). Noise is the share of the time that a
thread waited for a core: rounds with more than a few per cent are left out if there are others.
Before each measurement the machine gets `--patience` seconds to become quiet. `--out` keeps
everything as JSON, which `benchmarks.picture` draws.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from benchmarks.workloads import FOR_CPU, find

PEERS = {
    "graphc": "benchmarks.run",
    "torch": "benchmarks.peer_torch",
    "jax": "benchmarks.peer_jax",
    "onnxruntime": "benchmarks.peer_onnxruntime",
    "openvino": "benchmarks.peer_openvino",
    "tinygrad": "benchmarks.peer_tinygrad",
}
NEEDED = {"onnxruntime": ("onnxruntime", "onnx"), "openvino": ("openvino", "onnx")}
"""What must be installed for a peer, where it is more than the peer itself."""
ALL = (
    "graphc:default torch:eager_fused torch:channels_last torch:compile torch:frozen jax:nhwc "
    "jax:nchw onnxruntime:default openvino:default tinygrad:jit"
).split()
KEPT = "+kept"
TUNABLES = (
    "glibc.malloc.mmap_threshold={0}:glibc.malloc.trim_threshold={0}:glibc.malloc.top_pad={1}"
)
"""Allocations up to the first number of bytes come from the heap, which keeps as much, and grows by
the second."""
FORWARD_ALONE = ("torch:frozen", "onnxruntime:default", "openvino:default")
CHECK_TOLERANCE = 2e-4
"""Relative difference of losses, and of outputs where they are not tiny."""
NARROW_TOLERANCE = 2e-2
"""That where one of two entries multiplies bf16."""

QUIET = 0.05
"""Rounds with more noise than this count only if there is none with less."""

Result = dict[str, Any]


@dataclass(frozen=True)
class Entry:
    """A framework and its variant, such as torch:eager, and whether glibc keeps freed memory."""

    peer: str
    variant: str
    kept: bool = False

    @classmethod
    def parse(cls, text: str) -> Entry:
        """SystemExit for what is no entry."""
        peer, colon, variant = text.removesuffix(KEPT).partition(":")
        if peer not in PEERS or not colon:
            raise SystemExit(f"expected PEER:VARIANT of {', '.join(PEERS)}, got {text!r}")
        return cls(peer, variant, text.endswith(KEPT))

    def __str__(self) -> str:
        return f"{self.peer}:{self.variant}{KEPT if self.kept else ''}"

    @property
    def narrow(self) -> bool:
        """Whether it multiplies bf16."""
        return "bfloat16" in self.variant or self.variant.endswith("_bf16")

    @property
    def installed(self) -> bool:
        """Whether what the peer needs is there."""
        return all(find_spec(name) for name in NEEDED.get(self.peer, (self.peer,)))

    def offers(self, mode: str) -> bool:
        return mode == "forward" or f"{self.peer}:{self.variant}" not in FORWARD_ALONE

    def environment(self) -> dict[str, str]:
        """That of a measurement."""
        tunables = TUNABLES.format(1 << 33, 1 << 28)
        return {**os.environ, **({"GLIBC_TUNABLES": tunables} if self.kept else {})}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("entries", nargs="*", default=["graphc:default", "torch:eager"])
    parser.add_argument("--all", action="store_true", help="every peer, also with kept memory")
    parser.add_argument("--workload", default=",".join(FOR_CPU), help="names, comma-separated")
    parser.add_argument("--mode", default="train,forward")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=1.5)
    parser.add_argument("--patience", type=float, default=20.0)
    parser.add_argument("--out", type=Path, help="a JSON file for all results")
    options = parser.parse_args(arguments)
    texts = [*ALL, *(text + KEPT for text in ALL[1:])] if options.all else options.entries
    entries = [Entry.parse(text) for text in texts]
    missing = sorted({entry.peer for entry in entries if not entry.installed})
    if missing:
        print(f"not installed: {', '.join(missing)}")
    entries = [entry for entry in entries if entry.installed]
    wait_for_quiet(options.patience)
    peak = fma_peak(options.threads)
    print(f"{options.threads} thread(s), peak {peak:.0f} GFLOP/s" if peak else "no compiler")
    kept: list[Result] = []
    for name in options.workload.split(","):
        for mode in options.mode.split(","):
            if mode not in find(name).modes:
                continue
            rounds = _rounds([e for e in entries if e.offers(mode)], name, mode, options)
            print(f"\n{name} {mode}")
            print("\n".join(_table(rounds, peak, mode)), flush=True)
            kept += [{**r, "entry": str(e)} for e, results in rounds.items() for r in results]
            if options.out:
                facts = {"cpu": cpu_name(), "peak_gflops": peak, "date": f"{date.today()}"}
                options.out.write_text(json.dumps({**facts, "results": kept}, indent=1) + "\n")


def _rounds(
    entries: Iterable[Entry], workload: str, mode: str, options: argparse.Namespace
) -> dict[Entry, list[Result]]:
    """The results of each entry, one a round. What fails says so, and is out."""
    found: dict[Entry, list[Result]] = {entry: [] for entry in entries}
    for _ in range(options.rounds):
        for entry in list(found):
            result = _measure(entry, workload, mode, options)
            if isinstance(result, str):
                print(f"{entry} failed on {workload} {mode}: {result}", file=sys.stderr)
                del found[entry]
            else:
                found[entry].append(result)
    return found


def cpu_name() -> str:
    """What the system calls this CPU."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


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


def _measure(entry: Entry, workload: str, mode: str, options: argparse.Namespace) -> Result | str:
    """What one process measures, or the last line of what it says where it fails."""
    command = [sys.executable, "-m", PEERS[entry.peer], "--variant", entry.variant]
    command += ["--workload", workload, "--mode", mode, "--threads", str(options.threads)]
    command += ["--seconds", str(options.seconds), "--json"]
    wait_for_quiet(options.patience)
    ran = subprocess.run(command, capture_output=True, text=True, env=entry.environment())
    if ran.returncode:
        return (ran.stderr.strip().splitlines() or [f"ended with {ran.returncode}"])[-1]
    result: Result = json.loads(ran.stdout.splitlines()[-1])
    return result


def wait_for_quiet(patience: float, share: float = 0.05) -> None:
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


def _table(rounds: dict[Entry, list[Result]], peak: float, mode: str) -> list[str]:
    """A line for each entry, the fastest peer marked."""
    quiet = {entry: _quiet(results) for entry, results in rounds.items()}
    medians = {e: statistics.median(r["median_ms"] for r in quiet[e]) for e in quiet}
    if not medians:
        return ["  nothing was measured"]
    first = next(iter(medians))
    best = min((e for e in medians if e.peer != first.peer), key=lambda e: medians[e], default=None)
    lines = []
    for entry, results in quiet.items():
        low, high = min(r["p10"] for r in results), max(r["p90"] for r in results)
        work = results[0]["gflop_fwd"] * (3 if mode == "train" else 1)
        rate = 1000 * work / medians[entry]
        speed = f"{rate:7.1f} GFLOP/s" if work else f"{'':15}"
        share = f" {100 * rate / peak:4.0f} % of peak" if peak and work else ""
        ratio = medians[entry] / medians[first]
        line = (
            f"  {entry!s:24} {medians[entry]:9.3f} ms  ({low:.3f} to {high:.3f})  {ratio:5.2f}x"
            f"  {speed}{share}  CPU {min(r['cpu_ms'] for r in results):.3f} ms"
            f"  first {results[0]['first_call_s']:.2f} s"
            f"  {results[0]['peak_rss_mb']} MB  noise {max(r['noise'] for r in results):.2f}"
        )
        if entry == best:
            line += "  the best peer"
        tolerance = NARROW_TOLERANCE if entry.narrow or first.narrow else CHECK_TOLERANCE
        if not agree(results[0]["check"], rounds[first][0]["check"], tolerance):
            line += f"  DIFFERS: {results[0]['check']} and {rounds[first][0]['check']}"
        lines.append(line)
    return lines


def _quiet(results: list[Result]) -> list[Result]:
    """Those with little noise; the one with the least if all have much."""
    least = min(result["noise"] for result in results)
    return [result for result in results if result["noise"] <= max(least, QUIET)]


def agree(a: list[float], b: list[float], tolerance: float = CHECK_TOLERANCE) -> bool:
    return all(
        abs(x - y) <= tolerance * max(abs(x), abs(y), 0.01) for x, y in zip(a, b, strict=True)
    )


if __name__ == "__main__":
    main()
