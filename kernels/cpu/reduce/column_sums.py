"""Sums over all rows, computed along with reductions of each row.

Every chunk of rows adds its own sums in row-sized memory, and a second phase adds those of the
chunks in ascending order.
"""

from __future__ import annotations

from collections.abc import Sequence

from graphc.ir import DTYPES
from graphc.kernels.cpu.shared.kernel_source import argument_order, chunk_count, share
from graphc.kernels.program.rows import ColumnSum, RowLoop, Rows
from graphc.ops.fused import KernelNode
from graphc.ops.pointwise.logic import C_TYPES

FEWEST_ROWS = 32
"""The fewest rows of a chunk, whose sums must be cleared, written and read once more."""


class Columns:
    """The column sums of a kernel whose rows are divided into `chunks`."""

    def __init__(self, node: KernelNode, rows: Rows, chunks: int) -> None:
        self.node, self.rows, self.chunks = node, rows, chunks
        self.across = rows.domain.lane in rows.reduced
        self._offsets, self.nbytes = dict[ColumnSum, int](), 0
        for column in rows.columns:
            self._offsets[column] = self.nbytes
            self.nbytes += rows.cache_elements * DTYPES[column.output.type.dtype].itemsize
        self._registers = rows.cache_elements // rows.domain.width
        nanoseconds = (chunks + 1.0) * len(rows.columns) * self._registers
        self._shares = chunk_count(nanoseconds, self._registers) if rows.columns else 0

    @property
    def phases(self) -> tuple[int, ...]:
        """The chunks of the second phase, if there is one."""
        return (self._shares,) if self._shares else ()

    @property
    def workspace(self) -> int:
        """Bytes of the workspace."""
        return self.nbytes * self.chunks

    def pointers(self) -> list[str]:
        """Definitions of pointers to the sums of the chunk `piece`."""
        return [
            f"{_kind(c)}* const {self._name(c)} = ({_kind(c)}*)({self._memory} + "
            f"piece * {self.nbytes}L + {offset});"
            for c, offset in self._offsets.items()
        ]

    def lines(self, loop: RowLoop, indices: Sequence[str]) -> list[str]:
        """The statements that add one register, in the loop's body."""
        place, found = self.rows.cache_access, list[str]()
        at = place.text(indices) if place else ""
        for column in loop.columns:
            name, operand = self._name(column), column.operand
            live = operand if self.across else f"keep<M>({operand}, splat<{_kind(column)}>(0))"
            found.append(f"store<W, 1>({name} + {at}, load<W, 1>({name} + {at}) + {live});")
        return found

    def clear(self) -> str:
        """The statement that clears a chunk's sums."""
        return f"__builtin_memset({self._memory} + chunk * {self.nbytes}L, 0, {self.nbytes});"

    def last_phase(self) -> list[str]:
        """The statements of the second phase."""
        extent = self.rows.domain.extents[self.rows.reduced_axes[-1]]
        order = argument_order(self.node)
        return [
            f"add_columns<{_kind(c)}, {self.chunks}, {self.nbytes}, {extent}, "
            f"{str(self.across).lower()}>({self._memory} + {offset}, "
            f"({_kind(c)}*)arguments[{order[c.output]}], {share(self._registers, self._shares)});"
            for c, offset in self._offsets.items()
        ]

    @property
    def _memory(self) -> str:
        return f"(char*)arguments[{len(argument_order(self.node))}]"

    def _name(self, column: ColumnSum) -> str:
        return f"column{list(self._offsets).index(column)}"


def _kind(column: ColumnSum) -> str:
    return C_TYPES[column.output.type.dtype]
