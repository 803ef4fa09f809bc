"""Rewrite max_pool2d(relu(x)) to relu(max_pool2d(x)).

Relu is monotone and keeps NaN, so the results are the same bits; and since a pooled value that relu
cuts passes no gradient, whichever element won, so are the gradients. Afterwards relu and its
gradient work on a quarter of the elements (for 2x2 windows) and the activation before pooling need
not be kept for the backward pass. Runs before differentiation. One visit of each node; each rewrite
leaves one relu less before a max pooling.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from graphc.base.target import Target
from graphc.ir import Graph, Node, Value
from graphc.ir.rewrite import drop_dead, names_of, substitute
from graphc.passes.rewriting.measure import must_fall


def commute(graph: Graph, target: Target) -> Graph:
    """The same results with relu after max pooling, where nothing else reads the relu."""
    producers, consumers = graph.producers, graph.consumers
    names = names_of(graph)
    nodes: list[Node] = []
    substitution: dict[Value, Value] = {}
    results = graph.result_set
    for node in graph.nodes:
        relu = producers.get(node.inputs[0]) if node.op.finds_largest else None
        if relu is None or not relu.op.keeps_largest:
            nodes.append(node)
            continue
        if consumers[relu.output] != [node] or relu.output in results:
            nodes.append(node)
            continue
        pooled = replace(node.outputs[0], name=names.fresh(node.outputs[0].name))
        nodes.append(replace(node, inputs=relu.inputs, outputs=(pooled, *node.outputs[1:])))
        activated = replace(relu.output, name=names.fresh(relu.output.name), type=pooled.type)
        nodes.append(Node(relu.op, (pooled,), (activated,), relu.where.merge(node.where)))
        substitution[node.outputs[0]] = activated
        left = _relus_before(relu.inputs[0], producers)
        must_fall("commute", "relu", _relus_before(relu.output, producers), left, node)
    return drop_dead(substitute(graph, nodes, substitution))


def _relus_before(value: Value, producers: Mapping[Value, Node]) -> int:
    """How many relus follow on one another before `value`, which the last of them makes."""
    count, node = 0, producers.get(value)
    while node is not None and node.op.keeps_largest:
        count, node = count + 1, producers.get(node.inputs[0])
    return count
