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
    or cuda and sim, which share their text."""
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
    from graphc.kernels.attend import lower_attend
    from graphc.kernels.contract import lower_contract
    from graphc.kernels.index import lower_index
    from graphc.kernels.pointwise import lower_pointwise
    from graphc.kernels.prefix import lower_prefix
    from graphc.kernels.reduce import lower_reduce
    from graphc.kernels.scatter import lower_scatter
    from graphc.kernels.sort import lower_sort

    templates = {
        "attend": lower_attend,
        "contract": lower_contract,
        "index": lower_index,
        "pointwise": lower_pointwise,
        "prefix": lower_prefix,
        "reduce": lower_reduce,
        "scatter": lower_scatter,
        "sort": lower_sort,
    }
    return templates[node.op.template](node, target)


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
