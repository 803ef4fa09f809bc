"""Sums of squared deviations from a mean in the pass over the data that sums them for the mean.

Of n elements x, and with s the first of them, the sum of (x - mean)^2 is

    sum (x - s)^2 - (sum (x - s))^2 / n

and never below 0. What cancels is at most as many times as large as the result as s lies standard
deviations from the mean, squared: one or two of 24 bits as a rule. s is one of the elements, so
that (s - mean)^2 is at most the whole sum of squares: whatever the data, no more than n times 2^-24
is lost of the result, where without s the square of mean / deviation would be. Elements that are
all equal have the deviation 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from graphc.ir import DTYPES, Graph, Names, Node, Value, infer_types
from graphc.ir.op import Op
from graphc.kernels.cuda.factors import needed
from graphc.ops.arithmetic import Maximum, Multiply, Square, Subtract
from graphc.ops.constant import Constant
from graphc.ops.reduction import Sum
from graphc.ops.view import Slice


def in_one_pass(body: Graph) -> Graph:
    """`body` whose sums of squared deviations need no mean; the same graph if it has none."""
    producers, nodes = body.producers, list[Node]()
    names = Names(v.name for v in (*body.inputs, *producers))
    for node in body.nodes:
        x = _deviating(node, producers)
        if x is None:
            nodes.append(node)
        else:
            nodes += _Moments(names, node).of(x)
    return body if len(nodes) == len(body.nodes) else replace(body, nodes=needed(body, nodes))


def _deviating(node: Node, producers: Mapping[Value, Node]) -> Value | None:
    """x if `node` is the sum of (x - mean of x)^2 along the axes of the mean."""
    if not isinstance(node.op, Sum):
        return None
    square = producers.get(node.inputs[0])
    if square is None or not isinstance(square.op, Square | Multiply):
        return None
    difference = producers.get(square.inputs[0])
    if len(set(square.inputs)) > 1 or difference is None:
        return None
    if not isinstance(difference.op, Subtract):
        return None
    x, mean = difference.inputs
    scaled = producers.get(mean)
    if scaled is None or not isinstance(scaled.op, Multiply):
        return None
    for total, factor in (scaled.inputs, scaled.inputs[::-1]):
        sum, constant = producers.get(total), producers.get(factor)
        if sum is None or constant is None or not isinstance(constant.op, Constant):
            continue
        own = isinstance(sum.op, Sum) and sum.op.axes == node.op.axes and _aligned(sum.op)
        value, dtype = constant.op.reference()[0], DTYPES[x.type.dtype]
        share = dtype.type(total.type.size / max(x.type.size, 1))
        if own and sum.inputs == (x,) and value.size == 1 and value.ravel()[0] == share:
            return x
    return None


def _aligned(op: Sum) -> bool:
    """Whether its result broadcasts back to the elements that were summed."""
    return op.keepdims or op.axes == tuple(range(len(op.axes)))


class _Moments:
    """The nodes that are in the place of `last`, a sum of squares."""

    def __init__(self, names: Names, last: Node) -> None:
        self.names, self.last, self.nodes = names, last, list[Node]()

    def of(self, x: Value) -> list[Node]:
        op, dtype = self.last.op, x.type.dtype
        assert isinstance(op, Sum)
        shape, zeros = x.type.shape, (0,) * x.type.rank
        stops = tuple(1 if d in op.axes else n for d, n in enumerate(shape))
        first = self.value(Slice(zeros, stops, (1,) * x.type.rank), x)
        moved = self.value(Subtract(), x, first)
        squares = self.value(op, self.value(Square(), moved))
        total = self.value(op, moved)
        share = np.asarray(total.type.size / x.type.size, DTYPES[dtype])
        mean = self.value(Multiply(), total, self.value(Constant.of(share)))
        spread = self.value(Subtract(), squares, self.value(Multiply(), total, mean))
        zero = self.value(Constant.of(np.zeros((), DTYPES[dtype])))
        self.nodes.append(replace(self.last, op=Maximum(), inputs=(spread, zero)))
        return self.nodes

    def value(self, op: Op, *inputs: Value) -> Value:
        """The result of one node more."""
        (kind,) = infer_types(op, [v.type for v in inputs])
        made = Value(self.names.fresh(self.last.output.name), kind)
        self.nodes.append(Node(op, inputs, (made,), self.last.where))
        return made
