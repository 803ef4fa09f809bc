"""What a contraction is to contract.cuh: rows, columns, batch and k.

The kept axes of the nest become the rows of the product (axes that only one operand has), its
columns (axes that only the other has) and the batch (the others); the summed axes become k. The
operand that has the output's fastest axis gives the columns, so that neighbouring threads store
neighbours.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from graphc.kernels.cuda.access import OperandAccess, operand_access
from graphc.kernels.program.access import row_major_strides
from graphc.kernels.program.nest import Nest, Read


@dataclass(frozen=True)
class Problem:
    """The contraction as a batch of matrix products: rows, columns and batch are axes of `nest`.
    Where the nest has sections, the columns are those of one section."""

    nest: Nest
    batch: tuple[int, ...]
    rows: tuple[int, ...]
    columns: tuple[int, ...]
    a: OperandAccess
    b: OperandAccess

    @property
    def kept(self) -> tuple[tuple[int, ...], ...]:
        """The axes of the batch, the rows and the columns."""
        return self.batch, self.rows, self.columns

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        """Batches, M, N, K; N of one section."""
        groups = (*self.kept, self.nest.summed)
        batches, m, n, k = (self.nest.extents(axes) for axes in groups)
        return batches, m, n, k


def make_problem(nest: Nest) -> Problem:
    """Which axes are rows, columns and batch, and how the operands are read so."""
    a, b = nest.a, nest.b
    if nest.sections is not None:
        return _sectioned_problem(nest)
    only_a, only_b = _read_alone(nest, a, b), _read_alone(nest, b, a)
    batch = tuple(i for i in nest.kept if i not in only_a + only_b)
    strides = output_strides(nest)
    wide = [i for i in nest.kept if nest.axes[i].extent > 1]
    fastest = min(wide, key=lambda i: strides[i], default=None)
    if fastest in only_a:
        a, b, only_a, only_b = b, a, only_b, only_a
    return Problem(
        nest,
        batch,
        only_a,
        only_b,
        operand_access(nest, a, batch, only_a, nest.summed),
        operand_access(nest, b, batch, only_b, nest.summed),
    )


def _sectioned_problem(nest: Nest) -> Problem:
    """The columns are the axis that was cut: rows are what the other operand alone reads. Where a
    broadcast hides the axis from both, an operand with other axes of its own has the rows."""
    a, b, sections = nest.a, nest.b, nest.sections
    assert sections is not None
    cut = (sections, sections + 1)
    if {*_read_alone(nest, a, b)} & {*cut} or {*_read_alone(nest, b, a)} - {*cut}:
        a, b = b, a
    rows = _read_alone(nest, a, b)
    assert {*_read_alone(nest, b, a)} <= {*cut}, "the columns are the axis that was cut"
    batch = tuple(i for i in nest.kept if i not in (*rows, *cut))
    access = operand_access(nest, b, batch, cut, nest.summed)
    if not access.along_k:
        access = replace(access, vector=math.gcd(access.vector, nest.axes[cut[1]].extent))
    return Problem(
        nest, batch, rows, cut[1:], operand_access(nest, a, batch, rows, nest.summed), access
    )


def output_strides(nest: Nest) -> dict[int, int]:
    """Elements of the row-major output from one index of each kept axis to the next."""
    strides = row_major_strides(nest.node.output.type.shape)
    return {
        i: sum(s * a.coefficients[i] for s, a in zip(strides, nest.output, strict=True))
        for i in nest.kept
    }


def _read_alone(nest: Nest, read: Read, other: Read) -> tuple[int, ...]:
    """The axes of the output that `read` depends on and `other` does not."""
    return tuple(i for i in nest.kept if _reads(read, i) and not _reads(other, i))


def _reads(read: Read, axis: int) -> bool:
    return read.depends_on(axis) or any(axis in b.axes for b in read.borders)
