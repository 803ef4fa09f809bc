"""Fuse pointwise ops into the prefix op or sort that reads them.

Its kernel reads each element once or twice, and pointwise ops cost it less than the memory between
two kernels: a comparison and a cast before a running count, the widening of a float of two bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from graphc.base.target import Target
from graphc.ir import Graph, Node, Value
from graphc.passes.fuse.groups import fuse_groups
from graphc.passes.rewriting.reasons import record_join


def fuse_axis(graph: Graph, target: Target) -> Graph:
    """Fuse pointwise ops into the prefix ops and sorts that alone read them."""
    producers, consumers = graph.producers, graph.consumers
    kept = graph.result_set
    order = {id(n): i for i, n in enumerate(graph.nodes)}
    groups = []
    for node in graph.nodes:
        if node.op.computes_reads:
            group = _with_producers(node, producers, consumers, kept)
            groups.append(sorted(group, key=lambda n: order[id(n)]))
    return fuse_groups(graph, [group for group in groups if len(group) > 1])


def _with_producers(
    node: Node,
    producers: Mapping[Value, Node],
    consumers: Mapping[Value, Sequence[Node]],
    kept: frozenset[Value],
) -> list[Node]:
    """Return `node` and the pointwise nodes of its input's shape that nothing else reads."""
    group, members, waiting = [node], {id(node)}, [node]
    shape = node.inputs[0].type.shape
    while waiting:
        for value in waiting.pop().inputs:
            source = producers.get(value)
            if source is None or id(source) in members or not source.op.pointwise:
                continue
            if value.type.shape != shape or value in kept or source.is_free:
                continue
            if all(id(reader) in members for reader in consumers[value]):
                group.append(source)
                record_join(
                    source, f"{node.op.name} alone reads it, and computes it where it reads it"
                )
                members.add(id(source))
                waiting.append(source)
    return group
