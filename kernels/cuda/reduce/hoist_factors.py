"""Hoist factors out of sums: r * sum(x) for sum(r * x), and r * sum(x) + s * sum(y) for sum(r * x +
s * y).

Where r depends on another sum over the same elements, the sum of r * x is a later stage, which
reads x again; the sum of x is not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from graphc.ir import Graph, Names, Node, Value, infer_types
from graphc.ir.op import Op
from graphc.ops.base import Reduction
from graphc.ops.pointwise.arithmetic import Add, Multiply, Negative
from graphc.ops.reduction import Sum


def factored(body: Graph) -> Graph:
    """`body` with factors hoisted that depend on other sums and do not vary along the summed axes;
    the same graph if there are none."""
    making = _GraphRewriter(body)
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


@dataclass(frozen=True)
class _Term:
    """A term of a sum."""

    outside: Sequence[Value]
    """Factors that do not vary along the summed axes."""
    inside: Sequence[Value]
    """The other factors."""
    negative: bool
    """Whether the term is subtracted."""


class _GraphRewriter:
    """Builds the rewritten body."""

    def __init__(self, body: Graph) -> None:
        self.producers: Mapping[Value, Node] = body.producers
        self.names = Names(v.name for v in (*body.inputs, *body.producers))
        self.nodes: list[Node] = []
        self.depths: dict[Value, int] = {}
        """The number of successive reductions that values depend on, if any."""
        self.known: dict[tuple[Op, tuple[Value, ...]], Value] = {}
        self.sums: Mapping[tuple[Op, tuple[Value, ...]], Node] = {
            (n.op, n.inputs): n for n in body.nodes if isinstance(n.op, Sum)
        }
        """The body's sums, which may already contain a factored sum."""
        self.changed = False

    def add(self, node: Node) -> None:
        """Add `node`, or what replaces it."""
        self.depths.update(dict.fromkeys(node.outputs, self.depth(node.op, node.inputs)))
        if isinstance(node.op, Sum):
            if self.known.get((node.op, node.inputs)) is node.output:
                return
            if terms := self.hoistable_terms(node, node.op):
                self.add_hoisted(node, node.op, terms)
                return
            self.known.setdefault((node.op, node.inputs), node.output)
        self.nodes.append(node)

    def depth(self, op: Op, inputs: Sequence[Value]) -> int:
        """The number of successive reductions up to the result of an op."""
        most = max((self.depths.get(v, 0) for v in inputs), default=0)
        return most + isinstance(op, Reduction)

    def hoistable_terms(self, node: Node, op: Sum) -> list[_Term]:
        """The terms of a sum whose factors can be hoisted; none if hoisting saves no stage."""
        (value,) = node.inputs
        terms = [
            self.parted(factors, negative, node, op) for factors, negative in self.terms(value)
        ]
        found = [term for term in terms if term is not None]
        late = any(self.depths.get(v, 0) for term in found for v in term.outside)
        if not late or len(found) < len(terms):
            return []
        if len(found) > 1:
            inside = [v for term in found for v in term.inside]
            if self.depth(node.op, inside) >= self.depth(node.op, [value]):
                return []
        return found

    def add_hoisted(self, node: Node, op: Sum, terms: Sequence[_Term]) -> None:
        """Add the nodes of a sum whose factors are multiplied after the reduction."""
        totals = [self.total(term, op) for term in terms[:-1]]
        last = terms[-1]
        if totals:
            first = totals[0]
            for total in totals[1:]:
                first = self.value(Add(), first, total)
            self.nodes.append(replace(node, op=Add(), inputs=(first, self.total(last, op))))
        else:
            *some, factor = last.outside
            total = self.total(replace(last, outside=some), op)
            self.nodes.append(replace(node, op=Multiply(), inputs=(total, factor)))
        self.changed = True

    def parted(self, factors: Sequence[Value], negative: bool, node: Node, op: Sum) -> _Term | None:
        """A term with these factors; None if it cannot be summed by itself."""
        (value,) = node.inputs
        outside = [v for v in factors if _same_along(v, op.axes, value.type.rank)]
        inside = [v for v in factors if v not in outside]
        fits = all(v.type.rank <= node.output.type.rank for v in outside)
        if not inside or not fits or self.shape(inside) != value.type.shape:
            return None
        return _Term(outside, inside, negative)

    def total(self, term: _Term, op: Sum) -> Value:
        """The sum of a term, with its factors."""
        total = self.value(op, self.product(term.inside))
        if term.negative:
            total = self.value(Negative(), total)
        return self.product([total, *term.outside])

    def terms(self, value: Value) -> list[tuple[list[Value], bool]]:
        """The terms that `value` is the sum of, as factors, and whether each is negative."""
        node = self.producers.get(value)
        if node is not None and isinstance(node.op, Negative):
            return [(factors, not negative) for factors, negative in self.terms(node.inputs[0])]
        if node is not None and isinstance(node.op, Add):
            return [term for v in node.inputs for term in self.terms(v)]
        return [self.factors(value)]

    def factors(self, value: Value) -> tuple[list[Value], bool]:
        """The factors that `value` is the product of, and whether it is negated."""
        node = self.producers.get(value)
        if node is not None and isinstance(node.op, Negative):
            factors, negative = self.factors(node.inputs[0])
            return factors, not negative
        if node is None or not isinstance(node.op, Multiply):
            return [value], False
        (a, first), (b, second) = map(self.factors, node.inputs)
        return [*a, *b], first != second

    def shape(self, factors: Sequence[Value]) -> tuple[int, ...]:
        """The shape of a product."""
        kind = factors[0].type
        for value in factors[1:]:
            (kind,) = infer_types(Multiply(), [kind, value.type])
        return kind.shape

    def product(self, factors: Sequence[Value]) -> Value:
        """The product of `factors`, from first to last."""
        total = factors[0]
        for value in factors[1:]:
            total = self.value(Multiply(), total, value)
        return total

    def value(self, op: Op, *inputs: Value) -> Value:
        """The result of an op, created once per op and inputs."""
        if (op, inputs) not in self.known:
            (kind,) = infer_types(op, [v.type for v in inputs])
            made = Value(self.names.fresh(inputs[0].name), kind)
            node = self.sums.get((op, inputs)) or Node(op, inputs, (made,))
            self.nodes.append(node)
            self.known[op, inputs] = node.output
            self.depths[node.output] = self.depth(op, inputs)
        return self.known[op, inputs]


def _same_along(value: Value, axes: Sequence[int], rank: int) -> bool:
    """Whether `value` has one element along `axes` of what it broadcasts to."""
    shape = (1,) * (rank - value.type.rank) + value.type.shape
    return all(shape[axis] == 1 for axis in axes)
