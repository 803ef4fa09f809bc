"""Steps of a plan that other processes take part in, as kernels without code."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from graphc.ir import Node

if TYPE_CHECKING:  # which has a message as a field
    from graphc.kernels.program.kernel import Kernel

TEMPLATE = "message"
"""The template of kernels that send and receive."""


@dataclass(frozen=True)
class Message:
    """The sum of arrays over all ranks.

    The arguments of its kernel are the terms of this rank, then the sums. Terms lie side by side in
    memory, each aligned as all values are, and so do sums; where a rank has one piece of each, the
    sums are where the terms were.
    """

    dtype: str
    """The dtype of all arrays."""
    counts: tuple[int, ...]
    """The elements of each sum."""
    ranks: int
    """The number of processes."""
    pieces: int
    """The pieces that this rank has of each array, along the first axis; 1 for the array itself."""
    early: bool
    """Whether kernels wait for the sums, as those of a forward pass do."""


def message_kernel(node: Node, name: str) -> Kernel:
    """The kernel of a node that communicates. A runtime plays it by a transport."""
    from graphc.kernels.program.kernel import Kernel, moved_bytes

    op = node.op
    ranks, pieces, early = (op.attributes[field] for field in ("ranks", "pieces", "early"))
    counts = tuple(v.type.size for v in node.outputs)
    message = Message(node.outputs[0].type.dtype, counts, ranks, pieces, early)
    return Kernel(
        name,
        TEMPLATE,
        repr(message),
        bytes=moved_bytes(node),
        inplace=tuple((n, n) for n in range(len(counts))) if pieces == 1 else (),
        origin=f"{name}: {op.name} {node.where}".rstrip(),
        sums="stated",
        message=message,
    )
