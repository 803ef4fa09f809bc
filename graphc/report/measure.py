"""Measuring a program for its report."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np

from graphc.inspect.profile import Measurable, Profile, profile_of
from graphc.inspect.subject import Subject
from graphc.ir import Array
from graphc.runtime.plan.plan import Plan

SECONDS = 0.5
"""About as long as the calls may take in which kernels are timed; of a call that takes longer there
is one."""
MOST_REPEATS = 20


def measured(
    program: Subject, plan: Plan, executable: Measurable, arrays: Sequence[Array] | None
) -> Profile:
    """The profile of the program in as many calls as a report can wait for. The state stays as it
    is. Without `arrays` zeros are used, which any index may be."""
    if arrays is None:
        arrays = [np.zeros(b.value.type.shape, b.value.type.numpy_dtype) for b in plan.inputs]
    begin = time.perf_counter()
    executable.calls(arrays, 1)
    once = max(time.perf_counter() - begin, 1e-9)
    repeats = max(1, min(MOST_REPEATS, int(SECONDS / once)))
    return profile_of(program, executable, arrays, repeats)
