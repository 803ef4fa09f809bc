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
    if op.in_turn:
        return _in_turn(node, name)
    ranks, pieces = op.attributes["ranks"], op.attributes.get("pieces", 1)
    counts = tuple(v.type.size for v in node.outputs)
    dtype, early = node.outputs[0].type.dtype, op.attributes.get("early", False)
    message = Message(op.name, dtype, counts, ranks, pieces, early)
    return _kernel(
        node, name, message, tuple((n, n) for n in range(len(counts))) if message.in_place else ()
    )


def _in_turn(node: Node, name: str) -> Kernel:
    """The kernel of a message behind a token, whose memory all tokens may share."""
    array = (*node.inputs, *node.outputs)[-1 if len(node.outputs) > 1 else 1].type
    peer = node.op.attributes["peer"]
    message = Message(node.op.name, array.dtype, (array.size,), 0, 1, True, peer)
    return _kernel(node, name, message, ((0, 0),))


def _kernel(
    node: Node, name: str, message: Message, inplace: tuple[tuple[int, int], ...]
) -> Kernel:
    return Kernel(
        name,
        TEMPLATE,
        repr(message),
        bytes=moved_bytes(node),
        inplace=inplace,
        origin=f"{name}: {node.op.name} {node.where}".rstrip(),
        sums="stated",
        message=message,
    )
