"""Fuse attention's gradient with the concat of its results into one kernel.

Query, key and value that are sections of one value have gradients whose concat is that value's. The
kernel writes each where it belongs.
"""

from __future__ import annotations

from graphc.base.target import Target
from graphc.ir import Graph, Node
from graphc.ops.join import Concat
from graphc.passes.fuse.groups import fuse_groups
from graphc.passes.rewriting.reasons import record_join


def fuse_attend(graph: Graph, target: Target) -> Graph:
    """Fuse gradients of attention whose results are only concatenated with the concat."""
    consumers = graph.consumers
    groups: list[list[Node]] = []
    for node in graph.nodes:
        axis = node.op.joined_axis
        if axis is None or graph.result_set.intersection(node.outputs):
            continue
        readers = [n for v in node.outputs for n in consumers.get(v, ())]
        concat = readers[0] if readers else None
        if concat is None or any(n is not concat for n in readers):
            continue
        if concat.op == Concat(axis) and sorted(v.name for v in concat.inputs) == sorted(
            v.name for v in node.outputs
        ):
            groups.append([node, concat])
            record_join(
                concat, "the gradients of sections of one value are written where they belong"
            )
    return fuse_groups(graph, groups)
