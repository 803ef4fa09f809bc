"""Patch partition: the arguments of a kernel of which each block touches one patch of rows and
columns, in each section of the columns.

In a joined launch all parts that go through the same patches are played by the same blocks, so that
what passes from part to part needs no wait of all blocks (`block_partition.py` has the same for
whole rows).
"""

from __future__ import annotations

from collections.abc import Mapping

from graphc.ir import ROW_MAJOR, Graph, Value
from graphc.kernels.program.access import AffineAccess
from graphc.kernels.program.body.statement import Address, Load, RegisterProgram, Store

PATCH = 16
"""Rows and columns of a patch."""


def count(rows: int, columns: int) -> int:
    """Patches, of which some are cut at the last row or column."""
    return -(-rows // PATCH) * -(-columns // PATCH)


def owned(
    body: Graph,
    program: RegisterProgram,
    pointers: Mapping[Value, str],
    patches: tuple[int, int],
) -> tuple[int, ...]:
    """The numbers of the arguments, inputs and then outputs, of which `program` touches, for each
    of as many rows and columns as `patches` go through, that row and column of a section alone; or
    nothing at all."""
    touched: dict[str, bool] = {}
    sizes = {name: value.type.size for value, name in pointers.items()}
    for statement in program.statements:
        for argument in statement.arguments:
            if isinstance(argument, Address):
                size = sizes.get(argument.pointer, 0)
                plain = isinstance(statement, Load | Store) and _is_own(
                    argument.access, size, *patches
                )
                touched[argument.pointer] = touched.get(argument.pointer, True) and plain
    values = (*body.inputs, *body.outputs)
    return tuple(
        i
        for i, v in enumerate(values)
        if touched.get(pointers[v], True) and v.type.layout == ROW_MAJOR
    )


def _is_own(access: AffineAccess | None, size: int, rows: int, columns: int) -> bool:
    """Whether it is the element of the row and column, of a section of that row."""
    if access is None or access.divisor != 1 or rows < 2 or size % (rows * columns):
        return False
    pitch = size // rows
    inside = 0 <= access.offset < pitch and access.offset % columns == 0
    return inside and access.strides == (pitch, 1)
