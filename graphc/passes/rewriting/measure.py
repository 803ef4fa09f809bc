"""Why `clean` terminates: each rewrite replaces a value by an equal one of less weight.

A value's weight is that of its expression, written out as a tree: its op's own weight and a
function of its operands' weights that grows with each of them. So what a rewrite takes from a value
it takes from all that is made of it, and the sum over a graph's results, a natural number, falls
with every rewrite. (D. Lankford, On proving term rewriting systems are Noetherian, 1979.)

    reshape                           x + 1
    permute_dims                      2 x          so that it may go inward through a product
    pointwise                         2 (x + ...) + 64, and 16 more beside a reshape of a product
    anything else, inputs             x + ... + 64
    a loop of no operands             128          so that it may become a constant

The 16 pay for `before_reshape`: it takes the reshape of a product from behind an op before it, to
the op's readers, which weigh at least twice as much, and may put reshapes of other operands there.
So it must not put the reshape of another product there, which would be taken away again, for ever.
What makes a value a product of a contraction, or a reshape of one, takes away 63 at least.

Of two values of one weight the one with its slices behind its reshapes weighs less: that is the
second number, for which a reshape doubles and everything else adds 1.
"""

from __future__ import annotations

from collections.abc import Sequence

from graphc.base.errors import PlanError
from graphc.ir import Graph, Node, Value
from graphc.ops.loops.scan import bodies
from graphc.ops.view import PermuteDims, Reshape

Weight = tuple[int, int]
Measure = tuple[int, int, int]

OP, BARRIER = 64, 16
"""What an op weighs, and what a reshape of a product beside it adds; reasons stand above."""


class Weights:
    """The weights of values, from those of the nodes added so far. Values of no node are inputs."""

    def __init__(self) -> None:
        self._weights: dict[Value, Weight] = {}
        self._products: set[Value] = set()
        self._roots: dict[Value, Value] = {}

    def add(self, node: Node) -> None:
        """Weigh the outputs of `node`, whose operands were added before it."""
        weight = self.of_node(node)
        for value in node.outputs:
            self._weights[value] = weight
        if isinstance(node.op, Reshape):
            self._roots[node.output] = self.root(node.inputs[0])
        if node.op.contracts or (node.op.pointwise and self._reads_product(node)):
            self._products.update(node.outputs)

    def _reads_product(self, node: Node) -> bool:
        """Whether an operand of its output's shape is a product."""
        if self._products.isdisjoint(node.inputs):
            return False
        shape = node.outputs[0].type.shape
        return any(v in self._products and v.type.shape == shape for v in node.inputs)

    def of(self, value: Value) -> Weight:
        """The weight of a value."""
        return self._weights.get(value, (OP, 1))

    def of_node(self, node: Node) -> Weight:
        """What each output of `node` weighs."""
        first = second = 0
        for value in node.inputs:
            own = self.of(value)
            first, second = first + own[0], second + own[1]
        if isinstance(node.op, Reshape):
            same = node.inputs[0].type == node.output.type
            return first + (OP if same else 1), 2 * second
        if isinstance(node.op, PermuteDims):
            return 2 * first, second + 1
        if node.op.pointwise:
            barrier = False
            if self.any_reshaped(node.inputs):
                shape = node.output.type.shape
                barrier = any(v.type.shape == shape and self.is_barrier(v) for v in node.inputs)
            return 2 * first + OP + BARRIER * barrier, second + 1
        if node.op.is_loop and not node.inputs:
            return 2 * OP, 1
        return first + OP, second + 1

    def is_product(self, value: Value) -> bool:
        """Whether a contraction makes `value`, or pointwise ops of its shape from what it makes."""
        return value in self._products

    def is_barrier(self, value: Value) -> bool:
        """Whether `value` is a reshape of a contraction's product."""
        return value in self._roots and self.is_product(self._roots[value])

    def any_reshaped(self, values: Sequence[Value]) -> bool:
        """Whether a reshape makes one of `values`."""
        return not self._roots.keys().isdisjoint(values)

    def root(self, value: Value) -> Value:
        """Where the reshapes that lead to `value` begin."""
        return self._roots.get(value, value)


def measure(graph: Graph) -> Measure:
    """The weight of the results, and what sharing and dead code add to it: nodes and operands."""
    weights = Weights()
    for node in graph.nodes:
        weights.add(node)
    total = [weights.of(v) for v in graph.results]
    return sum(w[0] for w in total), sum(w[1] for w in total), _extent(graph)


def must_fall(name: str, rule: str, before: object, after: object, node: Node) -> None:
    """Raise PlanError unless `after` is less than `before`, since then a rule may never terminate.

    The message names the `rule` of the pass `name` and the `node`.
    """
    if not after < before:  # type: ignore[operator]
        place = f" ({node.where})" if str(node.where) else ""
        raise PlanError(
            f"{name}: {rule} of {node.op.name} does not lower the pass's measure{place}"
        )


def _extent(graph: Graph) -> int:
    graphs = (graph, *bodies(graph))
    nodes = sum(1 + len(n.inputs) + len(n.outputs) for g in graphs for n in g.nodes)
    return nodes + sum(len(g.state) for g in graphs)
