"""Replace groups of nodes by fused nodes.

A group lists the nodes that become one kernel. Nodes that cost nothing where they are read (affine
views, small constants, iota, widening) belong to no group: each body gets its own copy, and the
originals die with their last reader.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce

from graphc.ir import Graph, Node, Value, Where
from graphc.ir.op import Op
from graphc.ir.rewrite import drop_dead, reading, substitute, topological
from graphc.ops.fused import Fused, KernelNode
from graphc.passes.rewriting.naming import KernelNames, principal


def fuse_groups(graph: Graph, groups: Sequence[Sequence[Node]], notes: Sequence[str] = ()) -> Graph:
    """Replace each group of nodes by one fused node; `notes` are those of the nodes.

    Groups are disjoint and convex. A fused node keeps only the outputs that something outside its
    body reads, and computes once what two of its nodes compute.
    """
    if not groups:
        return _prune_outputs(drop_dead(graph))
    graph, groups = _shared(graph, groups)
    producers = graph.producers
    names = KernelNames(graph)
    grouped = {id(n): i for i, group in enumerate(groups) for n in group}
    fused = {
        i: _fuse(graph, group, producers, names, notes[i] if notes else "")
        for i, group in enumerate(groups)
    }
    nodes: list[Node] = []
    for node in graph.nodes:
        number = grouped.get(id(node))
        if number is None:
            nodes.append(node)
        elif node is groups[number][-1]:
            nodes.append(fused[number])
    graph = drop_dead(replace(graph, nodes=topological(nodes)))
    return _prune_outputs(graph)


def _fuse(
    graph: Graph,
    group: Sequence[Node],
    producers: dict[Value, Node],
    names: KernelNames,
    note: str,
) -> KernelNode:
    """Return one node for the group, with every result of its nodes as an output."""
    members = {id(n) for n in group}
    body: list[Node] = []
    copied: set[Value] = set()
    inputs: dict[Value, None] = {}

    def read(value: Value) -> None:
        producer = producers.get(value)
        if producer is None or (id(producer) not in members and not producer.is_free):
            inputs[value] = None
        elif id(producer) not in members and value not in copied:
            for source in producer.inputs:
                read(source)
            copied.add(value)
            body.append(producer)

    where = principal(group).where
    for node in group:
        for value in node.inputs:
            read(value)
        body.append(node)
        where = where.merge(node.where)
    outputs = tuple(v for n in group for v in n.outputs)
    name = names.name(group, producers)
    body_graph = Graph(name, tuple(inputs), (), topological(body), outputs)
    return KernelNode(Fused(name, body_graph, note), tuple(inputs), outputs, where)


def as_one(
    nodes: Sequence[KernelNode], name: str, note: str = "", between: Sequence[Node] = ()
) -> KernelNode:
    """Return one fused node that does what the given fused nodes do, with all their outputs.

    Its body also has the nodes `between` them.
    """
    made = {v for n in (*nodes, *between) for v in n.outputs}
    inputs = dict.fromkeys(v for n in nodes for v in n.inputs if v not in made)
    whole: dict[tuple[Value, ...], Node] = {n.outputs: n for n in between}
    for node in nodes:
        inside, outside = (*node.body.inputs, *node.body.outputs), (*node.inputs, *node.outputs)
        new = dict(zip(inside, outside, strict=True))
        for part in node.body.nodes:
            read = tuple(new.get(v, v) for v in part.inputs)
            outputs = tuple(new.get(v, v) for v in part.outputs)
            whole[outputs] = replace(part, inputs=read, outputs=outputs)
    where = reduce(Where.merge, (n.where for n in nodes))
    outputs = tuple(v for n in nodes for v in n.outputs)
    body = Graph(name, tuple(inputs), (), topological(whole.values()), outputs)
    return KernelNode(Fused(name, body, note), tuple(inputs), outputs, where)


def _shared(
    graph: Graph, groups: Sequence[Sequence[Node]]
) -> tuple[Graph, Sequence[Sequence[Node]]]:
    """Return nodes and outputs without the nodes that compute what another one does."""
    number = {id(n): i for i, group in enumerate(groups) for n in group}
    first: dict[tuple[int, Op, tuple[Value, ...]], Node] = {}
    same: dict[Value, Value] = {}
    kept: dict[int, Node] = {}
    for node in graph.nodes:
        new = reading(node, tuple(same.get(v, v) for v in node.inputs))
        group = number.get(id(node))
        one = new if group is None else first.setdefault((group, new.op, new.inputs), new)
        if one is new:
            kept[id(node)] = new
        else:
            same.update(zip(new.outputs, one.outputs, strict=True))
    if not same:
        return graph, groups
    left = [[kept[id(n)] for n in group if id(n) in kept] for group in groups]
    return substitute(graph, kept.values(), same), left


def _prune_outputs(graph: Graph) -> Graph:
    """Return a graph without dead nodes whose fused nodes keep only the outputs that are read."""
    used = {v for n in graph.nodes for v in n.inputs} | graph.result_set
    nodes = []
    for node in graph.nodes:
        if isinstance(node, KernelNode) and any(v not in used for v in node.outputs):
            node = keep_outputs(node, [v in used for v in node.outputs])
        nodes.append(node)
    if all(new is old for new, old in zip(nodes, graph.nodes, strict=True)):
        return graph
    return drop_dead(replace(graph, nodes=tuple(nodes)))


def keep_outputs(node: KernelNode, kept: Sequence[bool]) -> KernelNode:
    """Return a fused node with only these outputs, and the inputs that they need."""
    body = node.body
    outputs = [(v, b) for v, b, k in zip(node.outputs, body.outputs, kept, strict=True) if k]
    small = drop_dead(replace(body, outputs=tuple(b for _, b in outputs)))
    read = {v for n in small.nodes for v in n.inputs} | set(small.outputs)
    inputs = [(v, b) for v, b in zip(node.inputs, body.inputs, strict=True) if b in read]
    small = replace(small, inputs=tuple(b for _, b in inputs))
    return replace(
        node,
        op=replace(node.op, body=small),
        inputs=tuple(v for v, _ in inputs),
        outputs=tuple(v for v, _ in outputs),
    )
