"""Lowering of the gradient of take: each chunk owns rows of the table and scans the indices."""

from __future__ import annotations

import math
from collections.abc import Sequence

from graphc.ir import Value
from graphc.kernels.cpu.shell import argument_order, array_text, chunk_count, framed, symbol
from graphc.kernels.program.access import Access, Domain, merge_axes, merged
from graphc.kernels.program.axis import only_node
from graphc.kernels.program.expression import Walk
from graphc.kernels.program.kernel import Kernel
from graphc.kernels.program.names import Names
from graphc.ops.base import View
from graphc.ops.fused import KernelNode
from graphc.ops.indexing import TakeGrad
from graphc.ops.logic import C_TYPES
from graphc.target import Target


def lower_index(node: KernelNode, target: Target) -> Kernel:
    """The kernel of a body of one take_grad; it reads row-major inputs and constants through
    views."""
    body = node.body
    inner, op = only_node(node, TakeGrad)
    assert body.outputs == inner.outputs, f"{node.op.kernel}: nothing follows take_grad"
    values = (*body.inputs, *body.outputs)
    indices, dy = inner.inputs
    last = op.axis + indices.type.rank
    reader = Reader(node)
    rank = dy.type.rank
    sections = [
        reader.read(dy, "Before", range(op.axis)),
        reader.read(dy, "Places", range(op.axis, last)),
        reader.read(dy, "After", range(last, rank)),
        reader.read(indices, "Indices", range(indices.type.rank)),
    ]
    table = inner.output.type
    nanoseconds = table.nbytes / 20 + dy.type.nbytes / 10 + indices.type.size
    chunks = chunk_count(nanoseconds, op.extent)
    arrays = reader.arrays()
    shell = _shell(node, reader, (indices, dy), op.extent, chunks if table.size else 0)
    return Kernel(
        symbol(node),
        "index",
        framed(node, "index", arrays, *sections, shell),
        phases=(chunks,),
        flops=dy.type.size,
        bytes=sum(v.type.nbytes for v in values),
    )


class Reader:
    """Finds what memory lies behind the inputs of take_grad, and prints how it is read."""

    def __init__(self, node: KernelNode) -> None:
        self.body, self.order = node.body, argument_order(node)
        self.names = Names()
        self.constants: dict[Value, str] = {}

    def read(self, value: Value, name: str, axes: Sequence[int]) -> str:
        """A struct of the extents and strides of some axes of `value`, merged where they can be."""
        domain = Domain(value.type.shape)
        _, access = self._source(value, domain)
        shape = tuple(domain.extents[d] for d in axes)
        part = Access(0, tuple(access.strides[d] for d in axes))
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
        """The C++ expression of the first element that is read of `value`."""
        source, access = self._source(value, Domain(value.type.shape))
        kind = C_TYPES[value.type.dtype]
        base = self.constants.get(source) or f"(const {kind}*)arguments[{self.order[source]}]"
        return f"{base} + {access.offset}"

    def arrays(self) -> str:
        """The constants as memory of the kernel."""
        producers = self.body.producers
        arrays = {p: producers[v].op.reference()[0] for v, p in self.constants.items()}
        return array_text(arrays)

    def _source(self, value: Value, domain: Domain) -> tuple[Value, Access]:
        """The input or constant that `value` is a view of, and where its elements lie."""
        source, producers = value, self.body.producers
        while source not in self.body.inputs and isinstance(producers[source].op, View):
            (source,) = producers[source].inputs
        if source not in self.body.inputs and source not in self.constants:
            assert producers[source].op.name == "constant", f"take_grad computes {source}"
            self.constants[source] = self.names.fresh(source.name, "data")
        inputs = (*self.body.inputs, *self.constants)
        walk = Walk(self.body, domain, {v: v.name for v in inputs}, inputs=inputs)
        return source, walk.address(value, domain.identity())


def _shell(
    node: KernelNode, reader: Reader, values: Sequence[Value], extent: int, chunks: int
) -> str:
    if not chunks:
        return f'extern "C" void {symbol(node)}(void* const*, int, int) {{}}\n'
    indices, dy = values
    output = f"({C_TYPES[dy.type.dtype]}*)arguments[{len(reader.body.inputs)}]"
    cut = f"chunk * {extent}L / {chunks}, (chunk + 1) * {extent}L / {chunks}"
    return (
        f'extern "C" void {symbol(node)}(void* const* arguments, int, int chunk) {{\n'
        f"  take_grad<Before, Places, After, Indices, {extent}>({reader.pointer(indices)},\n"
        f"      {reader.pointer(dy)}, {output}, {cut});\n"
        "}\n"
    )
