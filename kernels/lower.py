"""Lowering: a fused node and a target become a kernel."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from graphc.ir import Node
from graphc.kernels.cpu.lower import lower_cpu
from graphc.kernels.cuda.lower import lower_cuda
from graphc.kernels.program.kernel import Kernel
from graphc.ops.fused import Fused
from graphc.target import Target

LOWERINGS: dict[str, Callable[[Node, Target], Kernel]] = {
    "cpu": lower_cpu,
    "cuda": lower_cuda,
    "sim": lower_cuda,
}
CALLS_PER_NODE = 8
"""More than expression.py nests for one node of a body."""


def lower(node: Node, target: Target) -> Kernel:
    """The kernel that computes `node`, whose op is `Fused` or `Relayout`, on `target.device`: cpu,
    or cuda and sim, which share their text."""
    with _deep_enough(node):
        return LOWERINGS[target.device](node, target)


@contextmanager
def _deep_enough(node: Node) -> Iterator[None]:
    """Let Python recurse as deep as the body's longest chain: a walk from an output to the inputs
    takes a few calls for each node on its way."""
    limit = sys.getrecursionlimit()
    nodes = len(node.op.body.nodes) if isinstance(node.op, Fused) else 0
    sys.setrecursionlimit(limit + CALLS_PER_NODE * nodes)
    try:
        yield
    finally:
        sys.setrecursionlimit(limit)
