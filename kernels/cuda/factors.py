"""What is the same for all elements of a sum, as a factor of the sum: r * sum(x) for sum(r * x).

Where r follows from another sum over the same elements, the sum of r * x is a stage after it, which
reads x again; the sum of x is not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from graphc.ir import Graph, Names, Node, Value, infer_types
from graphc.ir.op import Op
from graphc.ops.arithmetic import Multiply, Negative
from graphc.ops.base import Reduction
from graphc.ops.reduction import Sum


def factored(body: Graph) -> Graph:
    """`body` whose sums have no factors that follow from other sums and are the same for all of
    their elements; the same graph if it has none."""
    making = _Making(body)
    for node in body.nodes:
        making.add(node)
    return replace(body, nodes=needed(body, making.nodes)) if making.changed else body


def needed(body: Graph, nodes: Sequence[Node]) -> tuple[Node, ...]:
    """Those of `nodes` that lead to an output of `body`."""
    wanted, kept = set(body.outputs), list[Node]()
    for node in reversed(nodes):
        if not wanted.isdisjoint(node.outputs):
            wanted.update(node.inputs)
            kept.append(node)
    return tuple(reversed(kept))


class _Making:
    """The nodes of a body as they come together."""

    def __init__(self, body: Graph) -> None:
        self.producers: Mapping[Value, Node] = body.producers
        self.names = Names(v.name for v in (*body.inputs, *body.producers))
        self.nodes: list[Node] = []
        self.late: set[Value] = set()
        """What follows from a reduction."""
        self.known: dict[tuple[Op, tuple[Value, ...]], Value] = {}
        self.sums: Mapping[tuple[Op, tuple[Value, ...]], Node] = {
            (n.op, n.inputs): n for n in body.nodes if isinstance(n.op, Sum)
        }
        """Of the body: what is made of a factor's sum may be there."""
        self.changed = False

    def add(self, node: Node) -> None:
        """`node`, or what is in its place."""
        if isinstance(node.op, Reduction) or not self.late.isdisjoint(node.inputs):
            self.late.update(node.outputs)
        if isinstance(node.op, Sum):
            if self.known.get((node.op, node.inputs)) is node.output or self.moved(node, node.op):
                return
            self.known.setdefault((node.op, node.inputs), node.output)
        self.nodes.append(node)

    def moved(self, node: Node, op: Sum) -> bool:
        """Whether there are factors of the sum, which then has been made."""
        factors, negative = self.factors(node.inputs[0])
        rank = node.inputs[0].type.rank
        outside = [v for v in factors if _same_along(v, op.axes, rank)]
        inside = [v for v in factors if v not in outside]
        if self.late.isdisjoint(outside) or not inside:
            return False
        result = node.output.type
        fits = all(v.type.rank <= result.rank for v in outside)
        if not fits or self.shape(inside) != node.inputs[0].type.shape:
            return False
        total = self.value(op, self.product(inside))
        if negative:
            total = self.value(Negative(), total)
        *first, last = outside
        total = self.product([total, *first])
        self.nodes.append(replace(node, op=Multiply(), inputs=(total, last)))
        self.changed = True
        return True

    def factors(self, value: Value) -> tuple[list[Value], bool]:
        """What `value` is the product of, and whether of that the negative."""
        node = self.producers.get(value)
        if node is not None and isinstance(node.op, Negative):
            factors, negative = self.factors(node.inputs[0])
            return factors, not negative
        if node is None or not isinstance(node.op, Multiply):
            return [value], False
        (a, first), (b, second) = map(self.factors, node.inputs)
        return [*a, *b], first != second

    def shape(self, factors: Sequence[Value]) -> tuple[int, ...]:
        """That of a product."""
        kind = factors[0].type
        for value in factors[1:]:
            (kind,) = infer_types(Multiply(), [kind, value.type])
        return kind.shape

    def product(self, factors: Sequence[Value]) -> Value:
        """The product of `factors`, from the first on."""
        total = factors[0]
        for value in factors[1:]:
            total = self.value(Multiply(), total, value)
        return total

    def value(self, op: Op, *inputs: Value) -> Value:
        """The result of an op, once for each op and inputs."""
        if (op, inputs) not in self.known:
            (kind,) = infer_types(op, [v.type for v in inputs])
            made = Value(self.names.fresh(inputs[0].name), kind)
            node = self.sums.get((op, inputs)) or Node(op, inputs, (made,))
            self.nodes.append(node)
            self.known[op, inputs] = node.output
            if isinstance(op, Reduction) or not self.late.isdisjoint(inputs):
                self.late.add(node.output)
        return self.known[op, inputs]


def _same_along(value: Value, axes: Sequence[int], rank: int) -> bool:
    """Whether `value` has one element along the axes of what it is broadcast to."""
    shape = (1,) * (rank - value.type.rank) + value.type.shape
    return all(shape[axis] == 1 for axis in axes)
