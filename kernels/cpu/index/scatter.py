"""Lower scatter: store rows of elements at the positions that indices name."""

from __future__ import annotations

import math

from graphc.base.target import Target
from graphc.ir import Value
from graphc.kernels.cpu.index.index import Reader
from graphc.kernels.cpu.shared.kernel_source import (
    array_text,
    chunk_count,
    entry,
    make_kernel,
    share,
)
from graphc.kernels.program.axis import JOINS, only_node, overwritten
from graphc.kernels.program.kernel import Kernel
from graphc.ops.fused import KernelNode
from graphc.ops.pointwise.logic import C_TYPES
from graphc.ops.scatter import Scatter

STRIP = 64
"""Neighbouring rows that are processed together."""


def lower_scatter(node: KernelNode, target: Target) -> Kernel:
    """The kernel of a body with one scatter of row-major inputs, read through views."""
    inner, op = only_node(node, Scatter)
    x, indices, _ = inner.inputs
    shape = x.type.shape
    before, behind = math.prod(shape[: op.axis]), math.prod(shape[op.axis + 1 :])
    units = before * -(-behind // STRIP)
    count = indices.type.shape[op.axis]
    chunks = chunk_count(x.type.size + 2.0 * indices.type.size, units)
    reader = Reader(node, inner.inputs)
    operands = list(zip(inner.inputs, ("Old", "Place", "Source"), ("j", "i", "i"), strict=True))
    structs = [_structs(reader, v, n, op.axis) for v, n, _ in operands]
    kind, output = C_TYPES[x.type.dtype], f"arguments[{len(node.inputs)}]"
    pairs = overwritten(node, inner)
    kept = "".join(f"arguments[{i}] == {output}, " for i, _ in pairs) or "false, "
    settings = f"{JOINS[op.combine]}, {x.type.shape[op.axis]}, {count}, {behind}, {STRIP}"
    lines = [
        *(f"const auto* const {n.lower()}_data = {reader.pointer(v)};" for v, n, _ in operands),
        f"scatter<{settings}>({share(units, chunks)}, {kept}({kind}*){output},",
        ",\n".join(f"    {_functor(n, i)}" for _, n, i in operands) + ");",
    ]
    sections = [array_text(reader.arrays), *structs, entry(node, lines)]
    return make_kernel(node, sections, (chunks,), flops=indices.type.size, inplace=pairs)


def _structs(reader: Reader, value: Value, name: str, axis: int) -> str:
    rank = value.type.rank
    parts = (("Before", range(axis)), ("Axis", (axis,)), ("After", range(axis + 1, rank)))
    return "".join(reader.read(value, name + part, axes) for part, axes in parts)


def _functor(name: str, index: str) -> str:
    offsets = f"offset<{name}Before>(a) + offset<{name}Axis>({index}) + offset<{name}After>(b)"
    head = f"[=](long a, long {index}, long b) __attribute__((always_inline))"
    return f"{head} {{ return {name.lower()}_data[{offsets}]; }}"
