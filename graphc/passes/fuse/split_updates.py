"""Split the update of all parameters into a launch per large parameter, where memory is short.

One launch that updates all parameters reads all gradients, which are held until the last of them is
there. The parts of that kernel have index spaces of their own and share scalars alone: apart, each
runs as soon as its gradient is there. What is small stays together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from graphc.ir import Graph, Node, Value
from graphc.ir.rewrite import drop_dead, topological
from graphc.ops.fused import KernelNode
from graphc.passes.rewriting.naming import KernelNames

LARGE = 1 / 256
"""The share of what the launch reads from which on a parameter has a launch of its own. A choice:
so there are fewer than 256 of them, each with more to do than a launch costs."""


def split_updates(graph: Graph) -> Graph:
    """Split kernels that only make new state into parts that share no array."""
    read = {v for n in graph.nodes for v in n.inputs} | set(graph.outputs)
    unread = {value for _, value in graph.updates} - read
    names = KernelNames(graph)
    nodes: list[Node] = []
    for node in graph.nodes:
        alone = unread.issuperset(node.outputs)
        if alone and isinstance(node, KernelNode) and node.op.template == "pointwise":
            nodes += _split(node, names)
        else:
            nodes.append(node)
    return graph if len(nodes) == len(graph.nodes) else replace(graph, nodes=topological(nodes))


def _split(node: KernelNode, names: KernelNames) -> list[KernelNode]:
    least = LARGE * sum(v.type.nbytes for v in node.inputs)
    large, rest = [], list[int]()
    for arrays, places in _parts(node):
        if sum(v.type.nbytes for v in arrays.intersection(node.body.inputs)) >= least:
            large.append(places)
        else:
            rest += places
    if len(large) < 2:
        return [node]
    return [_part(node, group, names) for group in (*large, rest) if group]


def _parts(node: KernelNode) -> list[tuple[set[Value], list[int]]]:
    """Return arrays that belong together, with the indices of the outputs made from them."""
    parts: list[tuple[set[Value], list[int]]] = []
    for place, output in enumerate(node.body.outputs):
        arrays, waiting = {output}, [output]
        while waiting:
            producer = node.body.producers.get(waiting.pop())
            new = set(producer.inputs if producer else ()) - arrays
            arrays |= new
            waiting += new
        arrays = {v for v in arrays if v.type.size > 1}
        shared = [part for part in parts if not arrays.isdisjoint(part[0])]
        places = sorted({place}.union(*(p for _, p in shared)))
        parts = [part for part in parts if part not in shared] if shared else parts
        parts.append((arrays.union(*(a for a, _ in shared)), places))
    return parts


def _part(node: KernelNode, places: Sequence[int], names: KernelNames) -> KernelNode:
    body = _body(node, places)
    outside = dict(zip(node.body.inputs, node.inputs, strict=True))
    inputs = tuple(outside[v] for v in body.inputs)
    op = replace(node.op, kernel=names.fresh(node.op.kernel), body=body)
    return replace(node, op=op, inputs=inputs, outputs=tuple(node.outputs[p] for p in places))


def _body(node: KernelNode, places: Sequence[int]) -> Graph:
    """Return the part of the node's body that leads to its outputs at `places`."""
    outputs = tuple(node.body.outputs[p] for p in places)
    body = drop_dead(replace(node.body, outputs=outputs))
    read = {v for n in body.nodes for v in n.inputs} | set(outputs)
    return replace(body, inputs=tuple(v for v in body.inputs if v in read))
