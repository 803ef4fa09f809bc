"""Contractions whose columns are reduced: the statistics of a batch norm behind a convolution, or
the sums of its gradient; or whose rows are, as by a layer norm.

The body is a contraction with its epilogue, and reductions of what that makes, along all axes but
its columns, with pointwise work behind them. The first sums are added up where the output is in
registers, tile by tile (columns.cuh): then comes what a reduction does once it knows its first
sums, without a launch that reads the output for them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from graphc.base.cached import cached_property
from graphc.ir import Graph, Value
from graphc.kernels.cuda.contract.contract import Problem
from graphc.kernels.cuda.contract.schedules import ContractTile
from graphc.kernels.cuda.reduce.hoist_factors import factored, needed
from graphc.kernels.cuda.reduce.one_pass_variance import in_one_pass
from graphc.kernels.cuda.reduce.reduce import (
    KEEPING_ALONG,
    KEEPING_THREADS,
    Shape,
    choose_shape,
    shape_behind,
)
from graphc.kernels.cuda.reduce.stage_text import ReduceText
from graphc.kernels.cuda.shared.gpu_model import GPU
from graphc.kernels.cuda.shared.kernel_source import BLOCKS, FEW_THREADS, index_type, memory_order
from graphc.kernels.cuda.shared.launches import Launches
from graphc.kernels.cuda.shared.runs import RUN
from graphc.kernels.loops.rows import Rows, find_rows, first_reduced, reduced_shape
from graphc.kernels.program.access import AffineIndex, Domain
from graphc.kernels.program.body.names import Identifiers, Pointers
from graphc.kernels.program.epilogue import Epilogue, epilogue_of
from graphc.kernels.program.inplace import inplace_pairs
from graphc.kernels.program.nest import Nest

ACROSS, LINES = 8, FEW_THREADS // 8
"""Threads of a block that adds parts of sums: side by side, of a line of memory, and one below the
other."""
JOINED = 32
"""Groups of tiles whose partial results the last block of each joins, about, where what comes
behind would read so many that a launch had to join them."""


def whole_runs(size: int) -> int:
    """`size` bytes, rounded up to a multiple of 16."""
    return -(-size // 16) * 16


@dataclass(frozen=True)
class FusedReduction:
    """What the kernel of `body` does behind the contraction and the epilogue, which make `before`:
    `rows`, whose first sums are of `operands`, perhaps by blocks that draw `tickets`."""

    body: Graph
    before: Graph
    rows: Rows
    operands: tuple[Value, ...]
    pointers: Pointers
    tickets: bool = False
    of_rows: bool = False
    """Whether it reduces rows of the product that its threads hold, and not columns."""

    def epilogue(self, nest: Nest, domain: Domain, places: tuple[AffineIndex, ...]) -> Epilogue:
        """That of `before`, with the operands in registers."""
        taken = Identifiers((*self.pointers.values(), *self.rows.program.arrays))
        whole, wanted, own = self.before, self.operands, self.pointers
        made = epilogue_of(whole, nest, domain, places, 0, wanted, own, taken)
        operands = [self.body.inputs[read.input] for read in (nest.a, nest.b)]
        programs = [made.program, self.rows.loop_program, self.rows.after]
        pairs = inplace_pairs(self.body, programs, self.pointers, operands)
        return replace(made, inplace=pairs)

    @cached_property
    def shape(self) -> Shape | None:
        """The sharing of what comes behind known sums."""
        return shape_behind(self.rows)

    @cached_property
    def part_bytes(self) -> int:
        """Of what is added up, for all columns."""
        return self.text(None, 0).part_bytes

    @property
    def bytes_of_column(self) -> int:
        """Of what is added up for each column."""
        kept = (self.rows.domain.extents[d] for d in self.rows.kept_axes)
        return self.part_bytes // math.prod(kept)

    def together(self, parts: int) -> int:
        """How many of so many partial sums the last block of each group joins; 1 if none does."""
        assert self.shape is not None
        gathers = ReduceText(self.rows, self.shape, index_type(self.body), parts).gathers
        return -(-parts // JOINED) if self.tickets and gathers else 1

    def text(self, sums: ColumnSums | None, start: int) -> ReduceText:
        """The launches behind the contraction's, whose own part of the workspace has `start`
        bytes: all of a reduction, if the contraction adds no `sums`."""
        index = index_type(self.body)
        start = whole_runs(start)
        if sums is None:
            shape = choose_shape(self.rows)
            return ReduceText(self.rows, shape, index, 0, start, self.tickets)
        assert self.shape is not None
        start = sums.given_start
        return ReduceText(self.rows, self.shape, index, sums.given, start, self.tickets)

    def adding(self, text: ReduceText, rows: int, columns: int, parts: int) -> ReduceText | None:
        """`text` with blocks that may add `parts` of the product themselves, of so many rows and
        columns, before they reduce: a single launch whose blocks have less to read by that than a
        launch takes. None where that is not so."""
        shape = text.shape
        if self.of_rows:
            whole = (shape.rows, shape.columns, shape.length) == (rows, columns, RUN)
            moved = parts * shape.across * columns * 4
            return text if whole and moved <= GPU.launch * GPU.l2_rate_of_one else None
        if shape.splits > 1 or (shape.rows, shape.columns, shape.length) != (columns, rows, RUN):
            return None
        if shape.rows_apart or shape.threads != KEEPING_THREADS:
            return None
        if not shape.keeps_row:
            shape = replace(shape, across=KEEPING_THREADS // KEEPING_ALONG, along=KEEPING_ALONG)
        moved = parts * rows * shape.across * RUN * 4
        return replace(text, shape=shape) if moved <= GPU.launch * GPU.l2_rate_of_one else None


@dataclass(frozen=True)
class ColumnSums:
    """Sums of columns in the epilogue: `parts` partial ones, each of the rows of a tile, or, where
    k is cut, of those that a block of the launch that adds its parts has, which are `each` per
    thread; of that launch `across` blocks share a row. They lie behind `start` bytes of the
    workspace. Each `together` of them, of a `strips`-th of the columns, are joined by the last
    block that has one; what that makes lies behind them."""

    behind: FusedReduction
    parts: int
    each: int
    across: int
    start: int
    together: int
    strips: int

    @staticmethod
    def of(
        behind: FusedReduction,
        problem: Problem,
        tile: ContractTile,
        splits: int,
        start: int,
    ) -> ColumnSums | None:
        """Those of a contraction, behind `start` bytes of the workspace; None if its columns are
        not what the reductions keep, if these are a single launch anyway, or if a block has no room
        for what its threads add up."""
        shape, (_, rows, columns, _) = behind.shape, problem.sizes
        if shape is None or shape.rows != columns or behind.of_rows:
            return None
        if not tile.sums_columns:
            return None
        if choose_shape(behind.rows).splits == 1:  # one launch that reads the image once
            return None
        start, across = whole_runs(start), -(-columns // (RUN * ACROSS))
        if splits == 1:
            strips = -(-columns // tile.n)
            parts = tile.partials(rows, strips)
            size = problem.a.read.type.numpy_dtype.itemsize
            if behind.bytes_of_column * RUN * tile.threads // 2 > tile.room(size):
                return None
            return ColumnSums(behind, parts, 0, across, start, behind.together(parts), strips)
        lines = -(-rows // LINES)
        each = max(1, lines * across // (2 * BLOCKS))
        parts = -(-lines // each)
        return ColumnSums(behind, parts, each, across, start, behind.together(parts), across)

    @property
    def given(self) -> int:
        """The partial sums that are left."""
        return -(-self.parts // self.together)

    @property
    def given_start(self) -> int:
        """The byte of the workspace at which they begin."""
        if self.together == 1:
            return self.start
        return whole_runs(self.start + self.parts * self.behind.part_bytes)

    @property
    def fields(self) -> list[str]:
        """What an epilogue has for them."""
        joining = ["  unsigned char* joined;", "  unsigned* counters;"]
        return [
            "  unsigned char* partial;",
            *(joining if self.together > 1 else ()),
            f"  using Results = {self.results};",
            f"  static constexpr int together = {self.together};",
        ]

    def values(self, launches: Launches) -> list[str]:
        """The values of those fields."""
        places = [f"workspace + {self.start}"]
        if self.together > 1:
            counters = launches.counters(self.given * self.strips)
            places += [f"workspace + {self.given_start}", counters]
        return places

    @property
    def results(self) -> str:
        """The type of what is added up for a run of columns."""
        return f"Several<Stage0, {RUN}>"

    def added(self, operands: Sequence[str]) -> list[str]:
        """The statements that add element `step` of a run, with the operands in these registers."""
        sums = self.behind.rows.loops[0].sums
        return [s.joined("results.at[step].", name) for s, name in zip(sums, operands, strict=True)]


def fused_reduction_of(body: Graph, tickets: bool = False) -> FusedReduction | None:
    """What a kernel does behind its contraction and the epilogue, if its body has reductions, whose
    last blocks may draw `tickets`."""
    late: set[Value] = set()
    for node in body.nodes:
        if node.op.reduced_axes is not None or not late.isdisjoint(node.inputs):
            late.update(node.outputs)
    if not late:
        return None
    (shape,) = {n.output.type.shape for n in body.nodes if n.op.contracts}
    stored = tuple(v for v in body.outputs if v not in late and v.type.shape == shape)
    reshaped = [n for n in body.nodes if n.op.is_planned and n.inputs[0] in stored]
    known = {*stored, *(n.output for n in reshaped)}
    inputs = (*body.inputs, *stored, *(n.output for n in reshaped))
    nodes = [n for n in body.nodes if known.isdisjoint(n.outputs)]
    outputs = tuple(v for v in body.outputs if v not in stored)
    behind = replace(body, inputs=inputs, outputs=outputs, nodes=tuple(nodes))
    behind = replace(behind, nodes=needed(behind, nodes))
    extents = reduced_shape(behind)
    order = memory_order([v for v in (*inputs, *outputs) if v.type.shape == extents])
    pointers = Identifiers().pointers(body)
    pointers |= {n.output: pointers[n.inputs[0]] for n in reshaped}  # the same bytes
    domain = Domain(tuple(extents[d] for d in order))
    find = partial(find_rows, domain=domain, recompute=True, order=order, pointers=pointers)
    rows, operands = find(behind), tuple[Value, ...]()
    sharing = choose_shape(rows)
    of_rows = sharing.rows_apart and sharing.keeps_row
    if not of_rows:
        behind = factored(in_one_pass(behind))
        rows = find(behind)
        operands = first_reduced(behind)
    nodes = [n for n in body.nodes if late.isdisjoint(n.outputs)]
    made = {v for n in nodes for v in n.outputs}
    nodes += [n for n in behind.nodes if made.isdisjoint(n.outputs)]
    before = replace(body, outputs=(*stored, *operands))
    before = replace(before, nodes=needed(before, nodes), outputs=stored)
    return FusedReduction(body, before, rows, operands, pointers, tickets, of_rows)
