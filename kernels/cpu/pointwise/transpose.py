"""Lower relayout: convert a value between row-major and lanes along one axis.

The axes before that axis repeat the same conversion; where lanes fill the axis, they add rows to
one conversion.
"""

from __future__ import annotations

import math

from graphc.base.target import Target
from graphc.ir import Node, Type
from graphc.kernels.cpu.shared.kernel_source import chunk_count
from graphc.kernels.program.body.names import identifier
from graphc.kernels.program.kernel import Kernel
from graphc.ops.pointwise.logic import C_TYPES

RUN = 1024
"""Elements after the first axis per tile: a multiple of every lane width."""


def lower_relayout(node: Node, target: Target) -> Kernel:
    """The kernel of a `relayout` node, named after its output; `inplace` is empty."""
    (source,), result = (v.type for v in node.inputs), node.output.type
    laned = result if result.layout.axis is not None else source
    plain = source if laned is result else result
    axis = laned.layout.axis
    known = axis is not None and laned.layout.width == target.lanes
    assert known and plain.layout.axis is None, f"relayout of {source} to {result}"
    name = identifier(node.output.name)
    matrix = _matrix(laned)
    tiles = matrix[0] * -(-matrix[1] // target.lanes) * -(-matrix[2] // RUN)
    moved = source.nbytes + result.nbytes
    chunks = chunk_count(moved / 20, tiles)
    return Kernel(
        name,
        "transpose",
        _text(node, name, laned is result, laned, tiles, chunks),
        phases=(chunks,),
        bytes=moved,
    )


def _matrix(laned: Type) -> tuple[int, int, int]:
    """Repeats, rows and columns: the extents before the axis in lanes, along it and after it.
    Repeats with full blocks of lanes count as rows."""
    axis = laned.layout.axis
    assert axis is not None
    repeats, rows = math.prod(laned.shape[:axis]), laned.shape[axis]
    columns = math.prod(laned.shape[axis + 1 :])
    return (repeats, rows, columns) if rows % laned.layout.width else (1, repeats * rows, columns)


def _text(node: Node, name: str, to_lanes: bool, laned: Type, tiles: int, chunks: int) -> str:
    comment = f"// {name}: relayout {node.inputs[0].type} to {node.output.type}  {node.where}"
    lines = [comment.rstrip(), '#include "cpu/shared/transpose.h"', "using namespace graphc;"]
    if not tiles:
        return "\n".join([*lines, f'extern "C" void {name}(void* const*, int, int) {{}}', ""])
    repeats, rows, columns = _matrix(laned)
    # A mask of four bytes would not fit: booleans move as the bytes that they are.
    kind = "uint8_t" if laned.dtype == "bool" else C_TYPES[laned.dtype]
    settings = f"{str(to_lanes).lower()}, {repeats}, {rows}, {columns}, {RUN}"
    cut = f"chunk * {tiles}L / {chunks}, (chunk + 1) * {tiles}L / {chunks}"
    lines += [
        f'extern "C" void {name}(void* const* arguments, int, int chunk) {{',
        f"  relayout<{settings}>((const {kind}*)arguments[0], ({kind}*)arguments[1],",
        f"    {cut});",
        "}",
        "",
    ]
    return "\n".join(lines)
