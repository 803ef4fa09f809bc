"""Plain nests: one serial loop over all axes of a pointwise part."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping

from graphc.ir import Value, dtype_name
from graphc.kernels.loops.language import Loop, Memory, Nest
from graphc.kernels.program.pointwise_nest import PointwiseNest
from graphc.ops.base import Array


def plain_nest(part: PointwiseNest) -> Nest:
    """The nest that stores the outputs of `part`, element after element."""
    program = part.program
    loop = Loop(tuple(range(part.domain.rank)), "serial", program.statements)
    return Nest(part.domain, memory_of(part.used, part.outputs, program.arrays), (loop,))


def memory_of(
    used: Mapping[str, Value], written: Collection[Value], arrays: Mapping[str, Array]
) -> tuple[Memory, ...]:
    """The memory of values by pointer name, some of which are written, and of constants."""
    memory = [
        Memory(name, value.type.dtype, math.prod(value.type.storage_shape), value in written)
        for name, value in used.items()
    ]
    for name, array in arrays.items():
        dtype = dtype_name(array.dtype)
        memory.append(Memory(name, dtype, array.size, False, array.tobytes()))
    return tuple(memory)
