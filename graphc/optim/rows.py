"""Gradients of tables that lookups read: zero but for the rows that were read.

A table of V rows, of which a step reads n, has a gradient of V rows; here it is one of n rows and
their numbers, so that an update costs by the rows that were read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
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
    """Row `numbers[i]` of a gradient is `values[i]`, those that do not occur are 0; a number below
    0 stands for no row. No row occurs twice."""

    numbers: Tensor
    """i64[n]."""
    values: Tensor
    """[n, ...], of the gradient's dtype."""

    def of(self, table: Tensor) -> Tensor:
        """The rows of `table` that the gradient has; zeros where it has none."""
        return emit(ops.Take(0), table, self.numbers)

    def put(self, table: Tensor, rows: Tensor) -> Tensor:
        """`table` with `rows` in place of those that the gradient has."""
        places = functions.reshape(self.numbers, (-1, *(1,) * (rows.ndim - 1)))
        places = functions.broadcast_to(places, rows.shape)
        return emit(ops.Scatter(0, "replace"), table, places, rows)


@dataclass(frozen=True)
class Lookups:
    """A gradient that is the sum of those of lookups in one table."""

    builder: Builder
    made: Mapping[Value, Node]
    """The node that makes each value of the graph."""
    gradient: Tensor
    found: Sequence[Node]
    """The lookups' gradients, in the order in which the sum is computed."""

    @classmethod
    def of(cls, builder: Builder, made: Mapping[Value, Node], gradient: Tensor) -> Lookups | None:
        """None if the gradient has other parts."""
        found = _lookups(made, gradient.value)
        return cls(builder, made, gradient, found) if found else None

    @property
    def count(self) -> int:
        """How many rows they read."""
        return sum(node.inputs[0].type.size for node in self.found)

    @property
    def are_few(self) -> bool:
        """Whether it pays to update the rows that were read alone."""
        return SMALL * self.count < self.gradient.shape[0]

    def rows(self) -> RowGradient:
        """The gradient's rows, each the sum of the same terms in the same order as in the gradient
        of all rows."""
        count = self.count
        read = [Tensor(node.inputs[0], self.builder) for node in self.found]
        flat = [functions.astype(functions.reshape(x, -1), "i64") for x in read]
        whole = functions.concat(flat, 0) if len(flat) > 1 else flat[0]
        ordered, order = self.builder.emit(ops.Sort(0, count), whole)
        # Equal numbers lie side by side: the first of each begins a row of the result.
        begins = functions.astype(functions.not_equal(ordered[1:], ordered[:-1]), "i64")
        place = functions.cumsum(functions.pad(begins, ((1, 0),)), 0)
        last = ops.Scatter(0, "replace")
        slot = emit(last, functions.zeros((count,), "i64"), order, place)
        extent = self.gradient.shape[0]
        inside = functions.logical_and(whole >= 0, whole < extent)
        slot = functions.where(inside, slot, -1)
        none = functions.full((count,), -1, dtype="i64")
        numbers = emit(last, none, place, ordered)
        parts = iter(self._split(slot))
        return RowGradient(numbers, self._values(self.gradient.value, parts, count))

    def _split(self, slot: Tensor) -> list[Tensor]:
        """What each lookup reads, in numbers of rows of the result."""
        parts, start = [], 0
        for node in self.found:
            kind = node.inputs[0].type
            parts.append(functions.reshape(slot[start : start + kind.size], kind.shape))
            start += kind.size
        return parts

    def _values(self, value: Value, parts: Iterator[Tensor], count: int) -> Tensor:
        """`value` again, of `count` rows."""
        node = self.made[value]
        if isinstance(node.op, ops.TakeGrad):
            dy = Tensor(node.inputs[1], self.builder)
            return emit(ops.TakeGrad(0, count), next(parts), dy)
        return emit(node.op, *(self._values(x, parts, count) for x in node.inputs))


def _lookups(made: Mapping[Value, Node], value: Value) -> list[Node]:
    """The gradients of lookups of which `value` is the sum; none if it is anything else."""
    node = made.get(value)
    if node is None:
        return []
    if isinstance(node.op, ops.TakeGrad):
        return [node] if node.op.axis == 0 else []
    if not isinstance(node.op, _LINEAR):
        return []
    parts = [_lookups(made, x) for x in node.inputs]
    return [part for found in parts for part in found] if all(parts) else []
