"""Sums over all rows, computed along with reductions of each row.

Every chunk is a part of the rows and adds its own sums in row-sized memory; a second phase adds
those of the parts in ascending order.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from graphc.ir import Value
from graphc.ir.sum_order import LANES
from graphc.kernels.cpu.reduce.order_text import first_steps, order_of
from graphc.kernels.cpu.shared.kernel_source import argument_order, chunk_count, share
from graphc.kernels.loops.rows import RowLoop, Rows
from graphc.kernels.program.body.reduce import Reduce
from graphc.ops.fused import KernelNode
from graphc.ops.pointwise.logic import C_TYPES


class Columns:
    """The column sums of a kernel."""

    def __init__(self, node: KernelNode, rows: Rows) -> None:
        self.node, self.rows, self.order = node, rows, order_of(rows.columns)
        self._outputs = {name: value for value, name in rows.pointers.items()}
        self.across = rows.domain.lane in rows.reduced_axes
        self.groups = 1 if self.across else LANES // rows.domain.width
        """Registers per element, which blocks of rows take in turn where rows lie in the lanes."""
        self._offsets, self.nbytes = dict[Reduce, int](), 0
        for column in rows.columns:
            self._offsets[column] = self.nbytes
            size = rows.cache_elements * self.output(column).type.numpy_dtype.itemsize
            self.nbytes += self.groups * size
        self._registers = rows.cache_elements // rows.domain.width
        nanoseconds = (self.order.parts + 1.0) * len(rows.columns) * self._registers
        self._shares = chunk_count(nanoseconds, self._registers) if rows.columns else 0

    def offset(self, column: Reduce) -> int:
        """Bytes of a part's sums before those of a column."""
        return self._offsets[column]

    @property
    def phases(self) -> tuple[int, ...]:
        """The chunks of the second phase, if there is one."""
        return (self._shares,) if self._shares else ()

    @property
    def workspace(self) -> int:
        """Bytes of the workspace."""
        return self.nbytes * self.order.parts

    @property
    def span(self) -> str:
        """Statements that compute the first row of a part and the end of its rows."""
        steps, registers = first_steps(self.order, self.rows, self.rows.kept_axes)
        parts, units = self.order.parts, math.prod(map(self.rows.domain.steps, self.rows.kept_axes))
        ends = (f"{part} * {steps}L / {parts} * {registers}" for part in ("chunk", "(chunk + 1)"))
        return ", ".join(f"least({end}, {units})" for end in ends)

    def pointers(self) -> list[str]:
        """Definitions of pointers to the sums of the chunk `piece`."""
        return [
            f"{self._kind(c)}* const {self._name(c)} = ({self._kind(c)}*)({self._memory} + "
            f"piece * {self.nbytes}L + {offset});"
            for c, offset in self._offsets.items()
        ]

    def lines(self, loop: RowLoop, indices: Sequence[str]) -> list[str]:
        """The statements that add one register, in the loop's body."""
        place, found = self.rows.cache_access, list[str]()
        at = place.text(indices) if place else ""
        if self.groups > 1:
            lane, size = self.rows.domain.lane, self.rows.cache_elements
            assert lane is not None
            at += f" + {indices[lane]} / W % {self.groups} * {size}"
        for column in loop.columns:
            name, operand = self._name(column), column.operand
            live = operand if self.across else f"keep<M>({operand}, splat<{self._kind(column)}>(0))"
            found.append(f"store<W, 1>({name} + {at}, load<W, 1>({name} + {at}) + {live});")
        return found

    def clear(self) -> str:
        """The statement that clears a chunk's sums."""
        return f"__builtin_memset({self._memory} + chunk * {self.nbytes}L, 0, {self.nbytes});"

    def last_phase(self) -> list[str]:
        """The statements of the second phase."""
        extent = self.rows.domain.extents[self.rows.reduced_axes[-1]]
        sets = f"{self.groups}, {self.rows.cache_elements}"
        order, shares = argument_order(self.node), share(self._registers, self._shares)
        return [
            f"add_columns<{self._kind(c)}, {self.order.parts}, {self.nbytes}, {extent}, "
            f"{str(self.across).lower()}, {sets}>({self._memory} + {offset}, "
            f"({self._kind(c)}*)arguments[{order[self.output(c)]}], {shares});"
            for c, offset in self._offsets.items()
        ]

    @property
    def _memory(self) -> str:
        return f"(char*)arguments[{len(argument_order(self.node))}]"

    def _name(self, column: Reduce) -> str:
        return f"column{list(self._offsets).index(column)}"

    def output(self, column: Reduce) -> Value:
        """The output that a column sum is."""
        return self._outputs[column.pointers[0]]

    def _kind(self, column: Reduce) -> str:
        return C_TYPES[self.output(column).type.dtype]
