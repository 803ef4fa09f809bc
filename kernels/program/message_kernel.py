"""Lower what communicates to a kernel without code, which a runtime plays by a transport."""

from __future__ import annotations

from graphc.ir import Node
from graphc.kernels.program.kernel import Kernel, moved_bytes
from graphc.kernels.program.message import Message

TEMPLATE = "message"
"""The template of kernels that send and receive."""


def message_kernel(node: Node, name: str) -> Kernel:
    """The kernel of a node that communicates. A runtime plays it by a transport."""
    op = node.op
    ranks, pieces = op.attributes["ranks"], op.attributes.get("pieces", 1)
    counts = tuple(v.type.size for v in node.outputs)
    dtype, early = node.outputs[0].type.dtype, op.attributes.get("early", False)
    message = Message(op.name, dtype, counts, ranks, pieces, early)
    return Kernel(
        name,
        TEMPLATE,
        repr(message),
        bytes=moved_bytes(node),
        inplace=tuple((n, n) for n in range(len(counts))) if message.in_place else (),
        origin=f"{name}: {op.name} {node.where}".rstrip(),
        sums="stated",
        message=message,
    )
