"""What costs nothing in a kernel."""

from __future__ import annotations

from graphc.ir import Node
from graphc.ops.base import Source, View
from graphc.ops.constant import Constant
from graphc.ops.widen import Widen

INLINE_ELEMENTS = 16
"""A constant of at most this many elements is printed into the kernels that read it."""


def is_free(node: Node) -> bool:
    """Whether a kernel computes this node where it reads it, at no cost."""
    if isinstance(node.op, Constant):
        return node.output.type.size <= INLINE_ELEMENTS
    if isinstance(node.op, View):
        return node.op.index(node.inputs[0].type) is not None
    return isinstance(node.op, Source | Widen)
