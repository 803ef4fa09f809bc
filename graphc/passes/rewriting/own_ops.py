"""Ops of the user's, before kernels are made of them: what they lack is said by name."""

from __future__ import annotations

from graphc.base.errors import BUGS, GraphError, described
from graphc.ir import Graph
from graphc.ops.loops.scan import bodies


def check_own_ops(graph: Graph) -> None:
    """GraphError for the first own op of `graph` that no kernel can compute."""
    for inner in (graph, *bodies(graph)):
        for node in inner.nodes:
            if not node.op.is_own():
                continue
            try:
                lack = node.op.lack(*(v.type for v in node.inputs))
            except BUGS as bug:
                lack = f"its rule for kernels raised {described(bug)}"
            if lack:
                lines = f" ({node.where.lines[0]})" if node.where.lines else ""
                raise GraphError(f"{node.op.name}: {lack}{lines}")
