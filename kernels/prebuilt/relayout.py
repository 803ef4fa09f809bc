"""Describe conversions of layouts."""

from __future__ import annotations

import struct

from graphc.base.target import Target
from graphc.ir import Node
from graphc.kernels.cpu.pointwise.transpose import RUN, Conversion
from graphc.kernels.prebuilt.description import Prebuilt
from graphc.kernels.program.kernel import Kernel

KINDS = {
    "bool": 0,
    "u8": 0,
    "i8": 0,
    "f16": 1,
    "bf16": 2,
    "f32": 3,
    "i32": 3,
    "f64": 4,
    "i64": 4,
}
"""The number of the function that moves elements of a dtype."""


def describe_relayout(node: Node, kernel: Kernel, target: Target) -> Prebuilt | None:
    """The description of a relayout's kernel."""
    cut = Conversion.of(node)
    kind, chunks = KINDS[cut.laned.dtype], kernel.phases[0]
    data = struct.pack("<8q", kind, cut.to_lanes, *cut.matrix, RUN, cut.tiles, chunks)
    return Prebuilt("graphc_relayout", data)
