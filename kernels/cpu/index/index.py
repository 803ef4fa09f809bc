"""Lower the gradient of take: each chunk owns rows of the table and scans the indices."""

from __future__ import annotations

import math
from collections.abc import Sequence

from graphc.base.target import Target
from graphc.ir import Value
from graphc.kernels.cpu.shared.kernel_source import (
    argument_order,
    array_text,
    chunk_count,
    entry,
    make_kernel,
    share,
)
from graphc.kernels.program.access import AffineAccess, Domain, merge_axes, merged
from graphc.kernels.program.axis import only_node
from graphc.kernels.program.kernel import Kernel
from graphc.kernels.program.operands import constant_operands, find_operands
from graphc.ops.fused import KernelNode
from graphc.ops.indexing import TakeGrad
from graphc.ops.pointwise.logic import C_TYPES


def lower_index(node: KernelNode, target: Target) -> Kernel:
    """The kernel of a body with one take_grad of row-major inputs and constants, read through
    views."""
    inner, op = only_node(node, TakeGrad)
    (indices, dy), table = inner.inputs, inner.output.type
    assert node.body.outputs == inner.outputs, "nothing follows take_grad"
    last = op.axis + indices.type.rank
    reader = Reader(node, inner.inputs)
    nanoseconds = table.nbytes / 20 + dy.type.nbytes / 10 + indices.type.size
    chunks = chunk_count(nanoseconds, op.extent)
    output = f"({C_TYPES[dy.type.dtype]}*)arguments[{len(node.inputs)}]"
    lines = [
        f"take_grad<Before, Places, After, Indices, {op.extent}>({reader.pointer(indices)},",
        f"    {reader.pointer(dy)}, {output}, {share(op.extent, chunks)});",
    ]
    sections = [
        array_text(reader.arrays),
        reader.read(dy, "Before", range(op.axis)),
        reader.read(dy, "Places", range(op.axis, last)),
        reader.read(dy, "After", range(last, dy.type.rank)),
        reader.read(indices, "Indices", range(indices.type.rank)),
        entry(node, lines),
    ]
    return make_kernel(node, sections, (chunks,), flops=dy.type.size)


class Reader:
    """Prints how values are read through views from the memory behind them."""

    def __init__(self, node: KernelNode, values: Sequence[Value]) -> None:
        body, self._order = node.body, argument_order(node)
        self._operands = dict(zip(values, find_operands(body, values), strict=True))
        self._constants, self.arrays = constant_operands(body, [*self._operands.values()])

    def read(self, value: Value, name: str, axes: Sequence[int]) -> str:
        """A C++ struct with the extents and strides of `axes` of `value`, merged where possible."""
        shape = tuple(value.type.shape[d] for d in axes)
        part = AffineAccess(0, tuple(self._operands[value].strides[d] for d in axes))
        small, groups = merge_axes(Domain(shape), [part])
        strides = merged(part, groups).strides
        lists = [", ".join(map(str, x or (1,))) for x in (small.extents, strides)]
        return (
            f"struct {name} {{\n"
            f"  static constexpr int RANK = {small.rank};\n"
            f"  static constexpr long SIZE = {math.prod(shape)};\n"
            f"  static constexpr long EXTENT[] = {{{lists[0]}}}, STRIDE[] = {{{lists[1]}}};\n"
            "};\n"
        )

    def pointer(self, value: Value) -> str:
        """The C++ expression of the first element read of `value`."""
        operand, kind = self._operands[value], C_TYPES[value.type.dtype]
        base = self._constants.get(operand.source)
        base = base or f"(const {kind}*)arguments[{self._order[operand.source]}]"
        return f"{base} + {operand.offset}"
