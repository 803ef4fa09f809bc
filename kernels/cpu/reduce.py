"""Lowering of bodies with reductions: rows, and loops over each row's elements.

All reductions of a body have one input shape and one set of axes. Loop k computes those whose
operands need the results of k loops before it: softmax has three (the maximum, the sum of
exponentials, the quotients). What varies along the kept axes alone is computed once per row,
between the loops; an element output is stored in the first loop that can.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from graphc.ir import Graph, Node, Value
from graphc.kernels.cpu.pointwise import lane_candidates, lane_cost
from graphc.kernels.cpu.shell import FEW_STEPS, chunk_count, program_cost, symbol
from graphc.kernels.program.access import Domain, Place, merge_axes
from graphc.kernels.program.expression import Walk
from graphc.kernels.program.inplace import inplace_pairs
from graphc.kernels.program.kernel import Kernel
from graphc.kernels.program.names import Names
from graphc.kernels.program.pieces import element_at
from graphc.kernels.program.stages import depths, reductions_of
from graphc.kernels.program.statement import Program, joined
from graphc.ops.axes import SUMMED, Axes
from graphc.ops.base import Reduction
from graphc.ops.fused import Fused
from graphc.target import Target


@dataclass(frozen=True)
class Sum:
    """A reduction of a loop: the register of its operand, and of the result."""

    combine: str
    dtype: str
    operand: str
    result: str


@dataclass(frozen=True)
class Loop:
    """`before`: statements of the row that the loop needs; `body`: those of one element, stores
    included."""

    before: Program
    body: Program
    sums: tuple[Sum, ...]


@dataclass(frozen=True)
class Rows:
    """A whole body: the merged domain, which of its axes are reduced, the loops, and what a row
    ends with."""

    domain: Domain
    reduced: frozenset[int]
    loops: tuple[Loop, ...]
    after: Program
    pointers: Mapping[Value, str] = field(compare=False)

    @property
    def kept_axes(self) -> tuple[int, ...]:
        return tuple(d for d in range(self.domain.rank) if d not in self.reduced)

    @property
    def reduced_axes(self) -> tuple[int, ...]:
        return tuple(sorted(self.reduced))

    def count(self, axes: Sequence[int]) -> int:
        """Registers, or rows, along `axes`."""
        steps = 1
        for axis in axes:
            steps *= self.domain.steps(axis)
        return steps

    @property
    def neighbours(self) -> int:
        """Rows that one sweep over the reduced axes computes side by side: where the elements of
        neighbouring rows are neighbours in memory and those of one row are far apart, as in the
        sum of a matrix's columns, each piece of memory is then read in one go."""
        kept, reduced = self.kept_axes, self.reduced_axes
        if len(self.loops) != 1 or not kept or not reduced or self.loops[0].before.statements:
            return 1
        (loop,), last, width = self.loops, kept[-1], self.domain.width
        step, far = (width if d == self.domain.lane else 1 for d in (last, reduced[-1]))
        near = any(
            0 < a.strides[last] * step <= width and abs(a.strides[reduced[-1]]) * far > 4 * width
            for a in loop.body.accesses
        )
        if not near or not loop.sums:
            return 1
        statements = len(loop.body.statements) + len(loop.sums)
        extent = self.domain.extents[last]
        fitting = (g for g in (8, 4, 2) if extent % (g * step) == 0 and g * statements <= 48)
        return next(fitting, 1)

    @property
    def programs(self) -> tuple[Program, ...]:
        """All statements, in the order in which they run."""
        return (*(p for loop in self.loops for p in (loop.before, loop.body)), self.after)

    @property
    def whole(self) -> Program:
        return joined(self.programs)


