"""A picture of what `benchmarks.compare --out results.json` measured: times beside graphc's.

    python -m benchmarks.picture results.json picture.png

Each row is a workload, each mark a peer at its time over that of graphc's default precision, on a
logarithmic scale: right of the line it is slower. A peer's mark is its best variant; a ring says
that it kept freed memory. graphc with other arithmetic (Winograd) has a diamond of its own.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

OWN = "graphc:default"
COLOURS = {
    "graphc": "#222222",
    "torch": "#d1495b",
    "jax": "#2e7d6b",
    "onnxruntime": "#3b6ea8",
    "openvino": "#7b4fa3",
    "tinygrad": "#8a6d3b",
}
NAMES = {
    "graphc": "graphc, Winograd",
    "torch": "PyTorch",
    "jax": "JAX",
    "onnxruntime": "ONNX Runtime",
    "openvino": "OpenVINO",
    "tinygrad": "tinygrad",
}


@dataclass(frozen=True)
class Mark:
    """A best time over that of `OWN`, and the entry that reached it. `peer` is "graphc" for
    graphc with other arithmetic than its default."""

    peer: str
    ratio: float
    entry: str


def marks(results: Sequence[Mapping[str, Any]]) -> dict[str, list[Mark]]:
    """The marks of each workload and mode, the fastest peer first, by medians of rounds."""
    times: dict[str, dict[str, list[float]]] = {}
    peers: dict[str, str] = {}
    for result in results:
        row = times.setdefault(f"{result['workload']} {result['mode']}", {})
        row.setdefault(result["entry"], []).append(result["median_ms"])
        peers[result["entry"]] = result["peer"]
    found: dict[str, list[Mark]] = {}
    for name, entries in times.items():
        medians = {entry: statistics.median(values) for entry, values in entries.items()}
        own = medians.pop(OWN)
        best: dict[str, Mark] = {}
        for entry, time in sorted(medians.items(), key=lambda item: item[1]):
            best.setdefault(peers[entry], Mark(peers[entry], time / own, entry))
        found[name] = list(best.values())
    return found


def draw(facts: Mapping[str, Any], path: Path) -> None:
    """Draw what compare wrote as PNG, SVG or PDF, by the name of `path`."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    rows = marks(facts["results"])
    figure, axes = pyplot.subplots(figsize=(9, 1.5 + 0.36 * len(rows)), layout="constrained")
    axes.set_xscale("log", base=2)
    axes.axvline(1, color="#222222", linewidth=1.5)
    axes.text(1, -1.05, "graphc", ha="center", va="bottom", fontweight="bold")
    for y, found in enumerate(rows.values()):
        axes.axhline(y, color="#dddddd", linewidth=0.8, zorder=0)
        for mark in found:
            kept = mark.entry.endswith("+kept")
            colour = COLOURS[mark.peer]
            face = "white" if kept else colour
            shape = "D" if mark.peer == "graphc" else "o"
            axes.scatter(
                mark.ratio, y, s=52, color=face, edgecolors=colour, linewidths=1.8, marker=shape
            )
        ratios = [mark.ratio for mark in found if mark.peer != "graphc"]
        if ratios:
            least = f"{ratios[0]:.2f} ×"
            axes.text(1.01, y, least, transform=axes.get_yaxis_transform(), va="center")
    axes.set_yticks(range(len(rows)), list(rows))
    axes.set_ylim(len(rows) - 0.4, -1.0)
    ticks = axes.get_xticks()
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.set_xlabel(
        "time over graphc's (log scale; right is slower); at the edge: the best peer\n"
        f"{facts['cpu']}, {facts['date']}"
    )
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(length=0)
    used = {mark.peer for found in rows.values() for mark in found}
    handles = [
        axes.scatter(
            [], [], s=52, color=colour, label=NAMES[peer], marker="D" if peer == "graphc" else "o"
        )
        for peer, colour in COLOURS.items()
        if peer in used
    ]
    handles.append(
        axes.scatter(
            [], [], s=52, color="white", edgecolors="#444444", linewidths=1.8, label="kept memory"
        )
    )
    figure.legend(handles=handles, loc="outside upper center", ncols=5, frameon=False)
    figure.savefig(path, dpi=130)
    pyplot.close(figure)


if __name__ == "__main__":
    source, target = map(Path, sys.argv[1:3])
    draw(json.loads(source.read_text()), target)
