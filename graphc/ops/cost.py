"""The cost of a node in floating-point operations and bytes.

`runtime/planner/concurrency.py` estimates times from it.
"""

from __future__ import annotations

import math

from graphc.ir import Node
from graphc.ops.attention import Attention, AttentionGrad
from graphc.ops.base import Contraction, Index, Source, View
from graphc.ops.fused import KernelNode
from graphc.ops.linear.matrices import Matrices


def node_flops(node: Node) -> int:
    """Return the floating-point operations of a node.

    A contraction has two per step, another op one per element of its larger side, and an op that
    only moves elements none.
    """
    if isinstance(node, KernelNode):
        return sum(node_flops(n) for n in node.body.nodes)
    if isinstance(node.op, Contraction):
        a, b = (v.type for v in node.inputs[:2])
        return 2 * math.prod(node.op.iteration(a, b).extents)
    if isinstance(node.op, Attention | AttentionGrad | Matrices):
        return node.op.flops(*(v.type for v in node.inputs))
    if isinstance(node.op, View | Index | Source):
        return 0
    return max((v.type.size for v in (*node.inputs, *node.outputs)), default=0)


def node_bytes(node: Node) -> int:
    """Bytes in memory of the distinct inputs and the outputs, each once."""
    return sum(v.type.nbytes for v in dict.fromkeys((*node.inputs, *node.outputs)))
