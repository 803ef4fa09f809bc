"""The stages of a body with reductions: what must have ended before what."""

from __future__ import annotations

from graphc.ir import Graph, Node, Value
from graphc.ops.base import Reduction


def reductions_of(body: Graph) -> list[Node]:
    return [n for n in body.nodes if isinstance(n.op, Reduction)]


def depths(body: Graph) -> dict[Value, int]:
    """How many reductions, one after another, each value of the body needs: a loop computes those
    whose operands need no more than the loops before it have made."""
    known = dict.fromkeys(body.inputs, 0)
    for node in body.nodes:
        deepest = max((known[v] for v in node.inputs), default=0)
        deepest += isinstance(node.op, Reduction)
        known.update(dict.fromkeys(node.outputs, deepest))
    return known
