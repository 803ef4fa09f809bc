"""Print the C++ kernel of a reduction."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from graphc.base.target import Target
from graphc.ir import DTYPES
from graphc.kernels.cpu.reduce.column_sums import Columns
from graphc.kernels.cpu.reduce.order_text import chains, chains_together, order_of, order_text
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
    share,
    statement_cost,
)
from graphc.kernels.loops.cached_rows import cache_rows
from graphc.kernels.loops.language import Alloc, Loop, walk
from graphc.kernels.loops.reduction_orders import ordered_rows
from graphc.kernels.loops.rewrites import rows_by
from graphc.kernels.loops.rows import RowLoop, Rows, reduced_shape
from graphc.kernels.loops.verify import verify_nest
from graphc.kernels.program.access import Domain
from graphc.kernels.program.body.literals import splat
from graphc.kernels.program.body.reduce import Reduce
from graphc.kernels.program.body.statement import Statement
from graphc.kernels.program.inplace import inplace_pairs
from graphc.kernels.program.kernel import Kernel
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
    rows = ordered_rows(body, vectorized_rows(body, target.lanes))
    side = rows_per_sweep(rows)
    units = _registers(rows, rows.kept_axes) // side
    wanted = _chunks(rows, side, units, target.lanes)
    split = wanted >= 2 * units and not rows.columns
    pieces = min(order_of(rows.loops[0].sums).parts, -(-wanted // units)) if split else 1
    if pieces == 1:  # else each loop is a phase, and a row has several workers
        rows = cache_rows(rows, lambda s: statement_cost(s, target.lanes), DEAR, HELD_BYTES)
        wanted = _chunks(rows, side, units, target.lanes)
    rows = replace(rows, nest=rows_by(rows.nest, "chunk", side))
    verify_nest(rows.nest)
    columns = Columns(node, rows)
    chunks = columns.order.parts if rows.columns else min(wanted, units)
    printer = _Printer(node, rows, units, pieces, columns)
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
    steps, per_row = _registers(rows, rows.reduced_axes), 0.0
    for statement, around in walk(rows.nest.body):
        per_row += statement_cost(statement, width) * side * (steps if len(around) > 1 else 1)
    return chunk_count(per_row * units, units * max(steps // FEW_STEPS, 1))


def _registers(rows: Rows, axes: Sequence[int]) -> int:
    """Registers, or rows, along `axes`."""
    return math.prod(map(rows.domain.steps, axes))


def _domain(name: str, domain: Domain, axes: Sequence[int]) -> str:
    """Some axes of a domain as a C++ domain of at least one axis; without lanes its LANE is -1."""
    extents = tuple(domain.extents[d] for d in axes) or (1,)
    lane = next((i for i, d in enumerate(axes) if d == domain.lane), -1)
    return domain_text(name, Domain(extents, lane, domain.width))


def _sums_text(name: str, sums: Sequence[Reduce], across: bool) -> str:
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


def _identity(sum: Reduce) -> str:
    """A register of the neutral element."""
    return splat(sum.identity, sum.dtype)


class _Printer:
    """Prints the sections of the kernel's source."""

    def __init__(
        self,
        node: KernelNode,
        rows: Rows,
        units: int,
        pieces: int,
        columns: Columns,
    ) -> None:
        self.node, self.rows, self.units = node, rows, units
        self.pieces, self.columns = pieces, columns
        self.order, self.side = order_of(rows.loops[0].sums), rows.loop.each
        self.across = rows.domain.lane in rows.reduced_axes
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
        head = pointer_lines(self.node, self.rows.program, self.rows.pointers)
        caches, lines, loops, end = list[str](), list[str](), 0, 0
        for step in self.rows.loop.body:
            if isinstance(step, Alloc):
                kind, name = C_TYPES[step.dtype], step.name.removesuffix("_data")
                caches.append(f"alignas(64) {kind} {name}[{step.size}];")
                caches.append(f"{kind}* const {step.name} = {name};")
            elif isinstance(step, Loop):
                lines += self._loop(loops)
                end = len(lines)
                lines += self._results(loops)
                loops += 1
            elif isinstance(step, Statement):
                lines.append(step.text(self.indices, "N"))
        if self.side > 1:  # the only loop, and then every row
            lines[end:] = self._each(lines[end:])
        head += [*caches, *self.columns.pointers()]
        if self.pieces > 1:
            number = len(argument_order(self.node))
            head.append(f"char* const workspace = (char*)arguments[{number}];")
        return "".join(
            f"{line}\n"
            for line in (
                "template <int N>",
                "static INLINE void row(void* const* arguments, const long* i, long number, "
                "int phase, long piece) {",
                *(f"  {line}" for line in (*head, *lines)),
                "}",
            )
        )

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

    def _loop(self, k: int) -> list[str]:
        """A loop over elements."""
        loop, several = self.rows.loops[k], self.side > 1
        widest = max((DTYPES[s.dtype].itemsize for s in loop.sums), default=0)
        size = widest * len(loop.sums) * self.rows.domain.width * self.side
        size = size if self.pieces > 1 else 0
        partials = "nullptr"
        if size:
            partials = f"workspace + {self.workspace}L + number * {size * self.order.parts}L"
            self.workspace += size * self.order.parts * self.units
        kind, name, given = f"Sums{k}", f"sums{k}", "sums"
        if several:
            kind, name, given = f"Neighbours<Sums0, {self.side}>", "group", "all"
        body = [s.text(self.indices, "M") for s in loop.body.statements]
        body += [*map(self._join, loop.sums), *self.columns.lines(loop, self.indices)]
        body = self._each([f"Sums{k}& sums = all.row[side];", *body]) if several else body
        settings = f"{self._sums(loop)}, N, {k}, {self.pieces}, {size}"
        return [
            f"{kind} {name};",
            f"if (!loop<Reduced, {settings}>(phase, piece, {partials}, {name}, "
            f"[=]<int M>({kind}& {given}, const long* j, long last) "
            "__attribute__((always_inline)) {",
            *(f"  {line}" for line in body),
            "})) return;",
        ]

    def _results(self, k: int) -> list[str]:
        """The results of a loop as registers."""
        sums, own = self.rows.loops[k].sums, "group.row[side]" if self.side > 1 else f"sums{k}"
        return [f"const vec<{C_TYPES[s.dtype]}> {s.result} = {own}.{s.result};" for s in sums]

    def _join(self, s: Reduce) -> str:
        live = f"keep<M>({s.operand}, {_identity(s)})" if self.across else s.operand
        return s.joined("sums.", live)

    def _sums(self, loop: RowLoop) -> str:
        """The order of a loop, and how many of its chains are added side by side."""
        if not loop.sums:
            return "Plain<Order>, 1"
        return f"Order, {chains_together(loop, self.side, chains(self.order, self.rows))}"
