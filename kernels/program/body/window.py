"""Lower pooling inside a body to a call of window.h, which reads the body's inputs in place."""

from __future__ import annotations

import math
from typing import Any

from graphc.ir import Node, Value
from graphc.kernels.program.access import AffineAccess, AffineIndex, index_access, memory_access
from graphc.kernels.program.body.statement import Address
from graphc.kernels.program.body.writer import Guards, Indices, StatementWriter
from graphc.ops.pointwise.logic import C_TYPES

WINDOWS = ("max_pool2d", "max_pool2d_grad", "avg_pool2d", "avg_pool2d_grad")
"""Names of the ops that are lowered here."""


def window(walk: StatementWriter, node: Node, indices: Indices, guards: Guards) -> tuple[str, ...]:
    """The registers of a pooling op's outputs, or of its gradient's, at `indices`."""
    op: Any = node.op
    assert not guards, f"{op.name} under pad or concat has windows that do not exist"
    n, c, row, column = indices
    grad = op.name.endswith("_grad")
    output = node.outputs[0].type.shape[2:]
    inner = node.inputs[0].type.shape[2:]
    size, pixels = (output, inner) if grad else (inner, output)
    numbers = (*op.kernel_size, *op.stride, *op.padding, *size, *pixels)
    counts = () if getattr(op, "count_include_pad", True) else ("false",)
    lanes = [index_access(p, walk.domain) for p in (row, column)]
    assert all(a.divisor == 1 for a in lanes), f"{op.name} is read between its pixels"
    reads = [strides(walk, v, (n, c, None, None)) for v in node.inputs]
    kinds = [("Reads", a.lane_stride, h.offset, w.offset) for _, (a, h, w) in reads]
    settings: list[object] = [("Pooling", *numbers, *counts), *kinds]
    if op.name == "max_pool2d":
        settings.insert(0, C_TYPES[node.outputs[1].type.dtype])
    settings += [a.lane_stride for a in lanes]
    results = [(v.name, v.type.dtype) for v in node.outputs]
    memory = (Address(pointer, accesses[0]) for pointer, accesses in reads)
    steps = tuple(abs(a.offset) for _, (_, *apart) in reads for a in apart)
    taps = _windows_of_pixel(op) if grad else math.prod(op.kernel_size)
    return walk.call(results, op.name, settings, *memory, *lanes, taps=taps, steps=steps)


def _windows_of_pixel(op: Any) -> int:
    """The largest number of windows that contain one pixel."""
    return math.prod(-(-k // s) for k, s in zip(op.kernel_size, op.stride, strict=True))


def strides(
    walk: StatementWriter, value: Value, indices: tuple[AffineIndex | None, ...]
) -> tuple[str, tuple[AffineAccess, ...]]:
    """The pointer of the body input behind `value`, the access with the axes without an index at 0,
    and for each of these axes an access whose offset is its stride in elements."""

    def at(free: int) -> tuple[str, AffineAccess]:
        whole = tuple(
            walk.domain.constant(int(d == free)) if p is None else p for d, p in enumerate(indices)
        )
        source, type, inner = walk.source(value, whole)
        return walk.pointers[source], memory_access(type, inner, walk.domain)

    pointer, base = at(-1)
    free = [d for d, p in enumerate(indices) if p is None]
    steps = (at(d)[1].offset - base.offset for d in free)
    return pointer, (base, *(AffineAccess(s, base.strides) for s in steps))
