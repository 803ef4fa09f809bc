"""The problem that contract.cuh solves: rows, columns, batch and k.

The kept axes of the nest become the rows of the product (axes that only one operand has), its
columns (axes that only the other has) and the batch (the others); the summed axes become k. The
operand that has the output's fastest axis gives the columns, so that neighbouring threads store
neighbours.

Where an operand's channels run fastest in memory, rows, columns and k take its axes in memory's
order, so that copies are of 16 bytes. An axis of channels that are no whole copies is longer by the
padding: what is read there is zero, and its sums are not used.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from graphc.ir import ROW_MAJOR, Graph
from graphc.kernels.cuda.contract.access import AGAIN, OperandAccess, operand_access
from graphc.kernels.program.nest import Axis, Border, Nest, Read, cut_axis

PART = 128
"""Bytes of k in a step of tensor cores: a line of memory."""


@dataclass(frozen=True)
class Problem:
    """The contraction as a batch of matrix products: rows, columns, batch and k (`depth`) are axes
    of `nest`. Where the nest has sections, the columns are those of one section. What is beyond
    `limits` of kept axes is padding. `order` has the kept axes as they lie in the output, slowest
    first."""

    nest: Nest
    batch: tuple[int, ...]
    rows: tuple[int, ...]
    columns: tuple[int, ...]
    depth: tuple[int, ...]
    a: OperandAccess
    b: OperandAccess
    limits: tuple[Border, ...]
    order: tuple[int, ...]

    @property
    def kept(self) -> tuple[tuple[int, ...], ...]:
        """The axes of the batch, the rows and the columns."""
        return self.batch, self.rows, self.columns

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        """Batches, M, N, K; N of one section."""
        batches, m, n, k = (self.nest.extents(axes) for axes in (*self.kept, self.depth))
        return batches, m, n, k

    @property
    def weights(self) -> int:
        """How many elements of the columns' operand there are, those of all sections."""
        _, _, n, k = self.sizes
        return n * self.nest.section_count * k

    @property
    def steps(self) -> dict[int, int]:
        """From one index of each kept axis to the next in [batch][row][column]."""
        steps, step = {}, 1
        for axis in reversed([i for axes in self.kept for i in axes]):
            steps[axis] = step
            step *= self.nest.axes[axis].extent
        return steps


def make_problem(
    nest: Nest,
    body: Graph,
    limits: tuple[Border, ...] = (),
    first: Sequence[int] = (),
    fragment: int = 16,
) -> Problem:
    """Which axes are rows, columns and batch, and how the operands are read so. The axes `first`
    are the slowest of the rows, and of k; `limits` are those of axes that were cut. Channels that
    are summed are whole `fragment` bytes."""
    if nest.sections is not None:
        return _sectioned_problem(nest)
    nest, lengths = _padded(nest, fragment)
    limits += tuple(_limit(nest, i, n) for i, n in lengths.items() if nest.axes[i].kept)
    a, b = nest.a, nest.b
    only_a, only_b = _read_alone(nest, a, b), _read_alone(nest, b, a)
    batch = tuple(i for i in nest.kept if i not in only_a + only_b)
    strides = output_strides(nest, body)
    wide = [i for i in nest.kept if nest.axes[i].extent > 1]
    fastest = min(wide, key=lambda i: strides[i], default=None)
    if fastest in only_a:
        a, b, only_a, only_b = b, a, only_b, only_a
    rows, columns = _as_it_lies(nest, a, only_a), _as_it_lies(nest, b, only_b)
    depth = _as_it_lies(nest, a if a.type.layout != ROW_MAJOR else b, nest.summed)
    rows, depth = (
        (*(i for i in first if i in axes), *(i for i in axes if i not in first))
        for axes in (rows, depth)
    )
    return Problem(
        nest,
        batch,
        rows,
        columns,
        depth,
        operand_access(nest, a, batch, rows, depth),
        operand_access(nest, b, batch, columns, depth),
        limits,
        tuple(sorted(nest.kept, key=lambda i: -strides[i])),
    )


