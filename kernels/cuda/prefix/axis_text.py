"""Print functors that read and write along one axis; see kernels/cpu/prefix/axis_text.py."""

from __future__ import annotations

from graphc.kernels.cuda.shared.kernel_source import delinearize
from graphc.kernels.program.axis import AxisBody
from graphc.kernels.program.body.statement import RegisterProgram, joined


def names(space: AxisBody) -> list[str]:
    """The domain's indices: i0, i1, ... of the row, j along the axis."""
    kept = space.kept
    return [f"i{kept.index(d)}" if d in kept else "j" for d in range(space.domain.rank)]


def row_indices(space: AxisBody, row: str, index: str, *programs: RegisterProgram) -> list[str]:
    """Definitions of the row's indices that `programs` use, from its number `row`."""
    extents = [space.domain.extents[d] for d in space.kept]
    used = joined(programs).used(names(space))
    return delinearize(row, [f"i{d}" for d in range(len(extents))], extents, index, used)


def read_lines(space: AxisBody) -> list[str]:
    """Statements that return an element."""
    return [*space.read.lines(names(space), "1"), f"return {space.operand};"]


def write_lines(space: AxisBody) -> list[str]:
    """Statements that store the results `state`."""
    return space.write.lines(names(space), "1")