def lower_reduce(node: Node, target: Target) -> Kernel:
    """The kernel of a body with reductions and without contractions."""
    from graphc.kernels.cpu.reduce_text import reduce_text

    assert isinstance(node.op, Fused)
    rows = find_rows(node.op.body, target.lanes)
    units = rows.count(rows.kept_axes) // rows.neighbours
    steps = rows.count(rows.reduced_axes)
    once = (program_cost(p, target.lanes) for p in (*(x.before for x in rows.loops), rows.after))
    each = (program_cost(loop.body, target.lanes) for loop in rows.loops)
    per_row = rows.neighbours * (sum(each) * steps + sum(once))
    wanted = chunk_count(per_row * units, units * max(steps // FEW_STEPS, 1))
    pieces = -(-wanted // units) if units and wanted >= 2 * units else 1
    source, workspace = reduce_text(node, rows, pieces, min(wanted, max(units, 1)))
    last = 1 if rows.loops[-1].sums or rows.after.statements else 0
    phases = (units * pieces,) * len(rows.loops) + (units,) * last
    inner = sum(x.body.work for x in rows.loops)
    sums = sum(len(x.sums) for x in rows.loops)
    shape = _input_shape(reductions_of(node.op.body))
    size = Domain(shape).size
    return Kernel(
        symbol(node),
        "reduce",
        source,
        phases=phases if pieces > 1 else (min(wanted, max(units, 1)),),
        workspace=workspace,
        flops=size * (inner + sums),
        bytes=sum(v.type.nbytes for v in (*node.inputs, *node.outputs)),
        inplace=inplace_pairs(node.op.body, [rows.whole], rows.pointers),
    )


def find_rows(body: Graph, width: int) -> Rows:
    """The loops of `body` with the cheapest axis in the lanes."""
    names = Names()
    pointers = names.pointers(body)
    reductions = reductions_of(body)
    shape = _input_shape(reductions) or (1,)
    best: tuple[float, Rows] | None = None
    for lane in _batch_axes(body, reductions) or lane_candidates(
        shape, (*body.outputs, *body.inputs)
    ):
        rows = _Builder(body, Domain(shape, lane, width), pointers).rows()
        cost = sum(lane_cost(x.body.accesses, rows.domain) for x in rows.loops)
        if best is None or cost < best[0]:
            best = cost, rows
    assert best is not None
    return best[1]


def _batch_axes(body: Graph, reductions: Sequence[Node]) -> list[int]:
    """The axes of the rows that lie in the lanes of what is read or written: one, or none. A view
    may have moved it since, so that a value's own rank does not tell."""
    known = _axes(body, reductions)
    found = {
        known[v][v.type.layout.axis]
        for v in (*body.outputs, *body.inputs)
        if v in known and v.type.layout.axis is not None
    }
    return [axis for axis in found if axis is not None]


def _input_shape(reductions: Sequence[Node]) -> tuple[int, ...]:
    shapes = {n.inputs[0].type.shape for n in reductions}
    axes = {n.op.axes for n in reductions if isinstance(n.op, Reduction)}
    assert len(shapes) == len(axes) == 1, f"reductions of {shapes} over {axes} in one body"
    return shapes.pop()


class _Builder:
    """Finds the loops of a body for one choice of the lane axis."""

    def __init__(self, body: Graph, domain: Domain, pointers: Mapping[Value, str]) -> None:
        self.body, self.domain, self.pointers = body, domain, pointers
        self.reductions = reductions_of(body)
        op = self.reductions[0].op
        assert isinstance(op, Reduction)
        self.reduced = frozenset(op.axes)
        self.kept = frozenset(range(domain.rank)) - self.reduced
        self.places = _places(body, self.reductions, domain)
        self.depth = depths(body)
        self.walk = Walk(body, domain, pointers)

    def rows(self) -> Rows:
        last = max(self.depth[n.output] for n in self.reductions)
        inner = [v for v in dict.fromkeys(self.body.outputs) if self._varies(v)]
        last = max([last, *(self.depth[v] + 1 for v in inner)])
        loops = [self._loop(k, [v for v in inner if self.depth[v] == k]) for k in range(last)]
        for value in dict.fromkeys(self.body.outputs):
            if not self._varies(value):
                self.walk.store_all([element_at(value, self.places[value])])
        after = self._taken()
        return self._merged(loops, after)

    def _varies(self, value: Value) -> bool:
        """Whether the output has elements along the reduced axes."""
        used = {d for p in self.places[value] for d, c in enumerate(p.coefficients) if c}
        return bool(used & self.reduced)

    def _loop(self, k: int, outputs: Sequence[Value]) -> Loop:
        own = [n for n in self.reductions if self.depth[n.output] == k + 1]
        identity = self.domain.identity()
        operands = [self.walk.value(n.inputs[0], identity[: n.inputs[0].type.rank]) for n in own]
        self.walk.store_all([element_at(v, self.places[v]) for v in outputs])
        before, body = self._taken().split(self.kept)
        self.walk.forget(but=self.kept)
        return Loop(before, body, tuple(map(self._sum, own, operands)))

    def _sum(self, node: Node, operand: str) -> Sum:
        op, output = node.op, node.output
        assert isinstance(op, Reduction)
        result = self.walk.names.fresh(output.name)
        self.walk.given[output] = result
        self.walk.given_places[output] = self.places[output]
        self.walk.axes[result] = self.kept
        return Sum(op.combine, output.type.dtype, operand, result)

    def _taken(self) -> Program:
        """The statements since the last call."""
        program = self.walk.program()
        self.walk.statements = []
        return program

    def _merged(self, loops: Sequence[Loop], after: Program) -> Rows:
        programs = (*(p for x in loops for p in (x.before, x.body)), after)
        accesses = [a for p in programs for a in p.accesses]
        kinds = [d in self.reduced for d in range(self.domain.rank)]
        domain, groups = merge_axes(self.domain, accesses, kinds)
        reduced = frozenset(i for i, g in enumerate(groups) if g[-1] in self.reduced)
        merged = tuple(Loop(x.before.merged(groups), x.body.merged(groups), x.sums) for x in loops)
        return Rows(domain, reduced, merged, after.merged(groups), self.pointers)


def _places(
    body: Graph, reductions: Sequence[Node], domain: Domain
) -> dict[Value, tuple[Place, ...]]:
    """Where each value that follows from a reduction or leads to one lies in the domain."""
    return {
        v: tuple(domain.constant(0) if d is None else domain.axis(d) for d in axes)
        for v, axes in _axes(body, reductions).items()
    }


def _axes(body: Graph, reductions: Sequence[Node]) -> dict[Value, Axes]:
    """The axis of the rows that each axis of those values is; None for one of extent 1."""
    known: dict[Value, Axes] = {}
    for node in reductions:
        op, x = node.op, node.inputs[0]
        assert isinstance(op, Reduction)
        known[x] = tuple(range(x.type.rank))
        known[node.output] = tuple(
            None if d in op.axes else d
            for d in range(x.type.rank)
            if op.keepdims or d not in op.axes
        )
    size = -1
    while size < len(known):
        size = len(known)
        for node in body.nodes:
            _pass_down(node, known)
        for node in reversed(body.nodes):
            _pass_up(node, known)
    shape = reductions[0].inputs[0].type.shape
    for value in body.outputs:
        assert value in known or value.type.shape == shape, f"{value} has no place among {shape}"
        known.setdefault(value, tuple(range(value.type.rank)))
    return known


def _pass_down(node: Node, known: dict[Value, Axes]) -> None:
    """The first of the inputs with places gives each axis of the output its own."""
    if len(node.outputs) != 1 or node.output in known or known.keys().isdisjoint(node.inputs):
        return
    shape = node.output.type.shape
    places: list[int | None] = [None] * len(shape)
    for value, axes in _mapped(node):
        for place, axis in zip(known.get(value, ()), axes, strict=False):
            if axis is not None and axis != SUMMED and places[axis] is None:
                places[axis] = place
    if all(p is not None or n == 1 for p, n in zip(places, shape, strict=True)):
        known[node.output] = tuple(places)


def _pass_up(node: Node, known: dict[Value, Axes]) -> None:
    """Inputs of a node with places have them where all their elements go to the output."""
    if len(node.outputs) != 1 or node.output not in known:
        return
    places = known[node.output]
    for value, axes in _mapped(node):
        whole = all(
            n == 1 or d not in (None, SUMMED) for d, n in zip(axes, value.type.shape, strict=True)
        )
        if value not in known and whole:
            known[value] = tuple(None if d in (None, SUMMED) else places[d] for d in axes)


def _mapped(node: Node) -> Iterator[tuple[Value, Axes]]:
    """The inputs with where their axes go in the only output."""
    yield from zip(node.inputs, node.op.axis_map(*(v.type for v in node.inputs))[0], strict=True)
