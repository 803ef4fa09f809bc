"""Lower relayout: convert a value between row-major and lanes along one axis.

The axes before that axis repeat the same conversion; where lanes fill the axis, they add rows to
one conversion.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from graphc.base.target import Target
from graphc.ir import Node, Type
from graphc.kernels.cpu.shared.kernel_source import chunk_count
from graphc.kernels.program.body.names import identifier
from graphc.kernels.program.kernel import Kernel, origin_of
from graphc.ops.pointwise.logic import C_TYPES

RUN = 1024
"""Elements after the first axis per tile: a multiple of every lane width."""


def lower_relayout(node: Node, target: Target) -> Kernel:
    """The kernel of a `relayout` node, named after its output; `inplace` is empty."""
    cut = Conversion.of(node)
    assert cut.laned.layout.width == target.lanes, f"relayout of {cut.laned}"
    name = identifier(node.output.name)
    moved = node.inputs[0].type.nbytes + node.output.type.nbytes
    chunks = chunk_count(moved / 20, cut.tiles)
    text, origin = _text(name, cut, chunks), origin_of(node)
    return Kernel(name, "transpose", text, phases=(chunks,), bytes=moved, origin=origin)


@dataclass(frozen=True)
class Conversion:
    """What a relayout converts."""

    laned: Type
    """The type of the value in lanes."""
    to_lanes: bool
    """Whether that is the output."""

    @classmethod
    def of(cls, node: Node) -> Conversion:
        """That of a relayout node."""
        source, result = node.inputs[0].type, node.output.type
        to_lanes = result.layout.axis is not None
        laned, plain = (result, source) if to_lanes else (source, result)
        known = laned.layout.axis is not None and plain.layout.axis is None
        assert known, f"relayout of {source} to {result}"
        return cls(laned, to_lanes)

    @property
    def matrix(self) -> tuple[int, int, int]:
        """Repeats, rows and columns: the extents before the axis in lanes, along it and after it.
        Repeats with full blocks of lanes count as rows."""
        axis, shape = self.laned.layout.axis, self.laned.shape
        assert axis is not None
        repeats, rows, columns = math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :])
        whole = rows % self.laned.layout.width == 0
        return (1, repeats * rows, columns) if whole else (repeats, rows, columns)

    @property
    def tiles(self) -> int:
        """Blocks of rows by runs of columns, in all repeats."""
        repeats, rows, columns = self.matrix
        return repeats * -(-rows // self.laned.layout.width) * -(-columns // RUN)


def _text(name: str, cut: Conversion, chunks: int) -> str:
    laned, tiles = cut.laned, cut.tiles
    lines = ['#include "cpu/shared/transpose.h"', "using namespace graphc;"]
    if not tiles:
        return "\n".join([*lines, f'extern "C" void {name}(void* const*, int, int) {{}}', ""])
    repeats, rows, columns = cut.matrix
    # A mask of four bytes would not fit: booleans move as the bytes that they are.
    kind = "uint8_t" if laned.dtype == "bool" else C_TYPES[laned.dtype]
    settings = f"{str(cut.to_lanes).lower()}, {repeats}, {rows}, {columns}, {RUN}"
    part = f"chunk * {tiles}L / {chunks}, (chunk + 1) * {tiles}L / {chunks}"
    lines += [
        f'extern "C" void {name}(void* const* arguments, int, int chunk) {{',
        f"  relayout<{settings}>((const {kind}*)arguments[0], ({kind}*)arguments[1],",
        f"    {part});",
        "}",
        "",
    ]
    return "\n".join(lines)
