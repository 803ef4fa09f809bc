"""Compare measurements with what was predicted: `python -m tools.gpu_check.predicted gpu.json`.

The newest file of benchmarks/predictions for the GPU has a range for every step and kernel. The
command prints all of them, the report of a check the steps and the kernels that are furthest off.
Kernels whose machine code is not that of the predictions are counted, not judged.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from tools.gpu_check.process import ROOT

FOLDER = ROOT / "benchmarks" / "predictions"
WORST = 10
LAUNCH = 4.0
"""Microseconds above which a kernel takes more than its launch."""


@dataclass(frozen=True)
class Compared:
    """A measured figure beside its prediction, in microseconds but for shares and rates."""

    name: str
    kind: str
    """One of "step", "kernel", "bandwidth" and "host"."""
    measured: float
    predicted: Sequence[float]
    """What is expected, at least, and at most."""
    changed: bool = False
    """Whether it was measured of another machine code than was predicted."""

    @property
    def ratio(self) -> float:
        """Measured over expected."""
        return self.measured / self.predicted[0]

    @property
    def verdict(self) -> str:
        if self.changed:
            return "changed since"
        _, least, most = self.predicted
        if self.measured > most:
            return "ABOVE"
        return "BELOW" if self.measured < least else "inside"

    @property
    def text(self) -> str:
        expected, least, most = (f"{value:.4g}" for value in self.predicted)
        ranged = f"predicted {expected} ({least} to {most})"
        return f"{self.name}: {self.measured:.4g}, {ranged}: {self.ratio:.2f}, {self.verdict}"


def prediction_for(gpu: str, folder: Path = FOLDER) -> Path | None:
    """The newest predictions for a GPU of this name; None if there are none."""
    known = sorted(folder.glob("*.json"))
    return next((p for p in reversed(known) if p.stem.rpartition("-")[2] in gpu.lower()), None)


def comparisons(results: Mapping[str, Any], predicted: Mapping[str, Any]) -> Iterator[Compared]:
    """What is in both: steps by the GPU's time alone, their kernels, and the stages `bandwidth` and
    `host`."""
    for line in results["benchmarks"]:
        step = predicted["steps"].get(line["name"])
        if step is None or not line.get("gpu_ms"):
            continue
        kernels = line.get("kernels", {})
        both = [(name, found, step["kernels"][name]) for name, found in kernels.items()
                if name in step["kernels"]]  # fmt: skip
        same = len(both) == len(step["kernels"]) and all(x["code"] == y["code"] for _, x, y in both)
        yield Compared(line["name"], "step", 1e3 * line["gpu_ms"], step["us"], not same)
        for name, found, expected in both:
            changed = found["code"] != expected["code"]
            title = f"{line['name']} {name}"
            yield Compared(title, "kernel", found["us"], expected["us"], changed)
    stages = results["stages"]
    for name, found in predicted["bandwidth"].items():
        for unit, expected in found.items():
            if measured := stages.get("bandwidth", {}).get(name, {}).get(unit):
                yield Compared(f"{name}, {unit}", "bandwidth", measured, expected)
    host = predicted["host"]
    if measured := stages.get("host", {}).get("us per step"):
        yield Compared("us per step", "host", measured, host["us per step"])
    for threads, rate in stages.get("host", {}).get("GB/s of inputs", {}).items():
        if threads in host["GB/s of inputs"]:
            name = f"GB/s of inputs, {threads} threads"
            yield Compared(name, "host", rate, host["GB/s of inputs"][threads])


def summary(found: Sequence[Compared]) -> list[str]:
    """For each kind how many are inside their ranges, and the ratios' median and extremes."""
    told = []
    for kind in dict.fromkeys(each.kind for each in found):
        judged = [each for each in found if each.kind == kind and not each.changed]
        changed = sum(each.kind == kind for each in found) - len(judged)
        text = f"{kind}: "
        if judged:
            inside = sum(each.verdict == "inside" for each in judged)
            ratios = sorted(each.ratio for each in judged)
            middle = f"{median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})"
            text += f"{inside} of {len(judged)} inside; measured / predicted {middle}"
        told.append(text + (f"; {changed} changed since" if changed else ""))
    return told


def worst(found: Sequence[Compared], count: int = WORST) -> list[Compared]:
    """The unchanged kernels that are furthest from what is expected, by their ratio, of those that
    take more than a launch by itself."""
    kernels = [each for each in found if each.kind == "kernel" and not each.changed]
    kernels = [
        each for each in kernels if max(each.measured, each.predicted[0]) > LAUNCH
    ] or kernels
    return sorted(kernels, key=lambda each: -abs(math.log(each.ratio)))[:count]


def without(results: Mapping[str, Any], predicted: Mapping[str, Any]) -> list[str]:
    """The measured training steps of graphc that have no prediction, such as those whose kernels
    are chosen by measurement."""
    ours = (line for line in results["benchmarks"] if " train graphc:" in line["name"])
    return [x["name"] for x in ours if x.get("gpu_ms") and x["name"] not in predicted["steps"]]


def report(results: Mapping[str, Any], folder: Path = FOLDER) -> dict[str, Any]:
    """What a check stores: the file, `lines` to print, and the `worst` kernels."""
    gpu = (results["machine"]["gpus"] or ["no GPU"])[0].split(",")[0]
    path = prediction_for(gpu, folder)
    if path is None:
        return {"missing": f"there are no predictions for {gpu}"}
    predicted = json.loads(path.read_text())
    found = list(comparisons(results, predicted))
    lines = [f"{path.name}, of commit {predicted['commit']}", *summary(found)]
    if unknown := without(results, predicted):
        lines.append(f"not predicted: {', '.join(unknown)}")
    lines += [each.text for each in found if each.kind != "kernel"]
    furthest = worst(found)
    lines += [f"furthest: {each.text}" for each in furthest]
    return {"file": path.name, "lines": lines, "worst": [asdict(each) for each in furthest]}


def main(path: str) -> None:
    results = json.loads(Path(path).read_text())
    told = report(results)
    if "missing" in told:
        raise SystemExit(told["missing"])
    predicted = json.loads((FOLDER / told["file"]).read_text())
    kernels = [each for each in comparisons(results, predicted) if each.kind == "kernel"]
    print("\n".join([*told["lines"], *(each.text for each in kernels)]))


if __name__ == "__main__":
    main(sys.argv[1])
