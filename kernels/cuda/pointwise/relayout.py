"""Lower conversions of layouts to relayout.cuh: each value is a range of the launch's blocks."""

from __future__ import annotations

import math

from graphc.ir import Graph, Node, Type
from graphc.kernels.cuda.shared.launches import Launches
from graphc.kernels.program.body.names import Identifiers
from graphc.kernels.program.counts import check_counts
from graphc.kernels.program.kernel import Kernel
from graphc.ops.fused import Fused, KernelNode
from graphc.ops.pointwise.logic import C_TYPES

MOVED = 1024
"""Approximate elements of a tile: four per thread."""
LINE = 32
"""Neighbours of a tile that are read or written together, where there are that many."""


def conversion(node: Node) -> KernelNode:
    """A relayout by itself as a fused node."""
    (source,), (result,) = node.inputs, node.outputs
    body = Graph(result.name, (source,), (), (node,), (result,))
    return KernelNode(Fused(result.name, body), (source,), (result,), node.where)


def lower_relayout(node: KernelNode) -> Kernel:
    """The kernel of a fused node whose body is relayouts of its inputs."""
    body, names = node.body, Identifiers()
    pointers = names.pointers(body)
    lines, blocks, most = [], 0, 0
    for part in body.nodes:
        (source,), (result,) = part.inputs, part.outputs
        settings, count, elements = _tiles(node, source.type, result.type)
        if not count:
            continue
        call = f"run(blockIdx.x - {blocks}, {pointers[source]}, {pointers[result]}, shared)"
        blocks += count
        most = max(most, elements * result.type.numpy_dtype.itemsize)
        lines += [f"if (blockIdx.x < {blocks}) {{", f"  Relayout<{settings}>::{call};"]
        lines += ["  return;", "}"]
    launches = Launches(node, pointers)
    launches.add([f"__shared__ __align__(16) unsigned char shared[{most}];", *lines], blocks)
    return launches.kernel(("pointwise/relayout",), [])


def _tiles(node: KernelNode, source: Type, result: Type) -> tuple[str, int, int]:
    """The template arguments of a conversion, its blocks, and the elements of a tile."""
    laned = source if result.layout.axis is None else result
    axis, width = laned.layout.axis, laned.layout.width
    assert axis is not None and laned.layout.in_one_block(laned.shape), f"blocks of {laned}"
    assert C_TYPES[source.dtype] == C_TYPES[result.dtype]
    outer, channels = math.prod(laned.shape[:axis]), laned.shape[axis]
    pixels = math.prod(laned.shape[axis + 1 :])
    check_counts(node, outer=outer, channels=channels, pixels=pixels)
    if not laned.size:
        return "", 0, 0
    along = min(pixels, LINE if channels >= LINE else MOVED // channels)
    across = min(-(-channels // 4) * 4, max(LINE, MOVED // along // LINE * LINE))
    blocks = outer * -(-channels // across) * -(-pixels // along)
    numbers = (outer, channels, pixels, width, across, along)
    to_lanes = str(laned is result).lower()
    return ", ".join((to_lanes, *map(str, numbers))), blocks, across * (along + 1)
