"""Print the C++ kernel of a reduction."""

from __future__ import annotations

import math
from collections.abc import Sequence

from graphc.base.target import Target
from graphc.ir import DTYPES
from graphc.ir.sum_order import SumOrder
from graphc.kernels.cpu.reduce.column_sums import Columns
from graphc.kernels.cpu.reduce.order_text import chains, chains_together, order_text, stated_orders
from graphc.kernels.cpu.reduce.reduce import rows_per_sweep, vectorized_rows
from graphc.kernels.cpu.shared.kernel_source import (
    FEW_STEPS,
    argument_order,
    array_text,
    chunk_count,
    domain_text,
    entry,
    make_kernel,
    pointer_lines,
    program_cost,
    share,
    statement_cost,
)
from graphc.kernels.program.access import Domain
from graphc.kernels.program.body.literals import splat
from graphc.kernels.program.body.statement import RegisterProgram
from graphc.kernels.program.cached_rows import cache_rows
from graphc.kernels.program.inplace import inplace_pairs
from graphc.kernels.program.kernel import Kernel
from graphc.kernels.program.rows import RowLoop, RowReduction, Rows, reduced_shape
from graphc.ops.fused import KernelNode
from graphc.ops.pointwise.logic import C_TYPES

DEAR = 5.0
"""Nanoseconds per register from which a value is cached for later loops: the cost of a function
call."""
HELD_BYTES = 16384
"""The most bytes of a cached row beside inputs and outputs in a first-level cache of 32 KiB."""
_ACROSS = {"sum": "lanesum", "prod": "laneprod", "max": "lanemax", "min": "lanemin"}
"""Functions that combine the lanes of a register."""


