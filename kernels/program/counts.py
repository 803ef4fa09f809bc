"""Limits of the 32-bit counters in generated kernels, and the error beyond them.

Element offsets have 64 bits where an array is large. Rows, columns, terms of a sum and indices
along an axis have 32: wider indices would cost registers and time in every kernel.
"""

from __future__ import annotations

from collections.abc import Sequence

from graphc.base.errors import CompileError
from graphc.kernels.program.kernel import GridLaunch
from graphc.ops.fused import KernelNode

MOST = 2**31 - 2**16
"""The largest count that an int holds, with room for a tile that reaches beyond the last
element."""
GRID = (2**31 - 1, 65535, 65535)
"""The largest CUDA grid along each axis."""


def check_counts(node: KernelNode, **counts: int) -> None:
    """Raise CompileError if the kernel of `node` would count more than `MOST` of one of
    `counts`."""
    for name, count in counts.items():
        if count > MOST:
            what = name.replace("_", " ")
            raise CompileError(f"{_kernel(node)} has {count} {what}, at most {MOST} can be counted")


def check_grids(node: KernelNode, launches: Sequence[GridLaunch]) -> None:
    """Raise CompileError if a launch of the kernel of `node` has a larger grid than CUDA allows."""
    for launch in launches:
        for blocks, most in zip(launch.grid, GRID, strict=True):
            if blocks > most:
                raise CompileError(
                    f"{_kernel(node)} takes {blocks} blocks, a launch has at most {most}"
                )


def _kernel(node: KernelNode) -> str:
    name, where = node.op.kernel, str(node.where)
    return f"kernel {name} ({where})" if where else f"kernel {name}"
