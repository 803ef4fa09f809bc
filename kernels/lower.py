"""Lowering: a fused node and a target become a kernel."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from graphc.ir import Node
from graphc.kernels.kernel import Kernel
from graphc.ops.fused import Fused
from graphc.target import Target

CALLS_PER_NODE = 8
"""More than expression.py nests for one node of a body."""


def lower(node: Node, target: Target) -> Kernel:
    """The kernel that computes `node`, whose op is `Fused` or `Relayout`, on `target.device`: cpu,
    or cuda and sim, which share their text. A body of a single take_grad has the template index."""
    with _deep_enough(node):
        if target.device in ("cuda", "sim"):
            from graphc.kernels.cuda.lower import lower_cuda

            return lower_cuda(node, target)
        assert target.device == "cpu", f"there are no kernels for the device {target.device}"
        return _lower_cpu(node, target)


def _lower_cpu(node: Node, target: Target) -> Kernel:
    if node.op.name == "relayout":
        from graphc.kernels.transpose import lower_relayout

        return lower_relayout(node, target)
    assert isinstance(node.op, Fused), f"{node.op.name} is not a kernel"
    if any(n.op.name == "take_grad" for n in node.op.body.nodes):
        from graphc.kernels.index import lower_index

        return lower_index(node, target)
    if node.op.template == "contract":
        from graphc.kernels.contract import lower_contract

        return lower_contract(node, target)
    if node.op.template == "reduce":
        from graphc.kernels.reduce import lower_reduce

        return lower_reduce(node, target)
    from graphc.kernels.pointwise import lower_pointwise

    return lower_pointwise(node, target)


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
