"""Measuring a program for its report."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from graphc.ir import Array
from graphc.report.data import Measured
from graphc.runtime.plan.plan import Plan

SECONDS = 1.0
"""About as long as the times of kernels may take, beyond one call that is always measured."""
MOST_REPEATS = 20


def measured(executable: Any, plan: Plan, arrays: Sequence[Array] | None) -> Measured:
    """The times of kernels, one after another, and one call as it ran where the device tells. The
    state stays as it is. Without `arrays` zeros are used, which any index may be."""
    if arrays is None:
        arrays = [np.zeros(b.value.type.shape, b.value.type.numpy_dtype) for b in plan.inputs]
    begin = time.perf_counter()
    rows = executable.profile(arrays, 1)
    once = max(time.perf_counter() - begin, 1e-9) / 2
    if once < SECONDS:
        rows = executable.profile(arrays, min(MOST_REPEATS, int(SECONDS / once)))
    calls: Counter[str] = Counter()
    spent: dict[str, float] = {}
    for row in rows:
        calls[row.name] += row.calls
        spent[row.name] = spent.get(row.name, 0.0) + row.microseconds
    timeline = getattr(executable, "timeline", None)
    return Measured(
        {name: spent[name] / count for name, count in calls.items()},
        tuple(timeline(arrays)) if timeline else (),
    )
