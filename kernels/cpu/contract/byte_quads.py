"""Compute products of bytes in groups of four, in place of pairs of bf16.

Code that moves pairs of bf16 (panels, tile registers, broadcasts) moves four bytes in the same way.
So a nest of bytes becomes a nest of half as many two-byte elements; only the multiplication
differs.
"""

from __future__ import annotations

from dataclasses import replace

from graphc.ir import Type
from graphc.kernels.program.nest import Nest, Read

TOGETHER = 4
"""Bytes per 32-bit group."""

FEW = 4
"""The fewest rows and columns for which a tile beats the plain loop, which compilers vectorize:
1024 x 1024 bytes by one row take 14 us instead of 40 (AMD Zen 4)."""


def in_quads(nest: Nest) -> Nest | None:
    """The nest of a product of bytes as a nest of two-byte elements.

    None for other products, for few rows or columns, and where neighbours along the sum are not
    neighbours in memory.
    """
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
