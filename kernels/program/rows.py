"""Bodies with reductions as loops over the elements of rows.

All reductions of a body share one input shape and one set of axes; a row is an index along the
other axes. A body whose rows lie along its last axes may also have sums over all other axes that
nothing in it reads: column sums, such as a normalization's gradients of scale and shift.

Loop k computes what needs the results of k loops before it: softmax has three (the maximum, the sum
of exponentials, the quotients). An output is stored in the first loop that can, and values that
exist once per row after the last loop.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from graphc.ir import DTYPES, Graph, Node, Value
from graphc.kernels.program.access import AffineAccess, Domain, merge_axes
from graphc.kernels.program.body.expression import BodyWriter
from graphc.kernels.program.body.names import Identifiers
from graphc.kernels.program.body.statement import RegisterProgram, joined
from graphc.kernels.program.pieces import element_at
from graphc.ops.axes import SUMMED, Axes
from graphc.ops.base import Reduction
from graphc.ops.combine import end_of

_JOINS = {
    "sum": "{0} = {0} + {1};",
    "prod": "{0} = {0} * {1};",
    "max": "{0} = maximum({0}, {1});",
    "min": "{0} = minimum({0}, {1});",
    "deviations": "{0}.add({1});",
}


@dataclass(frozen=True)
class RowReduction:
    """A reduction within a loop."""

    combine: str
    """How two partial results combine, such as "sum"."""
    dtype: str
    """The dtype of the result."""
    operand: str
    """The register that is reduced."""
    result: str
    """The register of the result."""
    value: Value = field(compare=False)
    """The value that is reduced."""

    @property
    def identity(self) -> object:
        """The neutral element."""
        if self.combine in ("sum", "prod"):
            return int(self.combine == "prod")
        return end_of(self.dtype, low=self.combine == "max")

    def joined(self, owner: str, other: str) -> str:
        """The C++ statement that combines `other` into the owner's result."""
        return _JOINS[self.combine].format(f"{owner}{self.result}", other)


@dataclass(frozen=True)
class ColumnSum:
    """A sum over all rows: the register of an element, and the output, which has a row's shape."""

    operand: str
    output: Value


@dataclass(frozen=True)
class RowLoop:
    """A loop over the elements of a row."""

    before: RegisterProgram
    """Statements that run once per row, before the loop."""
    body: RegisterProgram
    """Statements of one element, stores included."""
    sums: tuple[RowReduction, ...]
    """The reductions along the row."""
    columns: tuple[ColumnSum, ...] = ()
    """The sums over all rows."""

    @property
    def program(self) -> RegisterProgram:
        """All statements of the loop."""
        return joined((self.before, self.body))


@dataclass(frozen=True)
class CachedRow:
    """Memory for `size` elements of one row, which one loop writes and later ones read."""

    name: str
    dtype: str
    """The dtype of an element."""
    size: int

    @property
    def pointer(self) -> str:
        """The C++ name of the memory."""
        return f"{self.name}_data"

    @property
    def nbytes(self) -> int:
        """Bytes of the memory."""
        return self.size * DTYPES[self.dtype].itemsize


@dataclass(frozen=True)
class Rows:
    """A body with reductions: its merged domain and its loops."""

    domain: Domain
    """The merged domain."""
    reduced: frozenset[int]
    """The domain axes that are reduced."""
    loops: tuple[RowLoop, ...]
    """The loops over a row, in order."""
    after: RegisterProgram
    """Statements that run once per row, after the loops."""
    pointers: Mapping[Value, str] = field(compare=False)
    """Pointer names of inputs and outputs."""
    groups: tuple[tuple[int, ...], ...] = ()
    """For each axis of the domain the axes of the reduced values that it merges."""
    cached: tuple[CachedRow, ...] = ()
    """Row-sized caches that the loops use."""

    @property
    def kept_axes(self) -> tuple[int, ...]:
        """The axes that index rows."""
        return tuple(d for d in range(self.domain.rank) if d not in self.reduced)

    @property
    def reduced_axes(self) -> tuple[int, ...]:
        """The axes along a row, in order."""
        return tuple(sorted(self.reduced))

    @property
    def columns(self) -> tuple[ColumnSum, ...]:
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
        """All statements."""
        return joined((self.loop_program, self.after))


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
    walk = BodyWriter(body, domain, pointers, names)
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
    loops = []
    for k in range(last):
        own = [n for n in reductions if depth[n.output] == k + 1]
        here = [whole[: n.inputs[0].type.rank] for n in own]
        operands = [walk.value(n.inputs[0], at) for n, at in zip(own, here, strict=True)]
        beside = [
            ColumnSum(walk.value(n.inputs[0], whole[: n.inputs[0].type.rank]), n.output)
            for n in columns
            if depth[n.output] == k + 1
        ]
        walk.store_all([element_at(v, places[v]) for v in varying if depth[v] == k])
        sums = []
        for node, operand in zip(own, operands, strict=True):
            result = names.fresh(node.output.name)
            walk.bind(node.output, places[node.output], result, kept)
            assert isinstance(node.op, Reduction)
            dtype = node.output.type.dtype
            sums.append(RowReduction(node.op.combine, dtype, operand, result, node.inputs[0]))
        loops.append(RowLoop(*walk.flush().split(kept), tuple(sums), tuple(beside)))
        walk.forget(None if recompute else kept)
    walk.store_all([element_at(v, places[v]) for v in outputs if v not in varying])
    return _merged(Rows(domain, reduced, tuple(loops), walk.flush(), pointers))


def _merged(rows: Rows) -> Rows:
    """`rows` over as few axes as visit the same elements in the same order.

    With lanes, a kept axis of one element parts reduced axes like one of more elements: whatever
    their number, each row has the same loops.
    """
    reduced, vectors = rows.reduced, rows.domain.lane is not None
    kinds = [
        (d in reduced, d - sum(e < d for e in reduced) if vectors and d in reduced else 0)
        for d in range(rows.domain.rank)
    ]
    domain, groups = merge_axes(rows.domain, rows.program.accesses, kinds)
    merged = frozenset(i for i, g in enumerate(groups) if g[-1] in reduced)
    loops = (
        replace(x, before=x.before.merged(groups), body=x.body.merged(groups)) for x in rows.loops
    )
    after = rows.after.merged(groups)
    return Rows(domain, merged, tuple(loops), after, rows.pointers, groups)


def reductions_of(body: Graph) -> list[Node]:
    """The reductions along rows."""
    return _reductions(body)[0]


def columns_of(body: Graph) -> list[Node]:
    """The sums over all rows."""
    return _reductions(body)[1]


def _reductions(body: Graph) -> tuple[list[Node], list[Node]]:
    found = [n for n in body.nodes if isinstance(n.op, Reduction)]
    rows = max(map(_axes_of, found), key=lambda axes: max(axes, default=-1), default=())
    columns = [n for n in found if _axes_of(n) != rows]
    return [n for n in found if _axes_of(n) == rows], columns


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


def row_axes(body: Graph) -> dict[Value, Axes]:
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
    """Give the output of a node the axes of the first input that has them."""
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
    """Give the inputs of a node the axes of its output, where all their elements reach it."""
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
    """The inputs, each with where its axes go in the only output."""
    yield from zip(node.inputs, node.op.axis_map(*(v.type for v in node.inputs))[0], strict=True)
