"""What the stages of a pipeline cost and save: memory, time, and how long they wait.

    mpiexec -n 2 python -m benchmarks.pipeline [--picture pipeline.png]

trains a chain of equal layers, cut into a stage for each rank, with several numbers of
micro-batches of one size. Each rank has one thread. A rank waits while no kernel of its passes
runs, from the beginning of the first pass to the end of the last one on any rank; the row has the
least share of several steps. With passes of equal length that is (p - 1) / (m + p - 1) for p stages
and m micro-batches. The picture shows the passes of a step of the last row.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np

import graphc
from graphc import nn, optim
from graphc.parallel.order import BACKWARD, FORWARD, passes
from graphc.runtime.plan.plan import Launch

LAYERS, WIDTH, ROWS = 8, 1024, 64
"""Layers of the chain, their features, and the samples of a micro-batch."""
BATCHES = (1, 2, 4, 8)
"""Micro-batches of the rows."""
STEPS = 5
"""Steps of a row."""

Spans = list[tuple[str, int, float, float]]
"""(direction, micro-batch, start, end) of passes in microseconds."""


def loss_of(model: Any, x: Any) -> Any:
    """The loss of samples."""
    return graphc.mean(graphc.square(model(x)))


def program(batches: int, parallel: Any = None) -> Any:
    """The training step of the chain, in a pipeline or in one process."""
    graphc.seed(0)
    layers = [layer for _ in range(LAYERS) for layer in (nn.Linear(WIDTH, WIDTH), nn.ReLU())]
    spec = graphc.spec((batches * ROWS, WIDTH))
    how = {"accumulate": batches} if parallel is None else {"parallel": parallel}
    model = nn.Sequential(*layers[:-1])
    return graphc.compile(
        loss_of, model, spec, update=optim.Adam(lr=1e-4), threads=1, wait=True, **how
    )


def spans(step: Any, rank: int, ranks: int, batches: int, x: Any) -> Spans:
    """The passes of a step, from the first kernel of each to the last one."""
    order = passes(rank, ranks, batches)
    found: dict[int, tuple[float, float]] = {}
    for number, start, stop in step.executable.timeline([x]):
        launch = step.plan.steps[number]
        turn = launch.where.turn if isinstance(launch, Launch) and not launch.stream else 0
        if turn:
            begin, end = found.get(turn, (start, stop))
            found[turn] = min(begin, start), max(end, stop)
    return [(*order[turn - 1], *found[turn]) for turn in sorted(found)]


def waiting(rows: list[Spans]) -> float:
    """The share of time in which a rank computes no pass, on average over ranks."""
    whole = max(stop for row in rows for *_, stop in row)
    busy = [sum(stop - start for *_, start, stop in row) for row in rows]
    return 1 - sum(busy) / (len(rows) * whole)


def measured(batches: int) -> list[Spans]:
    """Print a row; the passes of each rank in the step that waits least."""
    parallel = graphc.PipelineParallel(batches)
    rank, ranks, group = parallel.rank, parallel.ranks, parallel.group
    step = program(batches, parallel)
    x = np.random.default_rng(0).standard_normal((batches * ROWS, WIDTH)).astype(np.float32)
    step(x)
    found = []
    for _ in range(STEPS):
        group.collected(None)  # all begin together
        own = spans(step, rank, ranks, batches, x)
        found.append([[tuple(span) for span in row] for row in group.collected(own)])
    best = min(found, key=waiting)
    plan = step.plan
    state = sum(b.value.type.nbytes for b in plan.state)
    memory = group.collected([state, plan.peak_bytes])
    if rank == 0:
        alone = program(batches).plan
        one = sum(b.value.type.nbytes for b in alone.state), alone.peak_bytes
        least = (ranks - 1) / (batches + ranks - 1)
        print(
            f"{batches} micro-batches on {ranks} ranks: wait {100 * waiting(best):.0f} % "
            f"(at equal passes {100 * least:.0f} %); "
            f"state {', '.join(f'{s / 1e6:.1f}' for s, _ in memory)} MB "
            f"(one process {one[0] / 1e6:.1f}), "
            f"work {', '.join(f'{w / 1e6:.2f}' for _, w in memory)} MB ({one[1] / 1e6:.2f})",
            flush=True,
        )
    return best


def draw(rows: list[Spans], path: Path) -> None:
    """Draw the passes of all ranks over time."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(10, 0.9 + 0.6 * len(rows)), layout="constrained")
    colours = {FORWARD: "#9aa5b1", BACKWARD: "#3b6ea8"}
    for rank, row in enumerate(rows):
        for direction, batch, start, stop in row:
            place = -rank, (stop - start) / 1e3, 0.8, start / 1e3
            axes.barh(*place, color=colours[direction], edgecolor="white", linewidth=0.6)
            middle = (start + stop) / 2e3
            axes.text(middle, -rank, str(batch), ha="center", va="center", color="white")
    for direction, colour in colours.items():
        axes.barh(0, 0, color=colour, label=f"{direction} pass")
    axes.set_yticks([-r for r in range(len(rows))], [f"stage {r}" for r in range(len(rows))])
    axes.set_xlabel("milliseconds")
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside upper center", ncols=2, frameon=False)
    figure.savefig(path, dpi=130)


def main() -> None:
    """Measure all rows."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--picture", type=Path, help="a picture of a step of the last row")
    options = parser.parse_args()
    for batches in BATCHES:
        rows = measured(batches)
    if options.picture is not None and graphc.PipelineParallel(1).rank == 0:
        draw(rows, options.picture)


if __name__ == "__main__":
    main()
