"""Bodies with reductions as nests: a loop over rows, and in it loops over the elements of a row.

All reductions of a body share one input shape and one set of axes; a row is an index along the
other axes. A body whose rows lie along its last axes may also have sums over all other axes that
nothing in it reads: column sums, such as a normalization's gradients of scale and shift.

Loop k computes what needs the results of k loops before it: softmax has three (the maximum, the sum
of exponentials, the quotients). An output is stored in the first loop that can, and values that
exist once per row after the last loop.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeGuard

from graphc.base.cached import cached_property
from graphc.ir import Graph, Node, Value
from graphc.ir.graph import remembered
from graphc.kernels.loops.language import Alloc, Loop, Nest, Step, walk
from graphc.kernels.loops.plain import memory_of
from graphc.kernels.program.access import AffineAccess, Domain, memory_access, merge_axes
from graphc.kernels.program.body.expression import BodyWriter
from graphc.kernels.program.body.names import Identifiers
from graphc.kernels.program.body.reduce import Reduce
from graphc.kernels.program.body.statement import (
    Address,
    Register,
    RegisterProgram,
    Statement,
    joined,
)
from graphc.kernels.program.pieces import element_at
from graphc.ops.axes import SUMMED, Axes
from graphc.ops.base import Reduction


@dataclass(frozen=True)
class RowLoop:
    """A loop over the elements of a row, behind the statements `before` it, once per row."""

    before: tuple[Statement, ...]
    loop: Loop

    @cached_property
    def statements(self) -> tuple[Statement, ...]:
        """All statements of one element."""
        return tuple(s for s, _ in walk((self.loop,)))

    @property
    def body(self) -> RegisterProgram:
        """Those that reduce nothing."""
        elements = (s for s in self.statements if not isinstance(s, Reduce))
        return RegisterProgram(tuple(elements), {}, {})

    @property
    def sums(self) -> tuple[Reduce, ...]:
        """The reductions along the row."""
        return tuple(s for s in self.statements if isinstance(s, Reduce) and s.results)

    @property
    def columns(self) -> tuple[Reduce, ...]:
        """The sums over all rows."""
        return tuple(s for s in self.statements if isinstance(s, Reduce) and s.address)

    @property
    def program(self) -> RegisterProgram:
        """All statements but reductions."""
        return RegisterProgram((*self.before, *self.body.statements), {}, {})


@dataclass(frozen=True)
class Rows:
    """A nest of a loop over rows, and in it the loops over a row's elements, in order."""

    nest: Nest
    pointers: Mapping[Value, str] = field(compare=False)
    """Pointer names of inputs and outputs."""
    groups: tuple[tuple[int, ...], ...] = ()
    """For each axis of the domain the axes of the reduced values that it merges."""

    @property
    def domain(self) -> Domain:
        """The domain of all loops."""
        return self.nest.domain

    @property
    def loop(self) -> Loop:
        """The loop over rows."""
        (rows,) = self.nest.body
        assert isinstance(rows, Loop), f"no loop over rows: {rows}"
        return rows

    @property
    def kept_axes(self) -> tuple[int, ...]:
        """The axes that index rows."""
        return self.loop.axes

    @property
    def reduced_axes(self) -> tuple[int, ...]:
        """The axes along a row, in order."""
        return self.loops[0].loop.axes

    @cached_property
    def loops(self) -> tuple[RowLoop, ...]:
        """The loops over a row, in order."""
        found, before = list[RowLoop](), list[Statement]()
        for step in self.loop.body:
            if _is_along(step):
                found.append(RowLoop(tuple(before), step))
                before = []
            elif isinstance(step, Statement):
                before.append(step)
        return tuple(found)

    @property
    def after(self) -> RegisterProgram:
        """Statements that run once per row, after the loops."""
        last = max(i for i, s in enumerate(self.loop.body) if _is_along(s))
        after = tuple(s for s, _ in walk(self.loop.body[last + 1 :]))
        return RegisterProgram(after, {}, {})

    @property
    def columns(self) -> tuple[Reduce, ...]:
        """The column sums of all loops."""
        return tuple(c for loop in self.loops for c in loop.columns)

    @property
    def cache_access(self) -> AffineAccess | None:
        """Where an element lies in row-sized memory: whole registers, one after another. None where
        the lanes are neither rows nor neighbours within a row."""
        domain, reduced = self.domain, self.reduced_axes
        if domain.lane in reduced and domain.lane != reduced[-1]:
            return None
        strides, step = [0] * domain.rank, 1 if domain.lane in reduced else domain.width
        for axis in reversed(reduced):
            strides[axis] = step
            step *= domain.steps(axis) * (domain.width if axis == domain.lane else 1)
        return AffineAccess(0, tuple(strides), 1)

    @property
    def cache_elements(self) -> int:
        """Elements of row-sized memory."""
        return math.prod(map(self.domain.steps, self.reduced_axes)) * self.domain.width

    @property
    def loop_program(self) -> RegisterProgram:
        """The statements of all loops, in the order in which they run."""
        return joined(loop.program for loop in self.loops)

    @property
    def program(self) -> RegisterProgram:
        """All statements, with the constants that they read."""
        arrays = {m.name: m.array for m in self.nest.memory if m.elements is not None}
        return replace(joined((self.loop_program, self.after)), arrays=arrays)

    def with_bodies(
        self, bodies: Iterable[tuple[Statement, ...]], cached: Iterable[Alloc] = ()
    ) -> Rows:
        """The same rows with other statements of elements, which share memory of a row."""
        new = iter(bodies)
        steps = (replace(s, body=next(new)) if _is_along(s) else s for s in self.loop.body)
        rows = replace(self.loop, body=(*cached, *steps))
        return replace(self, nest=replace(self.nest, body=(rows,)))


