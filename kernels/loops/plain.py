"""Plain nests: one serial loop over all axes of a pointwise part."""

from __future__ import annotations

import math

from graphc.ir import dtype_name
from graphc.kernels.loops.language import Loop, Memory, Nest
from graphc.kernels.program.pointwise_nest import PointwiseNest


def plain_nest(part: PointwiseNest) -> Nest:
    """The nest that stores the outputs of `part`, element after element."""
    outputs, program = set(part.outputs), part.program
    memory = [
        Memory(name, value.type.dtype, math.prod(value.type.storage_shape), value in outputs)
        for name, value in part.used.items()
    ]
    for name, array in program.arrays.items():
        dtype = dtype_name(array.dtype)
        memory.append(Memory(name, dtype, array.size, False, array.tobytes()))
    axes = tuple(range(part.domain.rank))
    loop = Loop(axes, "serial", program.statements)
    return Nest(part.domain, tuple(memory), (loop,))
