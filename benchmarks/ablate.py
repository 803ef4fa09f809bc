"""What each pass is worth: `python -m benchmarks.ablate mnist-cnn-b100 lstm-h256-b32`.

For each workload a table: with each optional pass switched off in turn, and with all fusion off
(each op a kernel of its own), the time of a training step as a share of the whole pipeline's, the
launches of a step, the bytes that its kernels read and write, and the peak of work memory. The
programs are timed in turn, A B A B, and shares are medians of each round's ratio, since the machine
may be busy otherwise. A pass that changes nothing of a workload's plan has no line in its table.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median
from typing import Any
from unittest.mock import patch

import graphc
from benchmarks.run import Model, loss_fn
from benchmarks.workload import RATES
from benchmarks.workloads import find
from graphc import optim
from graphc.passes import pipeline
from graphc.passes.fuse.partition import Partition
from graphc.runtime.plan.plan import Launch, Loop, Plan, Step

HEADER = (
    "| switched off | time | launches | MB read and written | peak MB |",
    "| --- | --- | --- | --- | --- |",
)
NO_FUSION = "all fusion"


@dataclass(frozen=True)
class Variant:
    """A program with something switched off."""

    off: str
    plan: Plan
    step: Callable[[], Any]


@contextmanager
def no_fusion() -> Iterator[None]:
    """Let no node share a kernel with another."""
    left_out = ("fuse_attend", "fuse_axis", "fuse_updates")
    passes = tuple(each for each in pipeline.AFTER_GRADIENT if each[0] not in left_out)
    with (
        patch.object(Partition, "can_merge", lambda *_: False),
        patch.object(pipeline, "AFTER_GRADIENT", passes),
    ):
        yield


def variant(workload: str, off: str, threads: int) -> Variant:
    """The training step of a workload with a pass off; "" for none."""
    case = find(workload)
    data = case.data()
    assert case.rule is not None, f"{workload} has no training step with an update"
    rule = getattr(optim, case.rule)(**RATES[case.rule])
    specs = graphc.spec(data.x.shape, data.x.dtype), graphc.spec(data.y.shape, data.y.dtype)
    disable = (off,) if off in pipeline.OPTIONAL else ()
    options: dict[str, Any] = {"device": "cpu", "streams": 1, "threads": threads, "wait": True}
    model = Model(case, data)
    program = graphc.compile(loss_fn, model, *specs, update=rule, disable=disable, **options)
    assert program.plan is not None
    return Variant(off, program.plan, lambda: program(data.x, data.y))


def launches(plan: Plan) -> int:
    """Of one call, those of every iteration counted."""
    return sum(times for _, times in _launched(plan.steps, 1))


def moved(plan: Plan) -> int:
    """Bytes that the kernels of one call read and write, those of every iteration counted."""
    return sum(plan.kernels[step.kernel].bytes * times for step, times in _launched(plan.steps, 1))


def _launched(steps: Sequence[Step], times: int) -> Iterator[tuple[Launch, int]]:
    for step in steps:
        if isinstance(step, Launch):
            yield step, times
        elif isinstance(step, Loop):
            yield from _launched(step.steps, times * step.count)


def shares(variants: Sequence[Variant], rounds: int) -> dict[str, float]:
    """The median over the rounds of each one's time as a share of the first one's, which is played
    before and behind the others."""
    ratios: dict[str, list[float]] = {v.off: [] for v in variants}
    for each in variants:
        each.step()
    for _ in range(rounds):
        first = _seconds(variants[0])
        spent = {v.off: _seconds(v) for v in variants[1:]}
        again = _seconds(variants[0])
        ratios[variants[0].off].append(again / first)
        for off, seconds in spent.items():
            ratios[off].append(2 * seconds / (first + again))
    return {off: median(found) for off, found in ratios.items()}


def _seconds(variant: Variant) -> float:
    begin = time.perf_counter()
    variant.step()
    return time.perf_counter() - begin


def table(workload: str, rounds: int, threads: int) -> Iterator[str]:
    """The lines of a workload's table."""
    variants = [variant(workload, "", threads)]
    for off in pipeline.OPTIONAL:
        found = variant(workload, off, threads)
        if found.plan.steps != variants[0].plan.steps or _texts(found) != _texts(variants[0]):
            variants.append(found)
    with no_fusion():
        variants.append(variant(workload, NO_FUSION, threads))
    time_of = shares(variants, rounds)
    yield f"**{workload}**, {threads} threads, {rounds} rounds\n"
    yield from HEADER
    for each in variants:
        peak, plan = each.plan.peak_bytes / 1e6, each.plan
        cells = [each.off or "nothing", f"{time_of[each.off]:.2f}", str(launches(plan))]
        yield f"| {' | '.join([*cells, f'{moved(plan) / 1e6:.1f}', f'{peak:.2f}'])} |"


def _texts(variant: Variant) -> list[str]:
    return [kernel.canonical for kernel in variant.plan.kernels.values()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("workloads", nargs="+")
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    for workload in options.workloads:
        print("\n".join(table(workload, options.rounds, options.threads)), flush=True)


if __name__ == "__main__":
    main()
