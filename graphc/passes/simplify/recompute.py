"""Recompute cheap forward values in the backward pass instead of storing them.

A forward value that backward kernels read is stored, beside whatever the forward pass makes of it.
Where sums and products lead to it from other stored values (0.5 x (1 + tanh u) from x and tanh u),
reading those and doing the arithmetic again costs less than writing and reading one array more: the
nodes are repeated for each of their backward readers, and fusion brings them into those kernels,
where what two readers repeat is one node again. Where one array leads to it that is in memory
as well, as the images that batch norm takes means of, that is held in its place, and the value is
never written. So are large sums of a contraction that a reduction reads: the logits of a large
vocabulary in place of their exponentials.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from graphc.base.target import Rates, Target
from graphc.ir import Graph, Node, Value
from graphc.ir.rewrite import names_of, topological

STORED = 3
"""Accesses to memory that storing a value is worth: it is written, read, and drives others out of
the caches in between."""
LARGE = 32 << 20
"""Bytes from which on sums that only the forward pass reads are kept for the backward pass in place
of what is made of them: smaller arrays may be in caches when they are read again."""
SMALL = 8
"""A value so many times smaller than the result costs nothing to read."""


def recompute(graph: Graph, target: Target) -> Graph:
    """Give backward nodes cheap copies of forward nodes instead of stored values.

    It does so where fewer values are stored then.
    """
    producers, consumers = graph.producers, graph.consumers
    results = graph.result_set
    stored = {*graph.inputs, *graph.state}
    repeated: set[Value] = set()
    for node in graph.nodes:
        if node.where.derived:
            continue
        for value in node.outputs:
            readers = consumers.get(value, ())
            if not any(n.where.derived for n in readers):
                if _is_in_memory(node, value, readers):
                    stored.add(value)
                continue
            large = value.type.nbytes >= LARGE
            taken = (n.op.pointwise or (large and _reduces(n)) for n in readers)
            alone = value not in results and all(taken)
            most = max(v.type.size for n in readers if n.where.derived for v in n.outputs)
            alone &= value.type.size * SMALL > most
            instead = _stored_instead_of(node, stored, producers, consumers)
            if alone and _within_reach(node, stored | instead, producers, target.kind.rates):
                repeated.add(value)
                stored |= instead
            else:
                stored.add(value)
    return _with_repeats(graph, repeated, stored, producers) if repeated else graph


def _stored_instead_of(
    node: Node,
    stored: set[Value],
    producers: Mapping[Value, Node],
    consumers: Mapping[Value, Sequence[Node]],
) -> set[Value]:
    """Return the value to keep instead of the node's result, which then is never written.

    It is the one array of its size that the node reads, if a reduction reads that too, so that it
    is usually in memory. It is empty if there is none, or if something keeps it already.
    """
    result = node.outputs[0]
    large = [v for v in dict.fromkeys(node.inputs) if v.type.size * SMALL > result.type.size]
    if len(large) != 1 or large[0] in stored or large[0].type.nbytes > result.type.nbytes:
        return set()
    producer = producers.get(large[0])
    if producer is None or producer.where.derived or producer.is_free:
        return set()
    reduced = any(n.op.reduced_axes is not None for n in consumers[large[0]])
    return {large[0]} if reduced else set()


def _is_in_memory(node: Node, value: Value, readers: Sequence[Node]) -> bool:
    """Whether `value` is large, and written by a contraction since a reduction reads it."""
    return node.op.contracts and value.type.nbytes >= LARGE and any(map(_reduces, readers))


def _reduces(node: Node) -> bool:
    """Whether its kernel computes what it reads, if that is pointwise."""
    return node.op.reduced_axes is not None


def _within_reach(
    node: Node, stored: set[Value], producers: Mapping[Value, Node], rates: Rates
) -> bool:
    """Return whether cheap pointwise nodes lead to the node from stored or small values.

    They must take less time than writing and reading the node's result.
    """
    shape = node.outputs[0].type.shape
    waiting, seen = [node], {id(node)}
    read: set[Value] = set()
    operations = 0
    while waiting:
        now = waiting.pop()
        if not _repeatable(now) or now.output.type.shape != shape:
            return False
        operations += now.op.operations or 0
        for value in now.inputs:
            producer = producers.get(value)
            free = producer is not None and producer.op.is_source
            if free or value.type.size * SMALL <= node.output.type.size:
                continue
            if value in stored:
                read.add(value)
            elif producer is None or producer.where.derived:
                return False
            elif id(producer) not in seen:
                seen.add(id(producer))
                waiting.append(producer)
    moved = sum(v.type.nbytes for v in read)
    again = moved / rates.bytes + operations * node.output.type.size / rates.flops
    return again <= STORED * node.output.type.nbytes / rates.bytes


def _repeatable(node: Node) -> bool:
    return node.op.pointwise and len(node.outputs) == 1 and node.op.operations is not None


def _with_repeats(
    graph: Graph, repeated: set[Value], stored: set[Value], producers: Mapping[Value, Node]
) -> Graph:
    names = names_of(graph)
    added: list[Node] = []

    def twin(value: Value, shape: Sequence[int], twins: dict[Value, Value]) -> Value:
        """What a backward node reads in place of `value`; `twins` are those that it has."""
        node = producers.get(value)
        if value in stored or node is None or not _repeatable(node):
            return value
        if value.type.shape != tuple(shape):
            return value
        if value not in twins:
            inputs = tuple(twin(v, shape, twins) for v in node.inputs)
            twins[value] = Value(names.fresh(f"d.{value.name}"), value.type)
            where = replace(node.where, derived=True)
            added.append(replace(node, inputs=inputs, outputs=(twins[value],), where=where))
        return twins[value]

    nodes = list(graph.nodes)
    for place, node in enumerate(nodes):
        if node.where.derived and not repeated.isdisjoint(node.inputs):
            own: dict[Value, Value] = {}
            read = (twin(v, v.type.shape, own) if v in repeated else v for v in node.inputs)
            nodes[place] = replace(node, inputs=tuple(read))
    return replace(graph, nodes=topological([*nodes, *added]))
