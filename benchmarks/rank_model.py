"""Predict the step of many ranks from a plan, measured kernels and a network.

    python -m benchmarks.rank_model mlp resnet18 [--picture ranks.png]
    mpiexec -n 2 python -m benchmarks.rank_model mlp --measure --network 300e6

The kernels of a data-parallel step are measured on this machine, one after another. The model then
plays the plan: streams in order, events as they are, one core per rank, which prefers the backward
pass to updates, and messages of this time (after LogGP, Alexandrov et al., 1995), for n ranks and b
bytes:

    2 (latency + (n - 1) overhead + (n - 1) / n b / rate)

since a sum is two exchanges in which each rank sends n - 1 slices. `--measure` compares the
prediction with steps of the ranks that run this, on a network that is slowed down to the rate.
Efficiency is the time of a step without messages over that of the step.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import graphc
from benchmarks.data_parallel import NETWORKS, program, slowed
from graphc.kernels.program.message import Message
from graphc.runtime.plan.plan import Launch, Plan, Record, Wait

BUCKET = 2 << 20
"""Bytes of a bucket in predictions."""
RANKS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096)


@dataclass(frozen=True)
class Network:
    """A network between ranks, each with a link of its own in both directions."""

    name: str
    latency: float
    """Seconds until the first byte arrives."""
    overhead: float
    """Seconds of a rank for each message."""
    rate: float
    """Bytes per second of a link."""

    def sum_seconds(self, size: int, ranks: int) -> float:
        """The seconds of a sum of `size` bytes over all ranks."""
        return 2 * self.exchange_seconds(size, ranks)

    def exchange_seconds(self, size: int, ranks: int) -> float:
        """The seconds of one of its two exchanges of slices."""
        if ranks == 1:
            return 0.0
        moved = (ranks - 1) / ranks * size / self.rate
        return self.latency + (ranks - 1) * self.overhead + moved


KNOWN = (
    Network("Ethernet, 10 Gb/s", 30e-6, 2e-6, 1.25e9),
    Network("Ethernet, 100 Gb/s", 10e-6, 1e-6, 12.5e9),
    Network("InfiniBand, 400 Gb/s", 2e-6, 0.2e-6, 50e9),
)


def predicted(plan: Plan, seconds: Mapping[int, float], ranks: int, network: Network) -> float:
    """The seconds of a step of a plan without loops.

    `seconds` has those of each launch and copy by the step's number; messages take what the network
    does. Streams of kernels share a core, which takes the last stream, that of updates, when no
    other has work.
    """
    last = plan.streams - 1
    clocks, events = [0.0] * plan.streams, dict[int, float]()
    core, waiting = 0.0, list[tuple[float, float]]()
    for number, step in enumerate(plan.steps):
        if isinstance(step, Record):
            events[step.event] = clocks[step.stream]
        elif isinstance(step, Wait):
            clocks[step.stream] = max(clocks[step.stream], events[step.event])
        elif (size := message_bytes(plan, number)) is not None:
            exchanges = _exchanges(plan, number)
            clocks[step.stream] += exchanges * network.exchange_seconds(size, ranks)
        elif step.stream == last and _sends(plan):
            waiting.append((clocks[last], seconds[number]))
        else:
            core = max(core, clocks[step.stream]) + seconds[number]
            clocks[step.stream] = core
    for ready, spent in waiting:
        core = max(core, ready) + spent
    return max([core, *clocks])


def message_bytes(plan: Plan, number: int) -> int | None:
    """The bytes of a message to or from all ranks; None for another step."""
    step = plan.steps[number]
    if not isinstance(step, Launch) or _message(plan, number) is None:
        return None
    return max(sum(p.stop - p.start for p in places) for places in (step.reads, step.writes))


def _message(plan: Plan, number: int) -> Message | None:
    step = plan.steps[number]
    return plan.kernels[step.kernel].message if isinstance(step, Launch) else None


def _exchanges(plan: Plan, number: int) -> int:
    """How often the ranks exchange slices for a message."""
    message = _message(plan, number)
    return 2 if message is not None and message.kind == "all_reduce" else 1


def _sends(plan: Plan) -> bool:
    return any(kernel.message is not None for kernel in plan.kernels.values())


def kernel_seconds(step: Any, arrays: Sequence[Any]) -> dict[int, float]:
    """The measured seconds of each launch and copy, by the step's number: the least of some."""
    timings = step.executable.profile(arrays, 20)
    return {timing.step: timing.least / 1e6 for timing in timings}