def in_parts(nest: Nest) -> tuple[Nest, tuple[int, ...]]:
    """`nest` with summed channels, of an operand whose taps meet elements again, in parts of a step
    of k; and the axis of the parts, as it is to be the slowest: so taps that follow each other read
    few lines of memory, which are still in L1. Else `nest` as it is."""
    if nest.sections is not None:
        return nest, ()
    for read in (nest.a, nest.b):
        whole = PART // read.type.numpy_dtype.itemsize
        axes = [i for i in range(len(nest.axes)) if _reads(read, i)]
        narrow = read.rounded or read.type.numpy_dtype.itemsize == 2
        if not narrow or read.type.layout == ROW_MAJOR:
            continue
        if nest.extents(axes) < AGAIN * read.type.size:
            continue
        for i in nest.summed:
            extent, bordered = nest.axes[i].extent, any(i in b.axes for b in read.borders)
            if read.strides[i] != 1 or bordered or extent % whole or extent == whole:
                continue
            name = nest.axes[i].name
            cut = Axis(f"{name}_part", extent // whole, False), Axis(name, whole, False)
            return cut_axis(nest, i, cut), (i,)
    return nest, ()


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
    columns, whole = cut[1:], operand_access(nest, a, batch, rows, nest.summed)
    order = (*batch, *rows, *columns)
    return Problem(nest, batch, rows, columns, nest.summed, whole, access, (), order)


def _padded(nest: Nest, fragment: int) -> tuple[Nest, dict[int, int]]:
    """`nest` with whole copies of 16 bytes along every axis of channels that run fastest in an
    operand, whole `fragment` bytes if it is summed, and the extents that were not."""
    lengths: dict[int, int] = {}
    axes = list(nest.axes)
    for read in (nest.a, nest.b):
        whole = 16 // read.type.numpy_dtype.itemsize
        if read.type.layout == ROW_MAJOR or read.type.layout.width % whole:
            continue
        assert read.type.layout.axis is not None
        channels = read.type.shape[read.type.layout.axis]
        for i, axis in enumerate(nest.axes):
            grain = whole if axis.kept else whole * fragment // 16
            if read.strides[i] == 1 and axis.extent == channels and channels % grain:
                lengths[i] = channels
                extent = -(-channels // grain) * grain
                axes[i] = replace(axis, extent=max(extent, axes[i].extent))
    a, b = (_bordered(nest, read, lengths) for read in (nest.a, nest.b))
    return replace(nest, axes=tuple(axes), a=a, b=b), lengths


def _bordered(nest: Nest, read: Read, lengths: Mapping[int, int]) -> Read:
    """`read` that is zero beyond the `lengths` of axes."""
    own = (_limit(nest, i, n) for i, n in lengths.items() if _reads(read, i))
    return replace(read, borders=(*read.borders, *own))


def _limit(nest: Nest, axis: int, length: int) -> Border:
    """The border of an axis at its own index `length`."""
    return Border(tuple(int(d == axis) for d in range(len(nest.axes))), 0, length)


def _as_it_lies(nest: Nest, read: Read, axes: tuple[int, ...]) -> tuple[int, ...]:
    """The axes as `read` steps through memory along them, the largest steps first, where its
    channels run fastest."""
    if read.type.layout == ROW_MAJOR:
        return axes

    def step(axis: int) -> float:
        parts = (q.stride * q.border.coefficients[axis] / q.border.divisor for q in read.quotients)
        return abs(read.strides[axis]) + sum(map(abs, parts))

    return tuple(sorted(axes, key=lambda i: -step(i)))


def output_strides(nest: Nest, body: Graph) -> dict[int, int]:
    """Elements of what is stored from one index of each kept axis to the next."""
    kind = nest.node.output.type
    layouts = (v.type.layout for v in body.outputs if v.type.shape == kind.shape)
    strides = kind.with_layout(next(layouts, ROW_MAJOR)).strides
    return {
        i: sum(s * a.coefficients[i] for s, a in zip(strides, nest.output, strict=True))
        for i in nest.kept
    }


def _read_alone(nest: Nest, read: Read, other: Read) -> tuple[int, ...]:
    """The axes of the output that `read` depends on and `other` does not."""
    return tuple(i for i in nest.kept if _reads(read, i) and not _reads(other, i))


def _reads(read: Read, axis: int) -> bool:
    return read.depends_on(axis) or any(axis in b.axes for b in read.borders)
