"""Vectorize a node of a scan's body over all iterations.

A value of the body is known outside as the same in every iteration, or as a stack with a first axis
for time: what its op becomes with one axis more, `Op.batched` says. `Totals` has the sum of a value
over time, where a contraction of stacks becomes one contraction with time among the summed terms.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from graphc import functions
from graphc.gradients.vocabulary import Known, Vocabulary
from graphc.ir import Node, Value
from graphc.ops.axes import SUMMED, folded
from graphc.ops.reduction import Sum
from graphc.ops.view import PermuteDims
from graphc.trace import Tensor, emit


def can_stack(node: Node) -> bool:
    """Return whether a node may be computed for all iterations at once.

    It may not if it draws random numbers by the iteration's counter, or is a loop.
    """
    return bool(node.inputs) and not node.op.draws and not node.op.is_loop


def summed_axes(node: Node) -> tuple[int, int] | None:
    """Return the axis of each operand that a contraction sums over, or None.

    Both operands have exactly one, and share no other axis.
    """
    if not node.op.contracts:
        return None
    ((a, b),) = node.op.axis_map(*(v.type for v in node.inputs))
    shared = any(d in b for d in a if d not in (None, SUMMED))
    if shared or a.count(SUMMED) != 1 or b.count(SUMMED) != 1:
        return None
    return a.index(SUMMED), b.index(SUMMED)


class Totals:
    """Sums over time of values that `producers`, nodes of a body, compute from `known` ones."""

    def __init__(
        self, producers: Mapping[Value, Node], known: Mapping[Value, Known], length: int
    ) -> None:
        self.producers, self.known, self.length = producers, known, length
        self._totals: dict[Value, Tensor] = {}
        self.f = Vocabulary()

    def total(self, value: Value) -> Tensor:
        """The sum of `value` over all iterations."""
        if value not in self._totals:
            self._totals[value] = self._total(value)
        return self._totals[value]

    def _total(self, value: Value) -> Tensor:
        node = self.producers.get(value)
        if node is not None:
            op = node.op
            stacked = [v for v in node.inputs if self.known[v].stacked]
            summed = summed_axes(node)
            if summed is not None and len(stacked) == 2:
                pairs = zip(node.inputs, summed, strict=True)
                return emit(op, *(self.folded(v, axis) for v, axis in pairs))
            if isinstance(op, Sum) and stacked:
                axes = tuple(a + 1 for a in op.axes)
                x = self.known[node.inputs[0]].tensor
                if op.keepdims:
                    y = emit(Sum((0, *axes), True), x)
                    return functions.reshape(y, y.shape[1:])
                return emit(Sum((0, *axes)), x)
            if op.moves_sums:
                return emit(op, *map(self.total, node.inputs))
            if op.adds and _has_no_broadcast(node):
                a, b = node.inputs
                return functions.add(self.total(a), self.total(b))
        known = self.known[value]
        if not known.stacked:
            return functions.multiply(known.tensor, self.length)
        return emit(Sum((0,)), known.tensor)  # of the same dtype, integers too

    def folded(self, value: Value, axis: int) -> Tensor:
        """A stack as one value: the iterations' one behind the other along `axis`."""
        node = self.producers.get(value)
        if node is not None and isinstance(node.op, PermuteDims):
            return emit(node.op, self.folded(node.inputs[0], node.op.axes[axis]))
        return cast(Tensor, folded(self.f, self.known[value].tensor, axis))


def _has_no_broadcast(node: Node) -> bool:
    """Whether nothing is broadcast."""
    return all(v.type.shape == node.output.type.shape for v in node.inputs)
