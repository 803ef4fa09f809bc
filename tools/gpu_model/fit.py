"""Fit the model's constants to times of micro-kernels, by least squares of relative errors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tools.gpu_check.micro import Micro
from tools.gpu_model.machine import Machine

Array = np.ndarray[Any, np.dtype[np.float64]]


def costs(micros: Sequence[Micro], seconds: Mapping[str, float]) -> dict[str, float]:
    """The seconds of each cost, none negative, with which the sums of the micro-kernels' costs come
    closest to their times. Those without a time are left out."""
    timed = [micro for micro in micros if seconds.get(micro.name, 0) > 0]
    names = sorted({name for micro in timed for name in micro.costs})
    rows = [[m.costs.get(name, 0) / seconds[m.name] for name in names] for m in timed]
    table = np.array(rows, np.float64).reshape(len(timed), len(names))
    scales = np.linalg.norm(table, axis=0)
    found = not_negative(table / scales, np.ones(len(timed))) / scales
    return {name: float(cost) for name, cost in zip(names, found, strict=True)}


def not_negative(table: Array, wanted: Array) -> Array:
    """The least squares of |table x - wanted|, without the columns whose x would be negative: they
    leave one by one, the most negative first, and their x is 0."""
    kept = np.ones(table.shape[1], bool)
    found: Array = np.zeros(table.shape[1])
    while kept.any():
        found[:] = 0
        found[kept] = np.linalg.lstsq(table[:, kept], wanted, rcond=None)[0]
        if found.min() >= 0:
            break
        kept[found.argmin()] = False
    return found


def constants(found: Mapping[str, float]) -> dict[str, float]:
    """The model's constants by the costs; those that no micro-kernel has measured are missing."""
    known = {name: cost for name, cost in found.items() if cost > 0}
    made: dict[str, float] = {n: known[n] for n in ("node", "gap", "wait") if n in known}
    inverses = {"copy": "copied", "l2": "read", "mma_share": "mma", "wgmma_share": "wgmma"}
    made |= {name: 1 / known[cost] for name, cost in inverses.items() if cost in known}
    if "cycle" not in known:
        return made
    cycle = known["cycle"]
    made["clock"] = 1 / cycle
    latencies = {"l1_latency": "l1", "l2_latency": "l2", "memory_latency": "memory"}
    latencies |= {"shared_latency": "shared", "barrier": "barrier", "shuffle": "shuffle"}
    made |= {name: known[cost] / cycle for name, cost in latencies.items() if cost in known}
    return made | ({"issue_share": cycle / known["slot"]} if "slot" in known else {})


def fitted(machine: Machine, found: Mapping[str, float]) -> Machine:
    """The machine with these constants in place of its own."""
    changes: dict[str, Any] = dict(found)
    return replace(machine, name=machine.name.replace("model", "fitted"), **changes)


def explained(
    micros: Sequence[Micro], seconds: Mapping[str, float], found: Mapping[str, float]
) -> dict[str, float]:
    """For each timed micro-kernel its time over the sum of its costs: 1 where the fit holds."""
    sums = {m.name: sum(n * found.get(c, 0) for c, n in m.costs.items()) for m in micros}
    timed = {name: total for name, total in sums.items() if total and name in seconds}
    return {name: seconds[name] / total for name, total in timed.items()}
