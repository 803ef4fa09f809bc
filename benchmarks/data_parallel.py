"""What the messages of data-parallel training cost a step, with and without overlap.

    mpiexec -n 2 python -m benchmarks.data_parallel mlp resnet18 [--picture overlap.png]
        [--network BYTES_PER_SECOND]

For each network two programs take turns: one whose buckets are sent while the backward pass goes
on, and one that sends a single message behind it. Exposed is the time in which a message is on its
way and no kernel runs; a row has the least of several steps of rank 0. Each rank has one thread.
The picture shows a step of the first program, as its streams ran. Ranks of one machine share its
memory and cores; `--network` lets each message take as long as between machines, by sleeping.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import graphc
from graphc import nn, optim
from graphc.runtime.plan.plan import Launch

ROUNDS = 4
"""Turns of each program."""


class Block(nn.Module):
    """Two convolutions beside a shortcut."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        self.first = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.second = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.norms = [nn.BatchNorm2d(outputs), nn.BatchNorm2d(outputs)]
        shortcut = (nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))
        self.shortcut = nn.Sequential(*(shortcut if stride > 1 else ()))

    def forward(self, x: Any) -> Any:
        y = graphc.relu(self.norms[0](self.first(x)))
        return graphc.relu(self.norms[1](self.second(y)) + self.shortcut(x))


def resnet18() -> Any:
    """ResNet-18 for 100 classes."""
    blocks = []
    inputs = 64
    for stage in range(4):
        for n in range(2):
            outputs = 64 << stage
            blocks.append(Block(inputs, outputs, 2 if stage and not n else 1))
            inputs = outputs
    stem = nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU()
    pooled = nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 100)
    return nn.Sequential(*stem, *blocks, *pooled)


def mlp() -> Any:
    """Four layers of 1,024."""
    layers = [layer for _ in range(3) for layer in (nn.Linear(1024, 1024), nn.ReLU())]
    return nn.Sequential(*layers, nn.Linear(1024, 100))


NETWORKS: dict[str, tuple[Callable[[], Any], tuple[int, ...]]] = {
    "mlp": (mlp, (256, 1024)),
    "resnet18": (resnet18, (8, 3, 64, 64)),
}
"""The network and the shape of a rank's batch."""


def loss_of(model: Any, x: Any, y: Any) -> Any:
    """The loss of a batch."""
    return graphc.cross_entropy(model(x), y)


def program(name: str, parallel: graphc.DataParallel) -> Any:
    """The training step of a network."""
    make, shape = NETWORKS[name]
    graphc.seed(0)
    specs = graphc.spec(shape), graphc.spec(shape[:1], "int32")
    rule = optim.SGD(lr=0.01, momentum=0.9)
    return graphc.compile(
        loss_of, make(), *specs, update=rule, parallel=parallel, threads=1, wait=True
    )


class SlowNetwork:
    """A transport that takes as long as a network of some bytes per second, asleep."""

    def __init__(self, transport: Any, rate: float) -> None:
        self.transport, self.rate = transport, rate
        self.name, self.rank, self.ranks = transport.name, transport.rank, transport.ranks
        self.broadcast, self.wake, self.close = (
            getattr(transport, name) for name in ("broadcast", "wake", "close")
        )
        self.receive = transport.receive

    def all_to_all(self, source: Any, bounds: Any, target: Any) -> None:
        begin = time.perf_counter()
        self.transport.all_to_all(source, bounds, target)
        self._sleep(begin, source.nbytes)

    def all_gather(self, whole: Any, bounds: Any) -> None:
        begin = time.perf_counter()
        self.transport.all_gather(whole, bounds)
        self._sleep(begin, whole.nbytes)

    def send(self, array: Any, peer: int) -> None:
        begin = time.perf_counter()
        self.transport.send(array, peer)
        time.sleep(max(0.0, array.nbytes / self.rate - (time.perf_counter() - begin)))

    def _sleep(self, begin: float, size: int) -> None:
        sent = size * (self.ranks - 1) / self.ranks
        time.sleep(max(0.0, sent / self.rate - (time.perf_counter() - begin)))


