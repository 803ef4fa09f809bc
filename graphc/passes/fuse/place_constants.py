"""Turn constants that kernels cannot print into state that nothing updates.

A constant is too large to print, or a contraction, window or gather reads it (maybe through views):
the operands of these are memory. An iota that they read is written out by a kernel of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from graphc.base.target import Target
from graphc.ir import Graph, Node, Value
from graphc.ir.rewrite import names_of, substitute
from graphc.ops.constant import PLACED, Constant
from graphc.ops.pointwise.arithmetic import StopGradient


def place_constants(graph: Graph, target: Target) -> Graph:
    """Turn constants that kernels cannot print into state named by their digest."""
    in_memory = set(_operands_in_memory(graph))
    names = names_of(graph)
    placed: dict[Value, Value] = {}
    nodes: list[Node] = []
    for node in graph.nodes:
        value = node.outputs[0]
        if not node.op.is_source or (node.is_free and value not in in_memory):
            nodes.append(node)
        elif isinstance(node.op, Constant):
            placed[value] = Value(PLACED + node.op.value.digest, value.type)
        else:
            source = replace(value, name=names.fresh(value.name))
            nodes.append(replace(node, outputs=(source,)))
            nodes.append(Node(StopGradient(), (source,), (value,), node.where))
    if not placed and len(nodes) == len(graph.nodes):
        return graph
    state = tuple(dict.fromkeys((*graph.state, *placed.values())))
    return substitute(replace(graph, state=state), nodes, placed)


def _operands_in_memory(graph: Graph) -> Iterator[Value]:
    """Return what contractions, windows and gathers read, through views."""
    producers = graph.producers
    for node in graph.nodes:
        for value in node.inputs[node.op.in_memory]:
            yield _source(value, producers)


def _source(value: Value, producers: dict[Value, Node]) -> Value:
    producer = producers.get(value)
    while producer is not None and producer.op.moves:
        value = producer.inputs[0]
        producer = producers.get(value)
    return value
