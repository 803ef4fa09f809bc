"""Copy nodes of a graph into the one under construction."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from graphc.ir import Node, Value
from graphc.ops.loops.scan import Scan
from graphc.trace import Builder, Tensor


def repeat(body: Builder, nodes: Iterable[Node], known: dict[Value, Tensor]) -> None:
    """Append the nodes to `body` under new names, and their results to `known`."""
    for node in nodes:
        results = tuple(Value(body.fresh(v.name), v.type) for v in node.outputs)
        where = replace(node.where, derived=True)
        inputs = tuple(known[v].value for v in node.inputs)
        op = node.op.renamed(body.fresh) if isinstance(node.op, Scan) else node.op
        body.nodes.append(Node(op, inputs, results, where))
        known.update((v, Tensor(r, body)) for v, r in zip(node.outputs, results, strict=True))