def slowed(rate: float) -> Any:
    """The ranks of this run, with a network of so many bytes per second from now on."""
    group = graphc.DataParallel().group
    group.transport = SlowNetwork(group.transport, rate)
    return group


Spans = list[tuple[int, float, float]]
"""(step number, start, end) in microseconds."""


def measured(name: str, picture: Path | None) -> None:
    """Print a network's row."""
    group = graphc.DataParallel().group
    shape = NETWORKS[name][1]
    rng = np.random.default_rng(group.rank)
    x = rng.standard_normal(shape).astype(np.float32)
    y = rng.integers(0, 100, shape[0]).astype(np.int32)
    programs = {
        "overlapped": program(name, graphc.DataParallel()),
        "one message": program(name, graphc.DataParallel(overlap=False)),
    }
    for step in programs.values():
        step(x, y)
    best: dict[str, tuple[float, Spans]] = {}
    for kind in [*programs] * ROUNDS:
        group.collected(None)
        spans = programs[kind].executable.timeline([x, y])
        found = exposed(programs[kind], spans), spans
        best[kind] = min(best.get(kind, found), found, key=lambda pair: pair[0])
    if group.rank == 0:
        for kind, (alone, spans) in best.items():
            sent = [(a, b) for n, a, b in spans if _is_message(programs[kind], n)]
            busy, end = sum(b - a for a, b in sent), max(b for _, _, b in spans)
            print(
                f"{name}, {kind}: {len(sent)} messages take {busy / 1e3:.1f} ms, of which "
                f"{alone / 1e3:.1f} ms exposed, in a step of {end / 1e3:.1f} ms",
                flush=True,
            )
        if picture is not None:
            draw(programs["overlapped"], best["overlapped"][1], picture)


def exposed(step: Any, spans: Spans) -> float:
    """The microseconds in which messages are on their way and no kernel runs."""
    edges = []
    for number, start, stop in spans:
        kind = _is_message(step, number)
        edges += [(start, 1, kind), (stop, -1, kind)]
    running, before, total = {True: 0, False: 0}, 0.0, 0.0
    for at, change, kind in sorted(edges):
        total += (at - before) * (running[True] > 0 and not running[False])
        running[kind] += change
        before = at
    return total


def _is_message(step: Any, number: int) -> bool:
    launch = step.plan.steps[number]
    return isinstance(launch, Launch) and step.plan.kernels[launch.kernel].message is not None


def draw(step: Any, spans: Spans, path: Path) -> None:
    """Draw the streams of a step over time."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(10, 2.4), layout="constrained")
    colours = {
        "forward": "#9aa5b1",
        "backward": "#3b6ea8",
        "update": "#2e7d6b",
        "all_reduce": "#d1495b",
    }
    streams = {0: "kernels", 1: "all-reduces", 2: "updates"}
    for number, start, stop in spans:
        launch = step.plan.steps[number]
        kind = "backward" if getattr(launch, "where", None) and launch.where.derived else "forward"
        kind = "update" if launch.stream == 2 else kind
        kind = "all_reduce" if _is_message(step, number) else kind
        place = -launch.stream, (stop - start) / 1e3, 0.7, start / 1e3
        axes.barh(*place, color=colours[kind], edgecolor="white", linewidth=0.4)
    for kind, colour in colours.items():
        axes.barh(0, 0, color=colour, label=kind.replace("_", "-"))
    axes.set_yticks([-s for s in streams], list(streams.values()))
    axes.set_xlabel("milliseconds")
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside upper center", ncols=4, frameon=False)
    figure.savefig(path, dpi=130)


def main() -> None:
    """Measure the networks that are named."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("networks", nargs="+", choices=[*NETWORKS])
    parser.add_argument("--picture", type=Path, help="a picture of the last network's step")
    parser.add_argument("--network", type=float, help="bytes per second of a slower network")
    options = parser.parse_args()
    if options.network:
        slowed(options.network)
    for name in options.networks:
        measured(name, options.picture)


if __name__ == "__main__":
    main()
