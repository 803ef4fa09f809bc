"""Copy nodes of a graph into the one under construction."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from graphc.ir import Node, Value
from graphc.ops.loops.scan import Scan
from graphc.trace import Builder, Tensor


def repeat(
    body: Builder, nodes: Iterable[Node], known: dict[Value, Tensor], derived: bool = True
) -> None:
    """Append the nodes to `body` under new names, and their results to `known`.

    Args:
        body: The graph under construction.
        nodes: What to append.
        known: What stands for the values that they read.
        derived: Whether they count as parts of a gradient; else as what they are.
            They get the builder's turn and micro-batch.
    """
    for node in nodes:
        results = tuple(Value(body.fresh(v.name), v.type) for v in node.outputs)
        own = derived or node.where.derived
        where = replace(node.where, derived=own, turn=body.turn, batch=body.batch)
        inputs = tuple(known[v].value for v in node.inputs)
        op = node.op.renamed(body.fresh) if isinstance(node.op, Scan) else node.op
        body.nodes.append(Node(op, inputs, results, where))
        known.update((v, Tensor(r, body)) for v, r in zip(node.outputs, results, strict=True))
