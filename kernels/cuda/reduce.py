"""Bodies with reductions for reduce.cuh.

A row is a kept index, its columns the reduced ones. Reductions come in stages: one whose operand
needs the results of k others, one after another, belongs to stage k. Stage k is a loop over the
row's columns, which also stores the outputs of full shape that need no later stage; a last loop
stores those that need all. Outputs per row are stored at the end.

Where there are few rows the columns are split among blocks. Each stage is a launch of its own
then: it begins by adding the partial results of the stages before it, in ascending order.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from graphc.ir import Graph, Node, Value
from graphc.kernels.cuda.shell import BLOCKS, THREADS
from graphc.kernels.program.access import Access, Domain, Place, merge_axes
from graphc.kernels.program.expression import Walk
from graphc.kernels.program.names import Names
from graphc.kernels.program.pieces import element_at
from graphc.kernels.program.stages import depths, reductions_of
from graphc.kernels.program.statement import Program, joined
from graphc.ops.base import Reduction

LEAST_COLUMNS = 8
"""Columns per thread that a split is worth."""


@dataclass(frozen=True)
class Result:
    """The reduction that makes `value`: `field` of its stage, from the register `operand`."""

    value: Value
    combine: str
    field: str
    operand: str

    @property
    def given(self) -> str:
        """The register of the result, for the stages after it."""
        return f"{self.field}result"


@dataclass(frozen=True)
class Loop:
    """Stage `number`, or the last loop if it has no results. `program` computes the operands and
    stores outputs."""

    number: int
    results: tuple[Result, ...]
    program: Program


@dataclass(frozen=True)
class Space:
    """The index space of a body: `shape`, reduced over `axes`."""

    shape: tuple[int, ...]
    axes: tuple[int, ...]

    @property
    def kept(self) -> int:
        """The number of kept axes."""
        return len(self.shape) - len(self.axes)

    @property
    def order(self) -> tuple[int, ...]:
        """The axes of `shape` in the order of the domain: kept ones first."""
        return (*(d for d in range(len(self.shape)) if d not in self.axes), *self.axes)

    @property
    def domain(self) -> Domain:
        return Domain(tuple(self.shape[d] for d in self.order))

    def element(self) -> tuple[Place, ...]:
        """The places of a value of the full shape."""
        order = self.order
        return tuple(self.domain.axis(order.index(d)) for d in range(len(order)))

    def per_row(self, shape: tuple[int, ...]) -> tuple[Place, ...]:
        """The places of a value with one element per row: its extents above 1 are the kept ones,
        in their order."""
        domain = self.domain
        kept = [d for d in range(self.kept) if domain.extents[d] != 1]
        wide = [d for d, n in enumerate(shape) if n != 1]
        assert [shape[d] for d in wide] == [domain.extents[d] for d in kept], (shape, self)
        axes = dict(zip(wide, kept, strict=True))
        places = (axes.get(d) for d in range(len(shape)))
        return tuple(domain.constant(0) if d is None else domain.axis(d) for d in places)


@dataclass(frozen=True)
class Shape:
    """How threads and blocks share rows and columns; see reduce.cuh."""

    rows: int
    columns: int
    across: int
    along: int
    rows_apart: bool
    splits: int

    @property
    def blocks(self) -> int:
        """Blocks that share the rows."""
        return -(-self.rows // self.across)


@dataclass(frozen=True)
class Plan:
    """The loops of a body over merged axes: the first `kept` of `extents` name the row."""

    pointers: Mapping[Value, str]
    extents: tuple[int, ...]
    kept: int
    loops: tuple[Loop, ...]
    rows: Program
    """Computes and stores the outputs per row."""
    shape: Shape

    @property
    def stages(self) -> tuple[Loop, ...]:
        return tuple(loop for loop in self.loops if loop.results)

    @property
    def programs(self) -> tuple[Program, Program]:
        """What threads do for their columns, and for their rows."""
        return joined(loop.program for loop in self.loops), self.rows


def plan_reduce(body: Graph) -> Plan:
    """The loops of a body with reductions, and how threads share them."""
    first = next(n.op for n in body.nodes if isinstance(n.op, Reduction))
    source = next(n.inputs[0] for n in body.nodes if n.op is first)
    space = Space(source.type.shape, first.axes)
    names = Names()
    pointers = names.pointers(body)
    loops = _loops(body, space, pointers, names)
    per_row = [v for v in dict.fromkeys(body.outputs) if v.type.shape != space.shape]
    walk = _walk(body, space, pointers, names, loops)
    walk.store_all([element_at(v, space.per_row(v.type.shape)) for v in per_row])
    rows = walk.program()
    accesses = [a for p in (*(loop.program for loop in loops), rows) for a in p.accesses]
    kinds = [d < space.kept for d in range(len(space.shape))]
    domain, groups = merge_axes(space.domain, accesses, kinds)
    loops = [replace(loop, program=loop.program.merged(groups)) for loop in loops]
    kept = sum(group[-1] < space.kept for group in groups)
    whole = [a for loop in loops for a in loop.program.accesses]
    shape = choose_shape(domain.extents, kept, whole)
    return Plan(pointers, domain.extents, kept, tuple(loops), rows.merged(groups), shape)


def _loops(body: Graph, space: Space, pointers: Mapping[Value, str], names: Names) -> list[Loop]:
    depth, found = depths(body), reductions_of(body)
    stages = 1 + max(depth[n.inputs[0]] for n in found)
    full = [v for v in dict.fromkeys(body.outputs) if v.type.shape == space.shape]
    loops: list[Loop] = []
    for number in range(stages + 1):
        mine = [n for n in found if depth[n.inputs[0]] == number]
        outputs = [element_at(v, space.element()) for v in full if depth[v] == number]
        walk = _walk(body, space, pointers, names, loops)
        operands = [walk.value(n.inputs[0], space.element()) for n in mine]
        walk.store_all(outputs)
        results = tuple(
            _result(node, operand, names) for node, operand in zip(mine, operands, strict=True)
        )
        if results or outputs:
            loops.append(Loop(number, results, walk.program()))
    return loops


def _result(node: Node, operand: str, names: Names) -> Result:
    assert isinstance(node.op, Reduction)
    field = names.fresh(node.output.name)
    return Result(node.output, node.op.combine, field, operand)


def _walk(
    body: Graph, space: Space, pointers: Mapping[Value, str], names: Names, before: Sequence[Loop]
) -> Walk:
    """A walk over the full domain that has the results of the loops before."""
    given = {r.value: r.given for loop in before for r in loop.results}
    rows = dict.fromkeys(given, frozenset(range(space.kept)))
    return Walk(body, space.domain, pointers, names, given, rows)


def choose_shape(extents: Sequence[int], kept: int, accesses: Sequence[Access]) -> Shape:
    """The fixed sharing of rows and columns: neighbouring threads read neighbours in memory, and
    columns are split where rows alone do not fill a large device."""
    rows, columns = math.prod(extents[:kept]), math.prod(extents[kept:])
    last_kept, last_column = kept - 1, len(extents) - 1
    by_column = sum(a.strides[last_column] == 1 for a in accesses) if columns > 1 else 0
    by_row = sum(a.strides[last_kept] == 1 for a in accesses) if rows > 1 else 0
    rows_apart = columns > 1 and by_column >= by_row
    if rows_apart:
        along = min(32, _power(columns))
        while (
            along < THREADS
            and 8 * along <= columns
            and (rows * along < BLOCKS * THREADS or columns > 64 * along)
        ):
            along *= 2
    else:
        along = 1 if columns <= LEAST_COLUMNS else THREADS // min(32, max(8, _power(rows)))
    across = THREADS // along
    blocks = -(-rows // across) or 1
    most = columns // (along * LEAST_COLUMNS)
    splits = max(1, min(most, -(-BLOCKS // blocks))) if 2 * blocks <= BLOCKS else 1
    return Shape(rows, columns, across, along, rows_apart, splits)


def _power(number: int) -> int:
    """The least power of two that is not below `number`."""
    return 1 << max(number - 1, 0).bit_length()
