"""Compute sums of squared deviations from a mean in the same pass that sums for the mean.

Of n elements x, and with s one of them, the sum of (x - mean)^2 is

    sum (x - s)^2 - (sum (x - s))^2 / n

and never below 0. The terms that cancel are larger than the result by at most the square of the
distance from s to the mean in standard deviations: one or two of 24 bits as a rule. As s is one of
the elements, (s - mean)^2 is at most the whole sum of squares. So, whatever the data, the result
loses no more than a few times n 2^-24; without s it could lose the square of mean / deviation.
Equal elements have the deviation 0.

Each thread takes its first element as s. When two partial results with s and s + d are combined,
the second becomes one about s (`Deviations` in one_pass_variance.cuh):

    sum (x - s)^2 = sum (x - s - d)^2 + d (2 sum (x - s - d) + n d).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from graphc.ir import DTYPES, Graph, Node, Value
from graphc.kernels.cuda.reduce.hoist_factors import needed
from graphc.ops.base import Array
from graphc.ops.constant import Constant
from graphc.ops.pointwise.arithmetic import Multiply, Square, Subtract
from graphc.ops.reduction import NumberReduction, Sum


@dataclass(frozen=True)
class Deviations(NumberReduction):
    """y[kept] = sum of (x - mean of x)^2 over `axes`, with the mean over the same elements."""

    axes: tuple[int, ...]
    keepdims: bool = False
    name: ClassVar[str] = "deviations"
    combine: ClassVar[str] = "deviations"

    def reference(self, *inputs: Array) -> tuple[Array, ...]:
        (x,) = inputs
        centred = x - x.mean(self.axes, keepdims=True)
        return (np.square(centred).sum(self.axes, keepdims=self.keepdims),)


def in_one_pass(body: Graph) -> Graph:
    """`body` whose sums of squared deviations need no mean; the same graph if it has none."""
    producers = body.producers
    nodes = [_moved(node, producers) for node in body.nodes]
    same = all(new is old for new, old in zip(nodes, body.nodes, strict=True))
    return body if same else replace(body, nodes=needed(body, nodes))


def _moved(node: Node, producers: Mapping[Value, Node]) -> Node:
    """`node`, or an equivalent that needs no mean."""
    x = _deviating(node, producers)
    if x is None:
        return node
    assert isinstance(node.op, Sum)
    return replace(node, op=Deviations(node.op.axes, node.op.keepdims), inputs=(x,))


def _deviating(node: Node, producers: Mapping[Value, Node]) -> Value | None:
    """x if `node` is the sum of (x - mean of x)^2 along the axes of the mean; else None."""
    if not isinstance(node.op, Sum) or not node.inputs[0].type.size:
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
        share = dtype.type(total.type.size / x.type.size)
        if own and sum.inputs == (x,) and value.size == 1 and value.ravel()[0] == share:
            return x
    return None


def _aligned(op: Sum) -> bool:
    """Whether its result broadcasts back to the summed elements."""
    return op.keepdims or op.axes == tuple(range(len(op.axes)))
