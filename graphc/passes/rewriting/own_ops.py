"""Ops of the user's, before kernels are made of them: what they lack is said by name."""

from __future__ import annotations

from graphc.errors import BUGS, GraphError, described
from graphc.ir import Graph, Node
from graphc.ops.base import Contraction, Op, Pointwise, Reduction, View
from graphc.ops.scan import bodies

COMBINES = ("sum", "prod", "max", "min")


def check_own_ops(graph: Graph) -> None:
    """GraphError for the first own op of `graph` that no kernel can compute."""
    for inner in (graph, *bodies(graph)):
        for node in inner.nodes:
            if not node.op.is_own():
                continue
            try:
                lack = _lack(node)
            except BUGS as bug:
                lack = f"its rule for kernels raised {described(bug)}"
            if lack:
                lines = f" ({node.where.lines[0]})" if node.where.lines else ""
                raise GraphError(f"{node.op.name}: {lack}{lines}")


def _lack(node: Node) -> str:
    """What keeps a kernel from computing the node; "" if nothing does."""
    op = node.op
    if isinstance(op, Pointwise):
        return "" if op.expression else "a kernel needs its expression, got none"
    if isinstance(op, View):
        kind = node.inputs[0].type
        index = op.index(kind)
        if index is None or len(index) != kind.rank:
            got = "none" if index is None else f"{len(index)}"
            return f"a kernel needs its index, one Affine per axis of {kind}, got {got}"
        return ""
    if isinstance(op, Reduction):
        names = ", ".join(COMBINES)
        known = op.combine in COMBINES
        return "" if known else f"a kernel needs its combine, one of {names}, got {op.combine!r}"
    if isinstance(op, Contraction):
        op.iteration(*(v.type for v in node.inputs))
        return ""
    family = next(c.__name__ for c in type(op).__mro__ if c.__module__ == Op.__module__)
    return (
        "kernels compute own ops that are Pointwise, View, Reduction or Contraction, "
        f"got {family}; device='reference' computes any"
    )
