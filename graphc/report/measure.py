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
    """Return the profile of a program from as many calls as a report can wait for.

    The state stays as it is. Without `arrays` it uses zeros, which are valid indices.
    """
    if arrays is None:
        arrays = [np.zeros(b.value.type.shape, b.value.type.numpy_dtype) for b in plan.inputs]
    begin = time.perf_counter()
    executable.calls(arrays, 1)
    once = max(time.perf_counter() - begin, 1e-9)
    repeats = max(1, min(MOST_REPEATS, int(SECONDS / once)))
    return profile_of(program, executable, arrays, repeats)
