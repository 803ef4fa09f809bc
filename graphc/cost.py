"""What a node costs: floating-point operations, bytes, and a rough time from both.

The times rank launches for the scheduler. They are not predictions: one set of round figures
stands for all machines of a kind, so that a plan does not depend on where it was made.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from graphc.ir import Node
from graphc.ops.attention import Attention, AttentionGrad
from graphc.ops.base import Contraction, Index, Source, View
from graphc.ops.fused import Fused


@dataclass(frozen=True)
class Machine:
    """Operations per microsecond, bytes per microsecond, and microseconds per launch and for
    one stream to see another's event."""

    flops: float
    bytes: float
    launch: float
    event: float


MACHINES = {
    "cpu": Machine(flops=200e3, bytes=40e3, launch=1.0, event=1.0),
    "cuda": Machine(flops=20e6, bytes=2e6, launch=3.0, event=2.0),
}
"""A core with AVX-512, whose peak is 284 GFLOP/s and 42 GB/s, and a data-centre GPU; other devices
count as "cpu"."""


def machine(device: str) -> Machine:
    """The figures for `device`, whose number (`cuda:1`) does not matter."""
    return MACHINES.get(device.partition(":")[0], MACHINES["cpu"])


def node_flops(node: Node) -> int:
    """Floating-point operations: two per step of a contraction, one per element of the larger
    side of any other op that computes, none where elements only move."""
    if isinstance(node.op, Fused):
        return sum(node_flops(n) for n in node.op.body.nodes)
    if isinstance(node.op, Contraction):
        a, b = (v.type for v in node.inputs[:2])
        return 2 * math.prod(node.op.iteration(a, b).extents)
    if isinstance(node.op, Attention | AttentionGrad):
        return node.op.flops(*(v.type for v in node.inputs))
    if isinstance(node.op, View | Index | Source):
        return 0
    return max((v.type.size for v in (*node.inputs, *node.outputs)), default=0)


def node_bytes(node: Node) -> int:
    """Bytes in memory of the distinct inputs and the outputs, each once."""
    return sum(v.type.nbytes for v in dict.fromkeys((*node.inputs, *node.outputs)))


def estimate_microseconds(flops: int, nbytes: int, device: str = "cpu") -> float:
    """A launch's time by the roofline: the slower of arithmetic and memory, plus the launch."""
    limits = machine(device)
    return limits.launch + max(flops / limits.flops, nbytes / limits.bytes)
