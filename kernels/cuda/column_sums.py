"""Contractions whose columns are reduced: the statistics of a batch norm behind a convolution, or
the sums of its gradient.

The body is a contraction with its epilogue, and reductions of what that makes, along all axes but
its columns, with pointwise work behind them. The first sums are added up where the output is in
registers, tile by tile (columns.cuh): then comes what a reduction does once it knows its first
sums, without a launch that reads the output for them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from graphc.ir import Graph, Value
from graphc.kernels.cuda.bulk_tiles import BulkTile
from graphc.kernels.cuda.contract import Problem
from graphc.kernels.cuda.factors import factored, needed
from graphc.kernels.cuda.moments import in_one_pass
from graphc.kernels.cuda.persistent_tile import PersistentTile
from graphc.kernels.cuda.reduce import Shape, choose_shape, shape_behind
from graphc.kernels.cuda.reduce_text import ReduceText
from graphc.kernels.cuda.row_tile import RowTile
from graphc.kernels.cuda.runs import RUN
from graphc.kernels.cuda.shell import BLOCKS, FEW_THREADS, index_type, memory_order
from graphc.kernels.cuda.tiles import AnyTile
from graphc.kernels.program.access import Domain, Place
from graphc.kernels.program.epilogue import Epilogue, epilogue_of
from graphc.kernels.program.inplace import inplace_pairs
from graphc.kernels.program.names import Names, Pointers
from graphc.kernels.program.nest import Nest
from graphc.kernels.program.rows import Rows, find_rows, reduced_shape

ACROSS, LINES = 8, FEW_THREADS // 8
"""Threads of a block that adds parts of sums: side by side, of a line of memory, and one below the
other."""


def whole_runs(size: int) -> int:
    """`size` bytes, rounded up to a multiple of 16."""
    return -(-size // 16) * 16


@dataclass(frozen=True)
class Behind:
    """What the kernel of `body` does behind the contraction and the epilogue, which make `before`:
    `rows`, whose first sums are of `operands`."""

    body: Graph
    before: Graph
    rows: Rows
    operands: tuple[Value, ...]
    pointers: Pointers

    def epilogue(self, nest: Nest, domain: Domain, places: tuple[Place, ...]) -> Epilogue:
        """That of `before`, with the operands in registers."""
        taken = Names((*self.pointers.values(), *self.rows.whole.arrays))
        whole, wanted, own = self.before, self.operands, self.pointers
        made = epilogue_of(whole, nest, domain, places, 0, wanted, own, taken)
        operands = [self.body.inputs[read.input] for read in (nest.a, nest.b)]
        programs = [made.program, self.rows.elements, self.rows.after]
        pairs = inplace_pairs(self.body, programs, self.pointers, operands)
        return replace(made, inplace=pairs)

    @cached_property
    def shape(self) -> Shape | None:
        """The sharing of what comes behind known sums."""
        return shape_behind(self.rows)

    @property
    def bytes_of_column(self) -> int:
        """Of what is added up for each column."""
        return self.text(None, 0).part_bytes // math.prod(
            self.rows.domain.extents[d] for d in self.rows.kept_axes
        )

    def text(self, sums: ColumnSums | None, start: int) -> ReduceText:
        """The launches behind the contraction's, whose own part of the workspace has `start`
        bytes: all of a reduction, if the contraction adds no `sums`."""
        index = index_type(self.body)
        start = whole_runs(start)
        if sums is None:
            return ReduceText(self.rows, choose_shape(self.rows), index, 0, start)
        assert self.shape is not None
        return ReduceText(self.rows, self.shape, index, sums.parts, start)


@dataclass(frozen=True)
class ColumnSums:
    """Sums of columns in the epilogue: `parts` partial ones, each of the rows of a tile, or, where
    k is cut, of those that a block of the launch that adds its parts has, which are `each` per
    thread; of that launch `across` blocks share a row. They lie behind `start` bytes of the
    workspace."""

    behind: Behind
    parts: int
    each: int
    across: int
    start: int

    @staticmethod
    def of(
        behind: Behind,
        problem: Problem,
        tile: AnyTile | RowTile | PersistentTile,
        splits: int,
        start: int,
    ) -> ColumnSums | None:
        """Those of a contraction, behind `start` bytes of the workspace; None if its columns are
        not what the reductions keep, if these are a single launch anyway, or if a block has no room
        for what its threads add up."""
        shape, (_, rows, columns, _) = behind.shape, problem.sizes
        if (
            shape is None
            or shape.rows != columns
            or isinstance(tile, RowTile | PersistentTile | BulkTile)
        ):
            return None
        if choose_shape(behind.rows).splits == 1:  # one launch that reads the image once
            return None
        start, across = whole_runs(start), -(-columns // (RUN * ACROSS))
        if splits == 1:
            size = problem.a.read.type.numpy_dtype.itemsize
            room = tile.stages * (tile.m + tile.n) * tile.k * size
            if behind.bytes_of_column * RUN * tile.threads // 2 > room:
                return None
            return ColumnSums(behind, -(-rows // tile.m), 0, across, start)
        lines = -(-rows // LINES)
        each = max(1, lines * across // (2 * BLOCKS))
        return ColumnSums(behind, -(-lines // each), each, across, start)

    @property
    def results(self) -> str:
        """The type of what is added up for a run of columns."""
        return f"Several<Stage0, {RUN}>"

    def added(self, operands: Sequence[str]) -> list[str]:
        """The statements that add element `step` of a run, with the operands in these registers."""
        sums = self.behind.rows.loops[0].sums
        return [s.joined("results.at[step].", name) for s, name in zip(sums, operands, strict=True)]


def behind_of(body: Graph) -> Behind | None:
    """What a kernel does behind its contraction and the epilogue, if its body has reductions."""
    late: set[Value] = set()
    for node in body.nodes:
        if node.op.reduced_axes is not None or not late.isdisjoint(node.inputs):
            late.update(node.outputs)
    if not late:
        return None
    stored = tuple(v for v in body.outputs if v not in late)
    inputs, known = (*body.inputs, *stored), {*stored}
    nodes = [n for n in body.nodes if known.isdisjoint(n.outputs)]
    outputs = tuple(v for v in body.outputs if v in late)
    behind = replace(body, inputs=inputs, outputs=outputs, nodes=tuple(nodes))
    behind = factored(in_one_pass(replace(behind, nodes=needed(behind, nodes))))
    extents = reduced_shape(behind)
    order = memory_order([v for v in (*inputs, *outputs) if v.type.shape == extents])
    pointers = Names().pointers(body)
    domain = Domain(tuple(extents[d] for d in order))
    rows = find_rows(behind, domain, apart=True, order=order, pointers=pointers)
    operands = tuple(s.value for s in rows.loops[0].sums)
    nodes = [n for n in body.nodes if late.isdisjoint(n.outputs)]
    made = {v for n in nodes for v in n.outputs}
    nodes += [n for n in behind.nodes if made.isdisjoint(n.outputs)]
    before = replace(body, outputs=(*stored, *operands))
    before = replace(before, nodes=needed(before, nodes), outputs=stored)
    return Behind(body, before, rows, operands, pointers)
