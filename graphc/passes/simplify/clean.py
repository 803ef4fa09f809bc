"""Simplify a graph: algebra on nodes, common subexpressions, constant folding, dead code.

One sweep in order, since a rewrite only looks at nodes before its own; repeated until nothing
changes. That must come: each rewrite lowers the weight of `measure.py`, and each sweep that changes
anything the graph's whole measure; PlanError names the rule that does not. What rewrites may not
do: change a result for NaN, infinities or signed zeros (so x * 0 stays; but a sum of padded pieces
that becomes their concat keeps the sign of a zero), or add work.
"""

from __future__ import annotations

from collections import Counter

import numpy as np

from graphc.base.target import Target
from graphc.ir import Graph, Node, Value
from graphc.ir.graph import remembered
from graphc.ir.rewrite import drop_dead, names_of, reading, resolve, substitute
from graphc.ops.base import Op
from graphc.ops.constant import Constant
from graphc.passes.rewriting.measure import Measure, measure, must_fall
from graphc.passes.simplify.algebra import rules_of
from graphc.passes.simplify.prune_scans import prune_scans
from graphc.passes.simplify.sweep import Sweep

FOLD_LIMIT = 65536
"""Elements: a larger result of constants is left to the device."""


def simplify(graph: Graph, target: Target) -> Graph:
    """`clean` for a graph that is still to be differentiated: what stops gradients stays."""
    return _until_stable("simplify", graph, True)


def clean(graph: Graph, target: Target) -> Graph:
    """The same results from fewer and simpler nodes."""
    return _until_stable("clean", graph, False)


def _until_stable(name: str, graph: Graph, differentiates: bool) -> Graph:
    before: Measure | None = None
    while name not in _left_alone_by(graph):
        cleaned = prune_scans(drop_dead(_sweep(name, graph, differentiates)))
        if cleaned == graph:
            _left_alone_by(graph).add(name)
            break
        before, after = before or measure(graph), measure(cleaned)
        must_fall(name, "a sweep", before, after, graph.nodes[-1])
        graph, before = cleaned, after
    return graph


@remembered
def _left_alone_by(graph: Graph) -> set[str]:
    """Return the names of the passes of this file that are known to change nothing in a graph."""
    return set()


def _sweep(name: str, graph: Graph, differentiates: bool) -> Graph:
    sweep = Sweep(names_of(graph), _shared(graph))
    seen: dict[tuple[Op, tuple[Value, ...]], Node] = {}
    for original in graph.nodes:
        node = original
        if not sweep.substitution.keys().isdisjoint(original.inputs):
            inputs = tuple(resolve(v, sweep.substitution) for v in original.inputs)
            node = reading(original, inputs)
        stays = differentiates and node.op.stops_gradient
        replacement = None if stays else _replacement(name, node, sweep)
        if replacement is not None:
            sweep.substitution[node.outputs[0]] = replacement
            if node.outputs[0] in sweep.shared:
                sweep.shared.add(replacement)
            continue
        key = (node.op, node.inputs)
        twin = seen.get(key)
        if twin is not None:
            sweep.substitution.update(zip(node.outputs, twin.outputs, strict=True))
            continue
        seen[key] = node
        sweep.add(node)
    return substitute(graph, sweep.nodes, sweep.substitution)


def _replacement(name: str, node: Node, sweep: Sweep) -> Value | None:
    """What the first rule that applies gives in place of the node's output."""
    for rule in (*rules_of(node.op), fold):
        value = rule(node, sweep)
        if value is not None:
            before, after = sweep.weights.of_node(node), sweep.weights.of(value)
            must_fall(name, rule.__name__, before, after, node)
            return value
    return None


def _shared(graph: Graph) -> set[Value]:
    reads = Counter([*(v for n in graph.nodes for v in n.inputs), *graph.results])
    return {v for v, count in reads.items() if count > 1}


def fold(node: Node, sweep: Sweep) -> Value | None:
    """A constant in place of an op on constants alone."""
    if node.op.is_source or len(node.outputs) != 1:
        return None
    arrays = []
    for value in node.inputs:
        array = sweep.constant(value)
        if array is None:
            return None
        arrays.append(array)
    if node.output.type.size > FOLD_LIMIT:
        return None
    if node.output.type.size > max((a.size for a in arrays), default=1):
        return None  # a broadcast of a scalar is better made where it is read
    with np.errstate(all="ignore"):
        (result,) = node.op.evaluate(*arrays)
    result = np.asarray(result, dtype=node.output.type.numpy_dtype)
    return sweep.emit(Constant.of(result), (), node)