def inputs(name: str, rank: int) -> list[Any]:
    """A rank's part of a batch."""
    shape = NETWORKS[name][1]
    rng = np.random.default_rng(rank)
    x = rng.standard_normal(shape).astype(np.float32)
    return [x, rng.integers(0, 100, shape[0]).astype(np.int32)]


def measure(name: str, network: Network) -> None:
    """Print the measured step of the ranks that run this, beside the predicted one."""
    group = graphc.DataParallel().group
    step, arrays = program(name, graphc.DataParallel()), inputs(name, group.rank)
    step(*arrays)
    best = min(max(b for _, _, b in step.executable.timeline(arrays)) for _ in range(8))
    found = kernel_seconds(step, arrays)
    crowded = max(1.0, group.ranks / len(os.sched_getaffinity(0)))
    model = predicted(step.plan, {n: s * crowded for n, s in found.items()}, group.ranks, network)
    if group.rank == 0:
        times = f"{best / 1e3:.1f} ms measured, {model * 1e3:.1f} predicted"
        print(f"{name}, {group.ranks} ranks: {times}", flush=True)


class Imagined(graphc.DataParallel):
    """Two ranks of which only this one is there: for a plan and its kernels' times."""

    def __init__(self) -> None:
        super().__init__(transport="none")
        self.ranks = 2

    def bucket_bytes(self) -> int:
        return BUCKET


def efficiencies(name: str, faster: float) -> dict[str, list[float]]:
    """Print the predicted steps of a network; return the efficiency for `RANKS` on each network."""
    step, arrays = program(name, Imagined()), inputs(name, 0)
    step(*arrays)
    seconds = {n: s / faster for n, s in kernel_seconds(step, arrays).items()}
    found: dict[str, list[float]] = {}
    for network in KNOWN:
        times = [predicted(step.plan, seconds, ranks, network) for ranks in RANKS]
        found[network.name] = [times[0] / t for t in times]
        shown = ", ".join(
            f"{n} {1e3 * t:.1f} ms ({times[0] / t:.0%})" for n, t in zip(RANKS, times, strict=True)
        )
        print(f"{name}, {network.name}: {shown}", flush=True)
    return found


def draw(found: Mapping[str, Mapping[str, Sequence[float]]], path: Path) -> None:
    """Draw the efficiencies over the number of ranks."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    figure, plots = pyplot.subplots(
        1, len(found), figsize=(9, 3), sharey=True, layout="constrained", squeeze=False
    )
    for axes, (name, networks) in zip(plots[0], found.items(), strict=True):
        for network, colour in zip(networks, ("#d1495b", "#3b6ea8", "#2e7d6b"), strict=True):
            axes.plot(RANKS, networks[network], "o-", color=colour, label=network, markersize=3)
        axes.set_xscale("log", base=2)
        axes.set(title=name, xlabel="ranks", ylim=(0, 1.05))
        axes.spines[["top", "right"]].set_visible(False)
    plots[0][0].set_ylabel("efficiency")
    lines, names = plots[0][0].get_legend_handles_labels()
    figure.legend(lines, names, loc="outside upper center", ncols=len(names), frameon=False)
    figure.savefig(path, dpi=130)


def main() -> None:
    """Predict, or compare with what is measured."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("networks", nargs="+", choices=[*NETWORKS])
    parser.add_argument("--measure", action="store_true", help="compare with the ranks of this run")
    parser.add_argument("--network", type=float, default=300e6, help="its bytes per second")
    parser.add_argument("--faster", type=float, default=1.0, help="how much faster ranks compute")
    parser.add_argument("--picture", type=Path, help="a picture of the efficiencies")
    options = parser.parse_args()
    if options.measure:
        group = slowed(options.network)
        for name in options.networks:
            measure(name, Network("slow", group.measured[0] / 2, 0.0, options.network))
        return
    found = {name: efficiencies(name, options.faster) for name in options.networks}
    if options.picture is not None:
        draw(found, options.picture)


if __name__ == "__main__":
    main()
