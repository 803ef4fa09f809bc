"""Patch partition: find the arguments of which each block touches only one patch of rows and
columns, in each section of the columns.

In a joined launch one block runs the same patch of all parts, so that values pass between parts
without a barrier of all blocks (see `loops/shares.py` for whole rows).
"""

from __future__ import annotations

from collections.abc import Mapping

from graphc.ir import ROW_MAJOR, Graph, Value
from graphc.kernels.program.access import AffineAccess
from graphc.kernels.program.body.statement import Address, Load, RegisterProgram, Store

PATCH = 16
"""Rows and columns of a patch."""


def count(rows: int, columns: int) -> int:
    """The number of patches; those at the last row or column may be partial."""
    return -(-rows // PATCH) * -(-columns // PATCH)


def owned(
    body: Graph,
    program: RegisterProgram,
    pointers: Mapping[Value, str],
    patches: tuple[int, int],
) -> tuple[int, ...]:
    """The numbers of the arguments (inputs, then outputs) of which `program` touches, for each row
    and column of `patches`, only the element of that row and column in each section. Empty if it
    touches any other way."""
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
    """Whether `access` is the element of the row and column in a section of that row."""
    if access is None or access.divisor != 1 or rows < 2 or size % (rows * columns):
        return False
    pitch = size // rows
    inside = 0 <= access.offset < pitch and access.offset % columns == 0
    return inside and access.strides == (pitch, 1)
