"""Split a concat of very many values into concats of concats.

A kernel names each value that it joins, so that one of 200 takes a compiler seconds. Groups of a
few are kernels of one text, built once. What is joined is copied once more for each level of
groups: one up to 512 values, two up to 8,192.
"""

from __future__ import annotations

from dataclasses import replace

from graphc.base.target import Target
from graphc.ir import Graph, Names, Node, Value
from graphc.ir.rewrite import names_of, substitute

WIDEST, GROUP = 32, 16
"""A concat of more values than `WIDEST` is split into groups of `GROUP`."""


def split_joins(graph: Graph, target: Target) -> Graph:
    """The same results without concats of more than `WIDEST` values."""
    if not any(_is_wide(node) for node in graph.nodes):
        return graph
    names, nodes = names_of(graph), []
    for node in graph.nodes:
        inputs = node.inputs
        while _is_wide(node) and len(inputs) > WIDEST:
            groups = [inputs[i : i + GROUP] for i in range(0, len(inputs), GROUP)]
            joined = [_joined(node, group, names) for group in groups if len(group) > 1]
            nodes += joined
            alone = groups[-1] if len(groups[-1]) == 1 else ()
            inputs = (*(made.output for made in joined), *alone)
        nodes.append(replace(node, inputs=inputs))
    return substitute(graph, nodes, {})


def _is_wide(node: Node) -> bool:
    return node.op.concat_axis is not None and len(node.inputs) > WIDEST


def _joined(node: Node, group: tuple[Value, ...], names: Names) -> Node:
    (type,) = node.op.infer(*(v.type for v in group))
    return Node(node.op, group, (Value(names.fresh(node.output.name), type),), node.where)
