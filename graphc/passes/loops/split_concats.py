"""Products of concats in scans, of which what does not depend on carries is a product of its own.

The product of a concat is the sum of those of its parts: one of what depends on carries stays in
the loop, and `hoist` moves that of the rest before it. So `concat([x, h]) @ w` of a recurrent cell
is what `x @ wx + h @ wh` is.

Not in a scan that is to `recompute`, whose elements stay where they are, nor of numbers of two
bytes, which each product would round.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from graphc.ir import Node, Value
from graphc.ops.arithmetic import Add
from graphc.ops.base import Op
from graphc.ops.join import Concat
from graphc.ops.scan import BoundScan, Scan
from graphc.ops.view import Slice
from graphc.passes.loops.over_time import can_stack, summed_axes
from graphc.trace import Builder

Part = tuple[bool, list[Value]]
"""Neighbours in a concat, with whether they do not depend on carries."""


def split_concats(node: Node, builder: Builder) -> Node:
    """The scan with its products of concats apart."""
    loop = Scan.bind(node)
    body = loop.op.body
    if loop.op.recompute:
        return node
    known = _known(loop)
    nodes: list[Node] = []
    for inner in body.nodes:
        found = next(filter(None, (_parts(inner, i, body.producers, known) for i in (0, 1))), None)
        nodes += _Apart(inner, builder).nodes(*found) if found else [inner]
    return loop.rebuilt(nodes) if len(nodes) > len(body.nodes) else node


def _known(loop: BoundScan) -> set[Value]:
    """The values of a body that do not depend on carries."""
    known = {v for v, _ in (*loop.constants, *loop.scanned)}
    for node in loop.op.body.nodes:
        if known.issuperset(node.inputs) and (can_stack(node) or not node.inputs):
            known.update(node.outputs)
    return known


def _parts(
    node: Node, operand: int, producers: dict[Value, Node], known: set[Value]
) -> tuple[int, list[Part]] | None:
    """`operand` of a product and its parts, if those are of both kinds and the other is known."""
    summed = summed_axes(node)
    if summed is None or len(node.inputs) != 2 or node.output.type.numpy_dtype.itemsize < 4:
        return None
    value, other = node.inputs[operand], node.inputs[1 - operand]
    joined = producers.get(value)
    if joined is None or joined.op.concat_axis != summed[operand] or other not in known:
        return None
    parts = [(same, [*vs]) for same, vs in groupby(joined.inputs, known.__contains__)]
    return (operand, parts) if len(parts) > 1 else None


class _Apart:
    """The nodes that a product becomes."""

    def __init__(self, product: Node, builder: Builder) -> None:
        self.product, self.builder = product, builder
        summed = summed_axes(product)
        assert summed is not None, "a product of parts sums over an axis of both operands"
        self.summed = summed
        self.made: list[Node] = []

    def nodes(self, operand: int, parts: Sequence[Part]) -> list[Node]:
        total: Value | None = None
        for n, (value, other) in enumerate(self._operands(operand, parts)):
            inputs = (value, other) if operand == 0 else (other, value)
            term = self._emit(self.product.op, *inputs)
            last = self.product.output if n == len(parts) - 1 else None
            total = term if total is None else self._emit(Add(), total, term, output=last)
        return self.made

    def _operands(self, operand: int, parts: Sequence[Part]) -> Iterator[tuple[Value, Value]]:
        """Each part, and what it is multiplied by."""
        whole, start = self.product.inputs[1 - operand], 0
        axis, along = self.summed[1 - operand], self.summed[operand]
        for _, values in parts:
            value = values[0] if len(values) == 1 else self._emit(Concat(along), *values)
            stop = start + value.type.shape[along]
            starts, stops = [0] * whole.type.rank, [*whole.type.shape]
            starts[axis], stops[axis] = start, stop
            cut = Slice(tuple(starts), tuple(stops), (1,) * whole.type.rank)
            yield value, self._emit(cut, whole)
            start = stop

    def _emit(self, op: Op, *inputs: Value, output: Value | None = None) -> Value:
        if output is None:
            (type,) = op.infer(*(v.type for v in inputs))
            output = Value(self.builder.fresh(self.product.output.name), type)
        self.made.append(Node(op, inputs, (output,), self.product.where))
        return output