def lower_reduce(node: KernelNode, target: Target) -> Kernel:
    """The kernel of a body with reductions and without contractions."""
    body = node.body
    rows = vectorized_rows(body, target.lanes)
    order, columns = stated_orders(body, rows)
    side = rows_per_sweep(rows)
    units = _registers(rows, rows.kept_axes) // side
    wanted = _chunks(rows, side, units, target.lanes)
    split = wanted >= 2 * units and not rows.columns
    pieces = min(order.parts, -(-wanted // units)) if split else 1
    if pieces == 1:  # else each loop is a phase, and a row has several workers
        rows = cache_rows(rows, lambda s: statement_cost(s, target.lanes), DEAR, HELD_BYTES)
        wanted = _chunks(rows, side, units, target.lanes)
    chunks = columns.parts if rows.columns else min(wanted, units)
    printer = _Printer(node, rows, order, side, units, pieces, Columns(node, rows, columns))
    last = 1 if rows.loops[-1].sums or rows.after.statements else 0
    phases = (units * pieces,) * len(rows.loops) + (units,) * last
    sections = printer.sections(chunks)
    work = sum(x.body.work + len(x.sums) for x in rows.loops)
    return make_kernel(
        node,
        sections,
        phases if pieces > 1 else (chunks, *printer.columns.phases),
        printer.workspace,
        Domain(reduced_shape(body)).size * work,
        inplace_pairs(body, [rows.program], rows.pointers),
    )


def _chunks(rows: Rows, side: int, units: int, width: int) -> int:
    """The number of chunks of all rows, or of pieces of rows."""
    steps = _registers(rows, rows.reduced_axes)
    once = (program_cost(p, width) for p in (*(x.before for x in rows.loops), rows.after))
    each = (program_cost(loop.body, width) for loop in rows.loops)
    per_row = side * (sum(each) * steps + sum(once))
    return chunk_count(per_row * units, units * max(steps // FEW_STEPS, 1))


def _registers(rows: Rows, axes: Sequence[int]) -> int:
    """Registers, or rows, along `axes`."""
    return math.prod(map(rows.domain.steps, axes))


def _domain(name: str, domain: Domain, axes: Sequence[int]) -> str:
    """Some axes of a domain as a C++ domain of at least one axis; without lanes its LANE is -1."""
    extents = tuple(domain.extents[d] for d in axes) or (1,)
    lane = next((i for i, d in enumerate(axes) if d == domain.lane), -1)
    return domain_text(name, Domain(extents, lane, domain.width))


def _sums_text(name: str, sums: Sequence[RowReduction], across: bool) -> str:
    lines = [f"struct {name} {{"]
    for s in sums:
        lines.append(f"  vec<{C_TYPES[s.dtype]}> {s.result} = {_identity(s)};")
    other = "o" if sums else ""
    lines.append(f"  INLINE void add(const {name}& {other}) {{")
    lines += [f"    {s.joined('', f'o.{s.result}')}" for s in sums]
    lines += ["  }", "  INLINE void across() {"]
    for s in sums if across else ():
        joined = f"{_ACROSS[s.combine]}({s.result})"
        lines.append(f"    {s.result} = splat<{C_TYPES[s.dtype]}>({joined});")
    lines += ["  }", "};"]
    return "".join(f"{line}\n" for line in lines)


def _identity(sum: RowReduction) -> str:
    """A register of the neutral element."""
    return splat(sum.identity, sum.dtype)


class _Printer:
    """Prints the sections of the kernel's source."""

    def __init__(
        self,
        node: KernelNode,
        rows: Rows,
        order: SumOrder,
        side: int,
        units: int,
        pieces: int,
        columns: Columns,
    ) -> None:
        self.node, self.rows, self.order = node, rows, order
        self.pieces, self.columns = pieces, columns
        self.side, self.units = side, units
        self.across = rows.domain.lane in rows.reduced
        """Whether the lanes of a register belong to one row."""
        self.workspace = columns.workspace
        """Bytes of the partial results of each loop, row and part."""
        kept, reduced = rows.kept_axes, rows.reduced_axes
        self.indices = [
            f"i[{kept.index(d)}]" if d in kept else f"j[{reduced.index(d)}]"
            for d in range(rows.domain.rank)
        ]
        if reduced:
            self.indices[reduced[-1]] = "last"
        if self.side > 1:
            self.indices[kept[-1]] = "at"

    def sections(self, chunks: int) -> list[str]:
        """The sections of the source; sets `workspace`."""
        rows = self.rows
        return [
            array_text(rows.program.arrays),
            self._kept_domain(),
            _domain("Reduced", rows.domain, rows.reduced_axes),
            order_text("Order", self.order, rows),
            *(_sums_text(f"Sums{k}", x.sums, self.across) for k, x in enumerate(rows.loops)),
            self._row(),
            self._shell(chunks),
        ]

    def _kept_domain(self) -> str:
        """The domain of the rows, or of the groups of neighbouring rows."""
        axes, domain = self.rows.kept_axes, self.rows.domain
        if self.side == 1:
            return _domain("Kept", domain, axes)
        extents = list(domain.extents)
        extents[axes[-1]] //= self.side * self._step
        lane = None if domain.lane == axes[-1] else domain.lane
        return _domain("Kept", Domain(tuple(extents), lane, domain.width), axes)

    @property
    def _step(self) -> int:
        """Elements between neighbouring rows."""
        domain = self.rows.domain
        return domain.width if domain.lane == self.rows.kept_axes[-1] else 1

    def _each(self, lines: Sequence[str]) -> list[str]:
        """The lines for every row of the group, whose sums are `sums` and whose index is `at`."""
        place = f"i[{len(self.rows.kept_axes) - 1}]"
        return [
            "#pragma GCC unroll 8",
            f"for (int side = 0; side < {self.side}; side++) {{",
            f"  const long at = {self._step}L * ({self.side} * {place} + side);",
            *(f"  {line}" for line in lines),
            "}",
        ]

    def _row(self) -> str:
        rows = self.rows
        lines = [
            "template <int N>",
            "static INLINE void row(void* const* arguments, const long* i, long number, int phase, "
            "long piece) {",
            *(f"  {line}" for line in pointer_lines(self.node, rows.program, rows.pointers)),
        ]
        for held in rows.cached:
            kind = C_TYPES[held.dtype]
            lines.append(f"  alignas(64) {kind} {held.name}[{held.size}];")
            lines.append(f"  {kind}* const {held.pointer} = {held.name};")
        lines += [f"  {line}" for line in self.columns.pointers()]
        if self.pieces > 1:
            number = len(argument_order(self.node))
            lines.append(f"  char* const workspace = (char*)arguments[{number}];")
        for k, loop in enumerate(rows.loops):
            lines += [f"  {line}" for line in self._loop(k, loop)]
        if self.side == 1:
            lines += [f"  {line}" for line in self._lines(rows.after, "N")]
        return "".join(f"{line}\n" for line in [*lines, "}"])

    def _shell(self, chunks: int) -> str:
        lines, span, piece = [], share(self.units, chunks), "0"
        if self.pieces > 1:
            last = len(self.rows.loops)
            lines = [f"const long unit = phase < {last} ? chunk / {self.pieces} : chunk;"]
            span, piece = "unit, unit + 1", f"chunk % {self.pieces}"
        elif self.rows.columns:
            last_phase = [f"  {line}" for line in self.columns.last_phase()]
            lines = ["if (phase == 1) {", *last_phase, "  return;", "}", self.columns.clear()]
            span, piece = self.columns.span, "chunk"
        lines += [
            f"rows<Kept>({span}, [=]<int N>(const long* i, long number) "
            "__attribute__((always_inline)) {",
            f"  row<N>(arguments, i, number, phase, {piece});",
            "});",
        ]
        return entry(self.node, lines, "phase")

    def _loop(self, k: int, loop: RowLoop) -> list[str]:
        widest = max((DTYPES[s.dtype].itemsize for s in loop.sums), default=0)
        size = widest * len(loop.sums) * self.rows.domain.width * self.side
        size = size if self.pieces > 1 else 0
        partials = "nullptr"
        if size:
            partials = f"workspace + {self.workspace}L + number * {size * self.order.parts}L"
            self.workspace += size * self.order.parts * self.units
        settings = f"{self._sums(loop)}, N, {k}, {self.pieces}, {size}"
        if self.side > 1:
            return self._group(loop, settings, partials)
        return [
            *self._lines(loop.before, "N"),
            f"Sums{k} sums{k};",
            f"if (!loop<Reduced, {settings}>(phase, piece, {partials}, sums{k}, "
            f"[=]<int M>(Sums{k}& sums, const long* j, long last) "
            "__attribute__((always_inline)) {",
            *(f"  {line}" for line in self._lines(loop.body, "M")),
            *(f"  {self._join(s)}" for s in loop.sums),
            *(f"  {line}" for line in self.columns.lines(loop, self.indices)),
            "})) return;",
            *(f"const vec<{C_TYPES[s.dtype]}> {s.result} = sums{k}.{s.result};" for s in loop.sums),
        ]

    def _group(self, loop: RowLoop, settings: str, partials: str) -> list[str]:
        """The only loop, and what follows it, for a group of neighbouring rows."""
        kind = f"Neighbours<Sums0, {self.side}>"
        body = ["Sums0& sums = all.row[side];", *self._lines(loop.body, "M")]
        results = [
            f"const vec<{C_TYPES[s.dtype]}> {s.result} = group.row[side].{s.result};"
            for s in loop.sums
        ]
        return [
            f"{kind} group;",
            f"if (!loop<Reduced, {settings}>(phase, piece, {partials}, group, "
            f"[=]<int M>({kind}& all, const long* j, long last) "
            "__attribute__((always_inline)) {",
            *(f"  {line}" for line in self._each([*body, *map(self._join, loop.sums)])),
            "})) return;",
            *self._each([*results, *self._lines(self.rows.after, "N")]),
        ]

    def _join(self, s: RowReduction) -> str:
        live = f"keep<M>({s.operand}, {_identity(s)})" if self.across else s.operand
        return s.joined("sums.", live)

    def _sums(self, loop: RowLoop) -> str:
        """The order of a loop, and how many of its chains are added side by side."""
        if not loop.sums:
            return "Plain<Order>, 1"
        count = chains(self.order, self.rows)
        return f"Order, {chains_together(loop, self.side, count)}"

    def _lines(self, program: RegisterProgram, live: str) -> list[str]:
        return program.lines(self.indices, live)
