"""All workloads by name; `benchmarks.workload` says what one is."""

from __future__ import annotations

from collections.abc import Mapping

from benchmarks.families import convolutions, gpt, pointwise, recurrent, resnet, stack
from benchmarks.workload import Workload

FAMILIES = (stack, recurrent, convolutions, resnet, gpt, pointwise)
FOR_CPU: Mapping[str, Workload] = {w.name: w for family in FAMILIES for w in family.WORKLOADS}
LARGER: Mapping[str, Workload] = {
    w.name: w for family in FAMILIES for w in getattr(family, "LARGER", ())
}
"""What is for GPUs: a step of these takes a CPU seconds, or minutes."""
WORKLOADS: Mapping[str, Workload] = {**FOR_CPU, **LARGER}


def find(name: str) -> Workload:
    """The workload of that name, or SystemExit with the names that there are."""
    if name not in WORKLOADS:
        raise SystemExit(f"workload: expected one of {', '.join(WORKLOADS)}, got {name!r}")
    return WORKLOADS[name]
