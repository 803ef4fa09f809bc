"""The GPUs that programs are exported for."""

from __future__ import annotations

import re

OLDEST = 80
"""The oldest compute capability that kernels are made for, times ten."""
_ARCH = re.compile(r"sm_(\d{2,3})([af]?)")


def architectures(target: str) -> tuple[str, ...]:
    """Return what nvcc makes for a target, machine code and PTX; () if it names no GPU.

    "cuda" is machine code for compute capability 8.x and 9.0, which are the data centre's, and PTX
    for all newer ones. "sm_89" is that architecture and PTX for newer ones, "sm_90a", which has
    instructions that no other one has, itself alone.

    Example:
        >>> architectures("sm_86")
        ('sm_86', 'compute_86')
    """
    if target == "cuda":
        return ("sm_80", "sm_90a", "compute_80")
    found = _ARCH.fullmatch(target)
    if found is None or int(found[1]) < OLDEST:
        return ()
    return (target,) if found[2] else (target, f"compute_{found[1]}")
