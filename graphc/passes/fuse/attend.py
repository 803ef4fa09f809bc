"""Fuse attention's gradient with the concat of its results.

Query, key and value that are sections of one value have gradients whose concat is that value's. The
kernel writes each where it belongs.
"""

from __future__ import annotations

from graphc.ir import Graph, Node
from graphc.ops.attention import AttentionGrad
from graphc.ops.join import Concat
from graphc.passes.fuse.groups import fuse_groups
from graphc.target import Target

HEADS = 2
"""The axis of heads of the gradients, [n, t, h, e]."""


def fuse_attend(graph: Graph, target: Target) -> Graph:
    """`graph` with every gradient of attention whose results are but concatenated as one node with
    the concat."""
    consumers = graph.consumers
    groups: list[list[Node]] = []
    for node in graph.nodes:
        if not isinstance(node.op, AttentionGrad) or set(node.outputs) & set(graph.results):
            continue
        readers = [n for v in node.outputs for n in consumers.get(v, ())]
        concat = readers[0] if readers else None
        if concat is None or any(n is not concat for n in readers):
            continue
        joins = isinstance(concat.op, Concat) and concat.op.axis == HEADS
        if joins and sorted(v.name for v in concat.inputs) == sorted(v.name for v in node.outputs):
            groups.append([node, concat])
    return fuse_groups(graph, groups)
