"""Products of bytes four at a time: as products of bf16 in pairs, whose places four bytes take.

Whatever moves pairs of bf16 (panels, tile registers, broadcasts) moves four bytes the same way, so
that a nest of bytes is one of half as many elements of two bytes; only what multiplies differs.
"""

from __future__ import annotations

from dataclasses import replace

from graphc.ir import Type
from graphc.kernels.program.nest import Nest, Read

TOGETHER = 4
"""Bytes of 32 bits."""

FEW = 4
"""Rows and columns from which on a tile is faster than the plain loop, whose sums over neighbours
compilers make vector code of: of 1024 x 1024 bytes and one row 14 us instead of 40 (AMD Zen 4)."""


def in_quads(nest: Nest) -> Nest | None:
    """The nest of a product of bytes as one of elements of two bytes; None for other products, for
    few rows or columns, and where neighbours along the sum are not neighbours in memory."""
    if nest.node.op.name != "matmul_bytes":
        return None
    (summed,) = nest.summed
    axis = nest.axes[summed]
    if axis.extent % TOGETHER or min(nest.axes[a].extent for a in nest.kept) < FEW:
        return None
    a, b = _halved(nest.a, summed), _halved(nest.b, summed)
    if a is None or b is None:
        return None
    axes = (*nest.axes[:summed], replace(axis, extent=axis.extent // 2), *nest.axes[summed + 1 :])
    return replace(nest, axes=axes, a=a, b=b)


def _halved(read: Read, summed: int) -> Read | None:
    """`read` in elements of two bytes."""
    others = [s for axis, s in enumerate(read.strides) if axis != summed]
    if read.strides[summed] != 1 or read.lanes is not None or read.borders or read.quotients:
        return None
    if any(s % TOGETHER for s in (*others, read.offset)) or read.type.shape[-1] % 2:
        return None
    type = Type((*read.type.shape[:-1], read.type.shape[-1] // 2), "bf16")
    strides = tuple(s if axis == summed else s // 2 for axis, s in enumerate(read.strides))
    return replace(read, type=type, strides=strides, offset=read.offset // 2)
