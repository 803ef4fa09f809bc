"""Compare measurements with the goals: graphc and the fastest of PyTorch's variants."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tools.gpu_check.goals import GOALS, OTHERS, Goal, Measurement, goal_of, measurements

NOTE = (
    "PyTorch's own default is tf32 in convolutions and float32 in matrix products. Here a name "
    "without _tf32 or _bf16 is float32 in both, _tf32 tf32 in both, _bf16 autocast to bfloat16; "
    "compare graphc's float32 with the first, tf32 with the second, bfloat16 with the third."
)
PRECISIONS = ("float32", "tf32", "bfloat16")


def compared(lines: Sequence[Mapping[str, Any]], workloads: Sequence[str]) -> list[str]:
    """The note and a line for each workload, mode and precision that both were measured in, below
    the goal that names the workload: the speedup of graphc's best over PyTorch's, then ms of calls,
    and in brackets of the GPU alone."""
    times = {line["name"]: line for line in lines if "median_ms" in line}
    told: list[str] = []
    for goal in (*GOALS, OTHERS):
        rows = list(_rows(times, [w for w in workloads if goal_of(w) is goal]))
        told += [_title(goal), *rows] if rows else []
    return [NOTE, *told] if told else []


def _title(goal: Goal) -> str:
    return f"Goal: {goal.text}" if goal.text else "Without a goal"


def _rows(times: Mapping[str, Mapping[str, Any]], workloads: Sequence[str]) -> Iterator[str]:
    taken = [each for each in measurements(workloads) if each.name in times]
    for workload in workloads:
        for mode in ("train", "forward"):
            for precision in PRECISIONS:
                found = [
                    m for m in taken
                    if (m.workload, m.mode, m.precision) == (workload, mode, precision)
                ]  # fmt: skip
                sides = [[m for m in found if m.peer == peer] for peer in ("graphc", "torch")]
                if all(sides):
                    yield _row(times, f"{workload} {mode} {precision}", *sides)


def _row(
    times: Mapping[str, Mapping[str, Any]],
    title: str,
    ours: Sequence[Measurement],
    theirs: Sequence[Measurement],
) -> str:
    def ms(each: Measurement) -> float:
        return float(times[each.name]["median_ms"])

    def shown(each: Measurement) -> str:
        alone = times[each.name].get("gpu_ms")
        return f"{each.variant} {ms(each)} ({alone})" if alone else f"{each.variant} {ms(each)}"

    ratio = min(map(ms, theirs)) / min(map(ms, ours))
    both = [", ".join(shown(m) for m in sorted(side, key=ms)) for side in (ours, theirs)]
    return f"  {title}: {ratio:.2f}; graphc {both[0]}; PyTorch {both[1]}"
