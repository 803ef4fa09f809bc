"""Gradients of embedding tables, which are zero except in the rows that a step reads.

Of a table of V rows, of which a step reads n, the gradient is stored as n rows and their numbers,
so that the cost of an update depends on n.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from graphc import functions, ops
from graphc.ir import Node, Value
from graphc.trace import Builder, Tensor, emit

SMALL = 2
"""A table of at most so many times the rows that are read is updated as a whole."""
_LINEAR = (ops.Add, ops.Cast, ops.Negative)
"""Ops whose result is 0 where all that they read is."""


@dataclass(frozen=True)
class RowGradient:
    """A gradient whose row `numbers[i]` is `values[i]`, and zero elsewhere.

    No row occurs twice; a negative number stands for no row.
    """

    numbers: Tensor
    """i64[n]."""
    values: Tensor
    """[n, ...], of the gradient's dtype."""

    def of(self, table: Tensor) -> Tensor:
        """Return the rows of `table` that the gradient has; zeros where it has none."""
        return emit(ops.Take(0), table, self.numbers)

    def put(self, table: Tensor, rows: Tensor) -> Tensor:
        """Return `table` with the rows that the gradient has replaced by `rows`."""
        places = functions.reshape(self.numbers, (-1, *(1,) * (rows.ndim - 1)))
        places = functions.broadcast_to(places, rows.shape)
        return emit(ops.Scatter(0, "replace"), table, places, rows)


@dataclass(frozen=True)
class Lookups:
    """A gradient that is the sum of the gradients of lookups in one table."""

    builder: Builder
    gradient: Tensor
    nodes: Sequence[Node]
    """What computes the gradient, in order: the lookups' gradients, and sums of them."""

    @classmethod
    def of(cls, builder: Builder, made: Mapping[Value, Node], gradient: Tensor) -> Lookups | None:
        """Return the lookups of a gradient; None if it has other parts.

        `made` maps each value to the node that makes it.
        """
        found: set[int] = set()
        waiting = [gradient.value]
        while waiting:
            node = made.get(waiting.pop())
            if node is None or not _is_part(node):
                return None
            if id(node) not in found:
                found.add(id(node))
                waiting += () if isinstance(node.op, ops.TakeGrad) else node.inputs
        return cls(builder, gradient, [node for node in builder.nodes if id(node) in found])

    @property
    def read(self) -> list[Tensor]:
        """Return the row numbers of each lookup."""
        lookups = (node for node in self.nodes if isinstance(node.op, ops.TakeGrad))
        return [Tensor(node.inputs[0], self.builder) for node in lookups]

    @property
    def is_sparse(self) -> bool:
        """Return whether it pays to update only the rows that were read."""
        return SMALL * sum(x.size for x in self.read) < self.gradient.shape[0]

    def rows(self) -> RowGradient:
        """Return the gradient's rows, summed in the order of the dense gradient."""
        flat = [functions.astype(functions.reshape(x, -1), "i64") for x in self.read]
        whole = functions.concat(flat, 0) if len(flat) > 1 else flat[0]
        (count,), (extent, *_) = whole.shape, self.gradient.shape
        ordered, order = self.builder.emit(ops.Sort(0, count), whole)
        # Equal numbers lie side by side: the first of each begins a row of the result.
        begins = functions.astype(functions.not_equal(ordered[1:], ordered[:-1]), "i64")
        place = functions.cumsum(functions.pad(begins, ((1, 0),)), 0)[:count]
        last = ops.Scatter(0, "replace")
        slot = emit(last, functions.zeros((count,), "i64"), order, place)
        inside = functions.logical_and(whole >= 0, whole < extent)
        slot = functions.where(inside, slot, -1)
        none = functions.full((count,), -1, dtype="i64")
        numbers = emit(last, none, place, ordered)
        return RowGradient(numbers, self._values(slot))

    def _values(self, slot: Tensor) -> Tensor:
        """The gradient again, of as many rows as are read: `slot` says which one each is."""
        values: dict[Value, Tensor] = {}
        (count,), start = slot.shape, 0
        for node in self.nodes:
            if isinstance(node.op, ops.TakeGrad):
                kind = node.inputs[0].type
                part = functions.reshape(slot[start : start + kind.size], kind.shape)
                start += kind.size
                dy = Tensor(node.inputs[1], self.builder)
                values[node.output] = emit(ops.TakeGrad(0, count), part, dy)
            else:
                values[node.output] = emit(node.op, *(values[x] for x in node.inputs))
        return values[self.gradient.value]


def _is_part(node: Node) -> bool:
    if isinstance(node.op, ops.TakeGrad):
        return node.op.axis == 0
    return isinstance(node.op, _LINEAR)
