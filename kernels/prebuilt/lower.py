"""Describe a kernel to the function of the prebuilt library that computes the same."""

from __future__ import annotations

from collections.abc import Callable

from graphc.base.target import Target
from graphc.ir import Node
from graphc.kernels.prebuilt.along import describe_along
from graphc.kernels.prebuilt.attention import describe_attend
from graphc.kernels.prebuilt.contract import contraction
from graphc.kernels.prebuilt.description import Prebuilt
from graphc.kernels.prebuilt.index import describe_index
from graphc.kernels.prebuilt.pointwise import describe_pointwise
from graphc.kernels.prebuilt.reduce import describe_reduce
from graphc.kernels.prebuilt.relayout import describe_relayout
from graphc.kernels.program.kernel import Kernel

Describe = Callable[[Node, Kernel, Target], Prebuilt | None]

TEMPLATES: dict[str, Describe] = {
    "attend": describe_attend,
    "index": describe_index,
    "pointwise": describe_pointwise,
    "reduce": describe_reduce,
    "contract": contraction,
    "prefix": describe_along,
    "scatter": describe_index,
    "sort": describe_along,
    "transpose": describe_relayout,
}
"""What describes the kernels of each template, by `Kernel.template`; it returns None for a node
that no prebuilt function computes. Nodes are fused ones, or relayouts."""


def prebuilt(node: Node, kernel: Kernel, target: Target) -> Prebuilt | None:
    """The prebuilt function that computes what `kernel`, the result of lowering `node` for
    `target`, computes, with the same bits; None if there is none.

    The kernel says what the description is to keep to: `phases` (chunks run in any order and
    concurrently), `workspace`, `inplace`, and `offsets`, which the executable adds to the addresses
    of the arguments.
    """
    describe = TEMPLATES.get(kernel.template)
    return describe(node, kernel, target) if describe else None
