"""What a node of a scan's body computes in all iterations at once.

A value of the body is known outside as the same in every iteration, or as a stack with a first axis
for time. `all_iterations` applies one node to such values; `total` is the sum of a value over time,
where a matrix product of stacks becomes one product with time among the summed terms.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from graphc import functions
from graphc.ir import Node, Value
from graphc.ops.arithmetic import Add
from graphc.ops.base import Op, Pointwise, Reduction
from graphc.ops.join import Concat, Pad
from graphc.ops.matmul import Matmul
from graphc.ops.reduction import Sum
from graphc.ops.view import BroadcastTo, Flip, PermuteDims, Reshape, Slice
from graphc.trace import Tensor, emit


@dataclass(frozen=True)
class Known:
    """A value of a body as a tensor outside: the same in all iterations, or `stacked`."""

    tensor: Tensor
    stacked: bool


_ALIKE = (Pointwise, Reduction, Matmul, Concat, Pad, BroadcastTo, Flip, PermuteDims, Reshape, Slice)


def can_stack(node: Node) -> bool:
    """Whether `all_iterations` knows the node's op."""
    return isinstance(node.op, _ALIKE) and len(node.outputs) == 1


def all_iterations(node: Node, known: Mapping[Value, Known], length: int) -> Known:
    """The output of `node` from its inputs, in every iteration."""
    inputs = [known[v] for v in node.inputs]
    tensors = [k.tensor for k in inputs]
    if not any(k.stacked for k in inputs):
        return Known(emit(node.op, *tensors), False)
    return Known(_stacked(node, inputs, length), True)


def _stacked(node: Node, inputs: list[Known], length: int) -> Tensor:
    op, rank = node.op, node.output.type.rank
    if isinstance(op, Pointwise):
        return emit(op, *(_aligned(k, rank) for k in inputs))
    if isinstance(op, Matmul):
        a, b = (_aligned(k, rank) for k in inputs)
        return functions.matmul(a, b)
    if isinstance(op, Concat):
        parts = [k.tensor if k.stacked else _repeated(k.tensor, length) for k in inputs]
        return emit(Concat(op.axis + 1), *parts)
    (x,) = (k.tensor for k in inputs)
    if isinstance(op, Reduction):
        axes = tuple(a + 1 for a in op.axes)
        return emit(replace(op, axes=axes), x)  # type: ignore[type-var]
    if isinstance(op, Reshape):
        return functions.reshape(x, (length, *op.shape))
    if isinstance(op, PermuteDims):
        return emit(PermuteDims((0, *(a + 1 for a in op.axes))), x)
    if isinstance(op, BroadcastTo):
        aligned = _aligned(inputs[0], len(op.shape))
        return emit(BroadcastTo((length, *op.shape)), aligned)
    if isinstance(op, Flip):
        return emit(Flip(tuple(a + 1 for a in op.axes)), x)
    if isinstance(op, Slice):
        return emit(Slice((0, *op.starts), (length, *op.stops), (1, *op.steps)), x)
    assert isinstance(op, Pad), op.name
    return emit(replace(op, low=(0, *op.low), high=(0, *op.high), interior=(0, *op.interior)), x)


def _aligned(known: Known, rank: int) -> Tensor:
    """A stack of elements with axes of extent 1 up to `rank` behind the time axis."""
    x = known.tensor
    if not known.stacked or x.ndim == rank + 1:
        return x
    time, *element = x.shape
    return functions.reshape(x, (time, *(1,) * (rank - len(element)), *element))


def _repeated(x: Tensor, length: int) -> Tensor:
    return functions.broadcast_to(x, (length, *x.shape))


class Totals:
    """Sums over time of values that `producers`, nodes of a body, compute from `known` ones."""

    def __init__(
        self, producers: Mapping[Value, Node], known: Mapping[Value, Known], length: int
    ) -> None:
        self.producers, self.known, self.length = producers, known, length
        self._totals: dict[Value, Tensor] = {}

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
            if isinstance(op, Matmul) and len(stacked) == 2 and _matrices(node):
                a, b = node.inputs
                return functions.matmul(self.folded(a, 1), self.folded(b, 0))
            if isinstance(op, Sum) and stacked:
                axes = tuple(a + 1 for a in op.axes)
                x = self.known[node.inputs[0]].tensor
                if op.keepdims:
                    y = emit(Sum((0, *axes), True), x)
                    return functions.reshape(y, y.shape[1:])
                return emit(Sum((0, *axes)), x)
            if isinstance(op, PermuteDims | Reshape | Slice) or _is_zero_pad(op):
                return emit(op, self.total(node.inputs[0]))
            if isinstance(op, Add) and _alike(node):
                a, b = node.inputs
                return functions.add(self.total(a), self.total(b))
        known = self.known[value]
        if not known.stacked:
            return functions.multiply(known.tensor, self.length)
        return emit(Sum((0,)), known.tensor)  # of the same dtype, integers too

    def folded(self, value: Value, axis: int) -> Tensor:
        """A stack of matrices as one matrix: the iterations' one behind the other along `axis`."""
        node = self.producers.get(value)
        if node is not None and isinstance(node.op, PermuteDims) and node.op.axes == (1, 0):
            return functions.matrix_transpose(self.folded(node.inputs[0], 1 - axis))
        x = self.known[value].tensor
        time, rows, columns = x.shape
        if axis == 0:
            return functions.reshape(x, (time * rows, columns))
        return functions.reshape(functions.permute_dims(x, (1, 0, 2)), (rows, time * columns))


def _is_zero_pad(op: Op | None) -> bool:
    return isinstance(op, Pad) and op.value == 0


def _alike(node: Node) -> bool:
    """Whether nothing is broadcast."""
    return all(v.type.shape == node.output.type.shape for v in node.inputs)


def _matrices(node: Node) -> bool:
    return all(v.type.rank == 2 for v in node.inputs)
