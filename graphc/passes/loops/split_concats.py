"""Split products of concats in scans, so that the part without carries can be hoisted.

The product of a concat is the sum of those of its parts: one of what depends on carries stays in
the loop, and `hoist` moves that of the rest before it. So `concat([x, h]) @ w` of a recurrent cell
is what `x @ wx + h @ wh` is.

Not in a scan that is to `recompute`, whose elements stay where they are, nor of numbers of two
bytes, which each product would round.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from graphc.ir import Node, Value
from graphc.ops.base import Op
from graphc.ops.join import Concat
from graphc.ops.loops.scan import BoundScan, Scan
from graphc.ops.pointwise.arithmetic import Add
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
        found = _split(inner, body.producers, known)
        nodes += _SplitProduct(found, builder).nodes() if found else [inner]
    return loop.rebuilt(nodes) if len(nodes) > len(body.nodes) else node


@dataclass(frozen=True)
class _Split:
    """A product whose operand of this number is a concat of `parts` along the summed axis."""

    product: Node
    summed: tuple[int, int]
    operand: int
    parts: Sequence[Part]


def _known(loop: BoundScan) -> set[Value]:
    """The values of a body that do not depend on carries."""
    known = {v for v, _ in (*loop.constants, *loop.scanned)}
    for node in loop.op.body.nodes:
        if known.issuperset(node.inputs) and (can_stack(node) or not node.inputs):
            known.update(node.outputs)
    return known


def _split(node: Node, producers: dict[Value, Node], known: set[Value]) -> _Split | None:
    """A product and the parts of an operand, if those are of both kinds and the other is known."""
    summed = summed_axes(node)
    if summed is None or len(node.inputs) != 2 or node.output.type.numpy_dtype.itemsize < 4:
        return None
    for operand, value in enumerate(node.inputs):
        joined = producers.get(value)
        if joined is None or joined.op.concat_axis != summed[operand]:
            continue
        parts = [(same, [*vs]) for same, vs in groupby(joined.inputs, known.__contains__)]
        if len(parts) > 1 and node.inputs[1 - operand] in known:
            return _Split(node, summed, operand, parts)
    return None


class _SplitProduct:
    """The nodes that a product becomes."""

    def __init__(self, split: _Split, builder: Builder) -> None:
        self.split, self.builder = split, builder
        self.made: list[Node] = []

    def nodes(self) -> list[Node]:
        split, total = self.split, None
        for n, (value, other) in enumerate(self._operands()):
            inputs = (value, other) if split.operand == 0 else (other, value)
            term = self._emit(split.product.op, *inputs)
            last = split.product.output if n == len(split.parts) - 1 else None
            total = term if total is None else self._emit(Add(), total, term, output=last)
        return self.made

    def _operands(self) -> Iterator[tuple[Value, Value]]:
        """Each part, and what it is multiplied by."""
        split, start = self.split, 0
        whole = split.product.inputs[1 - split.operand]
        axis, along = split.summed[1 - split.operand], split.summed[split.operand]
        for _, values in split.parts:
            value = values[0] if len(values) == 1 else self._emit(Concat(along), *values)
            stop = start + value.type.shape[along]
            starts, stops = [0] * whole.type.rank, [*whole.type.shape]
            starts[axis], stops[axis] = start, stop
            cut = Slice(tuple(starts), tuple(stops), (1,) * whole.type.rank)
            yield value, self._emit(cut, whole)
            start = stop

    def _emit(self, op: Op, *inputs: Value, output: Value | None = None) -> Value:
        product = self.split.product
        if output is None:
            (type,) = op.infer(*(v.type for v in inputs))
            output = Value(self.builder.fresh(product.output.name), type)
        self.made.append(Node(op, inputs, (output,), product.where))
        return output