def _is_along(step: Step) -> TypeGuard[Loop]:
    """Whether a step of the loop over rows is a loop over elements, not over rows in lanes."""
    return isinstance(step, Loop) and step.kind != "lane"


def find_rows(
    body: Graph,
    domain: Domain,
    recompute: bool = False,
    order: Sequence[int] = (),
    pointers: Mapping[Value, str] | None = None,
) -> Rows:
    """The loops of `body` over `domain`, whose axes are those of the reduced values, in `order`.

    What varies along kept axes only is computed once per row, or, with `recompute`, by each loop;
    axes of one element do not vary. `pointers` belong to an enclosing kernel.
    """
    names = Identifiers(pointers.values() if pointers else ())
    pointers = pointers or names.pointers(body)
    writer = BodyWriter(body, domain, pointers, names)
    reductions, columns, depth = reductions_of(body), columns_of(body), _depths(body)
    whole = domain.identity(order)
    reduced = frozenset(whole[d].coefficients.index(1) for d in _axes_of(reductions[0]))
    kept = frozenset(range(domain.rank)) - reduced
    single = {d for d in reduced - {domain.lane} if domain.extents[d] == 1}
    whole = tuple(domain.constant(0) if p.coefficients.index(1) in single else p for p in whole)
    places = {
        v: tuple(domain.constant(0) if d is None else whole[d] for d in axes)
        for v, axes in row_axes(body).items()
    }
    added = {n.output for n in columns}
    outputs = [v for v in dict.fromkeys(body.outputs) if v not in added]
    varying = [v for v in outputs if any(p.coefficients[d] for p in places[v] for d in reduced)]
    deepest = [depth[n.output] for n in (*reductions, *columns)]
    last = max([*deepest, *(depth[v] + 1 for v in varying)])

    def operand(node: Node) -> str:
        return writer.value(node.inputs[0], whole[: node.inputs[0].type.rank])

    def combine(node: Node) -> str:
        assert isinstance(node.op, Reduction)
        return node.op.combine

    steps, along, across = list[Step](), tuple(sorted(reduced)), tuple(sorted(kept))
    for k in range(last):
        own = [(n, operand(n)) for n in reductions if depth[n.output] == k + 1]
        beside = [(n, operand(n)) for n in columns if depth[n.output] == k + 1]
        writer.store_all([element_at(v, places[v]) for v in varying if depth[v] == k])
        sums = list[Statement]()
        for node, register in own:
            result = Register(names.fresh(node.output.name), node.output.type.dtype)
            writer.bind(node.output, places[node.output], result.name, kept)
            sums.append(Reduce((result,), (register,), combine(node), along))
        for node, register in beside:
            access = memory_access(node.output.type, places[node.output], domain)
            place = Address(pointers[node.output], access)
            sums.append(Reduce((), (place, register), combine(node), across))
        before, each = writer.flush().split(kept)
        steps += [*before.statements, Loop(along, "serial", (*each.statements, *sums))]
        writer.forget(None if recompute else kept)
    writer.store_all([element_at(v, places[v]) for v in outputs if v not in varying])
    steps += writer.flush().statements
    used = {p for s, _ in walk(steps) for p in s.pointers}
    named = {name: value for value, name in pointers.items() if name in used}
    memory = memory_of(named, body.outputs, writer.arrays)
    nest = Nest(domain, memory, (Loop(across, "serial", tuple(steps)),))
    return _merged(Rows(nest, pointers))


@remembered
def rows_over(body: Graph, domain: Domain) -> Rows:
    """The loops of a kernel's `body` over `domain`."""
    return find_rows(body, domain)


def _merged(rows: Rows) -> Rows:
    """`rows` over as few axes as visit the same elements in the same order.

    With lanes, a kept axis of one element parts reduced axes like one of more elements: whatever
    their number, each row has the same loops.
    """
    old, reduced, vectors = rows.domain, rows.reduced_axes, rows.domain.lane is not None
    kinds = [
        (d in reduced, d - sum(e < d for e in reduced) if vectors and d in reduced else 0)
        for d in range(old.rank)
    ]
    domain, groups = merge_axes(old, rows.program.accesses, kinds)

    def moved(step: Step) -> Step:
        if not isinstance(step, Loop):
            return step.merged(groups) if isinstance(step, Statement) else step
        axes = tuple(i for i, g in enumerate(groups) if g[-1] in step.axes)
        return replace(step, axes=axes, body=tuple(map(moved, step.body)))

    nest = replace(rows.nest, domain=domain, body=(moved(rows.loop),))
    return Rows(nest, rows.pointers, groups)


