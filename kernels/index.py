"""Lowering of the gradient of take: each chunk owns rows of the table and scans the indices."""

from __future__ import annotations

import math

from graphc.ir import Node
from graphc.kernels.expression import C_TYPES
from graphc.kernels.kernel import Kernel
from graphc.kernels.shell import chunk_count, framed, symbol
from graphc.ops.fused import Fused
from graphc.target import Target


def lower_index(node: Node, target: Target) -> Kernel:
    """The kernel of a body of one take_grad over row-major inputs."""
    assert isinstance(node.op, Fused)
    body = node.op.body
    assert len(body.nodes) == 1, f"{node.op.kernel}: take_grad stands alone in its kernel"
    inner = body.nodes[0]
    values = (*body.inputs, *body.outputs)
    assert all(v.type.layout.axis is None for v in values), "take_grad is row-major"
    order = [body.inputs.index(v) for v in inner.inputs]
    indices, dy = (v.type for v in inner.inputs)
    table, axis = inner.output.type, inner.op.axis  # type: ignore[attr-defined]
    before, after = math.prod(table.shape[:axis]), math.prod(table.shape[axis + 1 :])
    extent, count = table.shape[axis], indices.size
    chunks = chunk_count(table.nbytes / 20 + dy.nbytes / 10 + count * 1.0, extent)
    numbers = f"{before}, {extent}, {after}, {count}"
    kinds = [C_TYPES[t.dtype] for t in (indices, dy)]
    lines = []
    if table.size:
        lines = [
            f"  take_grad<{numbers}>((const {kinds[0]}*)arguments[{order[0]}], "
            f"(const {kinds[1]}*)arguments[{order[1]}],",
            f"    ({kinds[1]}*)arguments[{len(body.inputs)}], "
            f"chunk * {extent}L / {chunks}, (chunk + 1) * {extent}L / {chunks});",
        ]
    parameters = "void* const* arguments, int, int chunk" if lines else "void* const*, int, int"
    shell = [f'extern "C" void {symbol(node)}({parameters}) {{', *lines, "}", ""]
    return Kernel(
        symbol(node),
        "index",
        framed(node, "index", "\n".join(shell)),
        phases=(chunks,),
        flops=dy.size,
        bytes=indices.nbytes + dy.nbytes + table.nbytes,
    )
