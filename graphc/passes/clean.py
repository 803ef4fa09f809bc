"""Clean: algebra on single nodes, sharing of equal nodes, folding of constants, dead code.

One sweep in order, since a rewrite only looks at nodes before its own; repeated until nothing
changes. What rewrites may not do: change a result for NaN, infinities or signed zeros (so x * 0
stays; but a sum of padded pieces that becomes their concat keeps the sign of a zero), or add work.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace

import numpy as np

from graphc.ir import Graph, Node, Value
from graphc.ops.base import Op, Source
from graphc.ops.constant import Constant
from graphc.passes.algebra import simplify_node
from graphc.passes.prune_scans import prune_scans
from graphc.passes.rewrite import Names, drop_dead, resolve, substitute
from graphc.target import Target

FOLD_LIMIT = 65536
"""Elements: a larger result of constants is left to the device."""


def simplify(graph: Graph, target: Target) -> Graph:
    """`clean` for a graph that is still to be differentiated: what stops gradients stays."""
    return _until_stable(graph, frozenset({"stop_gradient"}))


def clean(graph: Graph, target: Target) -> Graph:
    """The same results from fewer and simpler nodes."""
    return _until_stable(graph, frozenset())


def _until_stable(graph: Graph, untouched: frozenset[str]) -> Graph:
    while True:
        cleaned = prune_scans(drop_dead(_sweep(graph, untouched)))
        if cleaned == graph:
            return graph
        graph = cleaned


@dataclass
class Sweep:
    """What a rewrite may look at: the nodes so far, the old graph's values that are read more than
    once, and a way to add a node."""

    names: Names
    shared: set[Value]
    nodes: list[Node] = field(default_factory=list)
    producers: dict[Value, Node] = field(default_factory=dict)
    substitution: dict[Value, Value] = field(default_factory=dict)
    made_by_contraction: dict[Value, bool] = field(default_factory=dict)
    """What `reshapes.py` has found out."""

    def producer(self, value: Value) -> Node | None:
        return self.producers.get(value)

    def emit(self, op: Op, inputs: tuple[Value, ...], like: Node) -> Value:
        """A new node before the current one, with the origin of `like`."""
        types = op.infer(*(v.type for v in inputs))
        value = Value(self.names.fresh(like.outputs[0].name), types[0])
        self.add(Node(op, inputs, (value,), like.where))
        return value

    def add(self, node: Node) -> None:
        self.nodes.append(node)
        self.producers.update(dict.fromkeys(node.outputs, node))


def _sweep(graph: Graph, untouched: frozenset[str]) -> Graph:
    sweep = Sweep(Names(graph), _shared(graph))
    seen: dict[tuple[Op, tuple[Value, ...]], Node] = {}
    for original in graph.nodes:
        inputs = tuple(resolve(v, sweep.substitution) for v in original.inputs)
        node = replace(original, inputs=inputs)
        replacement = None
        if node.op.name not in untouched:
            replacement = simplify_node(node, sweep) or _fold(node, sweep)
        if replacement is not None:
            sweep.substitution[node.outputs[0]] = replacement
            continue
        key = (node.op, node.inputs)
        twin = seen.get(key)
        if twin is not None:
            sweep.substitution.update(zip(node.outputs, twin.outputs, strict=True))
            continue
        seen[key] = node
        sweep.add(node)
    return substitute(graph, sweep.nodes, sweep.substitution)


def _shared(graph: Graph) -> set[Value]:
    reads = Counter([*(v for n in graph.nodes for v in n.inputs), *graph.results])
    return {v for v, count in reads.items() if count > 1}


def _fold(node: Node, sweep: Sweep) -> Value | None:
    """A constant in place of an op on constants alone."""
    if isinstance(node.op, Source) or len(node.outputs) != 1:
        return None
    operands = [sweep.producer(v) for v in node.inputs]
    if node.output.type.size > FOLD_LIMIT:
        return None
    arrays = [n.op.array for n in operands if n is not None and isinstance(n.op, Constant)]
    if len(arrays) != len(node.inputs):
        return None
    if node.output.type.size > max((a.size for a in arrays), default=1):
        return None  # a broadcast of a scalar is better made where it is read
    with np.errstate(all="ignore"):
        (result,) = node.op.evaluate(*arrays)
    result = np.asarray(result, dtype=node.output.type.numpy_dtype)
    return sweep.emit(Constant.of(result), (), node)