def reductions_of(body: Graph) -> list[Node]:
    """The reductions along rows."""
    return _reductions(body)[0]


def columns_of(body: Graph) -> list[Node]:
    """The sums over all rows."""
    return _reductions(body)[1]


@remembered
def _reductions(body: Graph) -> tuple[list[Node], list[Node]]:
    found = [n for n in body.nodes if isinstance(n.op, Reduction)]
    rows = max(map(_axes_of, found), key=lambda axes: max(axes, default=-1), default=())
    columns = [n for n in found if _axes_of(n) != rows]
    return [n for n in found if _axes_of(n) == rows], columns


def first_reduced(body: Graph) -> tuple[Value, ...]:
    """What the reductions of the first loop over a row reduce."""
    depth = _depths(body)
    return tuple(n.inputs[0] for n in reductions_of(body) if depth[n.output] == 1)


def reduced_shape(body: Graph) -> tuple[int, ...]:
    """The shape that the reductions of `body` read."""
    rows, columns = reductions_of(body), columns_of(body)
    shapes = {n.inputs[0].type.shape for n in (*rows, *columns)}
    assert len(shapes) == 1, f"reductions of {shapes} in one body"
    (shape,), own = shapes, set(_axes_of(rows[0]))
    kept = tuple(d for d in range(len(shape)) if d not in own)
    assert all(_axes_of(n) == kept for n in columns), f"columns that are not rows of {body.name}"
    return shape


def _axes_of(node: Node) -> tuple[int, ...]:
    assert isinstance(node.op, Reduction)
    return node.op.axes


def _depths(body: Graph) -> dict[Value, int]:
    """The number of successive reductions that each value needs: loop k computes values whose
    operands need at most k."""
    known = dict.fromkeys(body.inputs, 0)
    for node in body.nodes:
        deepest = max((known[v] for v in node.inputs), default=0)
        deepest += isinstance(node.op, Reduction)
        known.update(dict.fromkeys(node.outputs, deepest))
    return known


@remembered
def row_axes(body: Graph) -> Mapping[Value, Axes]:
    """For each value connected to a reduction, which axis of the reduced value each of its axes is;
    None for one of extent 1."""
    known: dict[Value, Axes] = {}
    reductions = reductions_of(body)
    for node in (*reductions, *columns_of(body)):
        op, x = node.op, node.inputs[0]
        assert isinstance(op, Reduction)
        known[x] = tuple(range(x.type.rank))
        known[node.output] = tuple(
            None if d in op.axes else d
            for d in range(x.type.rank)
            if op.keepdims or d not in op.axes
        )
    single = [(n, tuple(_mapped(n))) for n in body.nodes if len(n.outputs) == 1]
    _spread(single, known)
    shape = reductions[0].inputs[0].type.shape
    for value in body.outputs:
        # One of the shape that is reduced has its axes, and so has what it is computed from.
        if value not in known and value.type.shape == shape:
            known[value] = tuple(range(value.type.rank))
            _spread(single, known)
    for value in body.outputs:
        assert value in known, f"{value} has no place among {shape}"
    return known


Mapped = Sequence[tuple[Value, Axes]]
"""The inputs of a node, each with where its axes go in the only output."""


def _spread(nodes: Sequence[tuple[Node, Mapped]], known: dict[Value, Axes]) -> None:
    """Give all that is connected with what is known its axes."""
    size = -1
    while size < len(known):
        size = len(known)
        for node, mapped in nodes:
            _pass_down(node, mapped, known)
        for node, mapped in reversed(nodes):
            _pass_up(node, mapped, known)


def _pass_down(node: Node, mapped: Mapped, known: dict[Value, Axes]) -> None:
    """Give the output of a node the axes of the first input that has them."""
    if node.output in known or known.keys().isdisjoint(node.inputs):
        return
    shape = node.output.type.shape
    places: list[int | None] = [None] * len(shape)
    for value, axes in mapped:
        for place, axis in zip(known.get(value, ()), axes, strict=False):
            if axis is not None and axis != SUMMED and places[axis] is None:
                places[axis] = place
    if all(p is not None or n == 1 for p, n in zip(places, shape, strict=True)):
        known[node.output] = tuple(places)


def _pass_up(node: Node, mapped: Mapped, known: dict[Value, Axes]) -> None:
    """Give the inputs of a node the axes of its output, where all their elements reach it."""
    if node.output not in known or known.keys() >= {*node.inputs}:
        return
    places = known[node.output]
    for value, axes in mapped:
        whole = all(
            n == 1 or d not in (None, SUMMED) for d, n in zip(axes, value.type.shape, strict=True)
        )
        if value not in known and whole:
            known[value] = tuple(None if d in (None, SUMMED) else places[d] for d in axes)


def _mapped(node: Node) -> Iterator[tuple[Value, Axes]]:
    """Each input of a node with the axes of the output that its axes are."""
    yield from zip(node.inputs, node.op.axis_map(*(v.type for v in node.inputs))[0], strict=True)
