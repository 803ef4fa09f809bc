"""From graphs to terms: what an element of a value is, from the elements of inputs and state.

What an op says of itself is taken for granted, and held against NumPy by the tests of ops: that it
is pointwise, how a view and a contraction index, which axes it keeps apart (`Op.axis_map`). Fused
nodes are opened into their bodies; layouts are where elements lie, and not looked at. An op of
which no more is known is a function of its whole operands, apart from the axes that it keeps apart.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from graphc.ir import NARROW, Array, Graph, Node, Type, Value
from graphc.meaning.conditions import Condition
from graphc.meaning.index import (
    ZERO,
    Index,
    Indices,
    axes,
    combined,
    quotient,
    remainder,
    row_major,
    shifted,
    span,
    unraveled,
    variable,
)
from graphc.meaning.loops import Element, Loop, Read
from graphc.meaning.table import Term
from graphc.meaning.terms import MULTIPLY, Terms
from graphc.ops.axes import SUMMED
from graphc.ops.base import COMBINES, Op, Reduction
from graphc.ops.constant import PLACED, Constant, Elements, Iota
from graphc.ops.fused import Fused
from graphc.ops.join import Concat, Pad
from graphc.ops.layout import Relayout
from graphc.ops.loops.scan import Scan
from graphc.ops.pointwise.logic import Cast
from graphc.ops.pointwise.widen import Widen
from graphc.ops.view import Reshape

FOLDED = 65536
"""Elements: what is made of constants alone is a constant, up to so many."""
REDUCED = 50_000
"""The first number of variables for axes that an op sums over. They are bound at once, so that all
ops may have the same ones, and what several ops read alike is walked once."""
WHOLE = 40_000
"""The first number of variables for axes of operands that an op reads whole."""


class Walker:
    """The elements of a graph's values; `inputs` gives those of its inputs, else their names do."""

    def __init__(
        self,
        terms: Terms,
        graph: Graph,
        arrays: dict[str, Array],
        inputs: Mapping[Value, Read] | None = None,
        depth: int = 0,
    ) -> None:
        self.terms, self.graph, self.depth, self.arrays = terms, graph, depth, arrays
        self.inputs = dict(inputs or {})
        self.producers = graph.producers
        self.constants: dict[Value, Elements] = {}
        self._elements: dict[tuple[Value, Indices], Term] = {}
        self._own: dict[Value, Term] = {}
        self._inner: dict[int, Element] = {}
        self._loops: dict[int, Loop] = {}
        self._places: dict[tuple[int, Value, int], Index] = {}
        for node in graph.nodes:
            self._fold(node)

    def own(self, value: Value) -> Term:
        """The element of a value at a variable for each axis."""
        return self.element(value, axes(value.type.shape))

    def element(self, value: Value, indices: Indices) -> Term:
        """The element of a value at these indices."""
        indices = tuple(
            ZERO if n == 1 else i for i, n in zip(indices, value.type.shape, strict=True)
        )
        key = (value, indices)
        if key not in self._elements:
            self._elements[key] = self._element(value, indices)
        return self._elements[key]

    def _element(self, value: Value, indices: Indices) -> Term:
        kind = value.type
        if not kind.size:  # nothing is read: all of a type are the same
            return self.terms.at(self.terms.term("input", "", kind.shape, kind.dtype), ())
        if value in self.inputs:
            return self.inputs[value](indices)
        if value in self.constants:
            return self._constant(self.constants[value], indices)
        node = self.producers.get(value)
        if node is None:
            return self._input(value, indices)
        number = node.outputs.index(value)
        if isinstance(node.op, Scan):
            return self._loop(node).element(number, indices)
        if isinstance(node.op, Fused):
            return self._inside(node, node.op)(node.op.body.outputs[number], indices)
        if isinstance(node.op, Relayout):
            return self.element(node.inputs[0], indices)
        return self._of_op(node, number, indices)

    def _input(self, value: Value, indices: Indices) -> Term:
        digest = value.name.removeprefix(PLACED)
        if digest != value.name and digest in self.arrays:
            elements = Elements(value.type.dtype, value.type.shape, digest, self.arrays[digest])
            return self._constant(elements, indices)
        kind = (value.name, value.type.shape, value.type.dtype)
        return self.terms.at(self.terms.term("input", *kind), indices)

    def _inside(self, node: Node, op: Fused) -> Element:
        if id(node) not in self._inner:
            pairs = zip(op.body.inputs, node.inputs, strict=True)
            reads: dict[Value, Read] = {
                inner: functools.partial(self.element, outer) for inner, outer in pairs
            }
            body = Walker(self.terms, op.body, self.arrays, reads, self.depth)
            self._inner[id(node)] = body.element
        return self._inner[id(node)]

    def _loop(self, node: Node) -> Loop:
        if id(node) not in self._loops:
            self._loops[id(node)] = Loop(self.terms, node, self.element, self._deeper, self.depth)
        return self._loops[id(node)]

    def _deeper(self, body: Graph, reads: Mapping[Value, Read]) -> Element:
        return Walker(self.terms, body, self.arrays, reads, self.depth + 1).element

    def _of_op(self, node: Node, number: int, indices: Indices) -> Term:
        """An element of what an op makes: on floats of two bytes the op on f32, rounded."""
        op, value = node.op, node.outputs[number]
        kinds = [v.type for v in node.inputs]
        narrow = value.type.dtype in NARROW
        keeps = op.takes_narrow or op.converts_reads or op.stops_gradient
        widens = not keeps and (narrow or any(k.dtype in NARROW for k in kinds))
        if widens and getattr(op, "dtype", None) in NARROW:
            op = replace(op, dtype="f32")  # type: ignore[type-var]
        read = self._wide if widens else self.element
        if widens:
            kinds = [replace(k, dtype="f32") if k.dtype in NARROW else k for k in kinds]
        if not (widens and narrow):
            return self._rule(node, op, kinds, number, read, value.type, indices)
        kind = replace(value.type, dtype="f32")
        term = self._rule(node, op, kinds, number, read, kind, indices)
        return self.terms.op(Cast(value.type.dtype), term)

    def _wide(self, value: Value, indices: Indices) -> Term:
        term = self.element(value, indices)
        return self.terms.op(Widen(), term) if value.type.dtype in NARROW else term

    def _rule(
        self,
        node: Node,
        op: Op,
        kinds: list[Type],
        number: int,
        read: Element,
        kind: Type,
        indices: Indices,
    ) -> Term:
        if op.pointwise:
            terms = [read(v, tuple(indices[len(indices) - v.type.rank :])) for v in node.inputs]
            same = isinstance(op, Cast) and op.dtype == kinds[0].dtype
            if isinstance(op, Cast) and op.dtype == "f32" and kinds[0].dtype in NARROW:
                op = Widen()
            return terms[0] if same else self.terms.op(op, *terms)
        if op.moves:
            places = self._moved(op, kinds[0], kind, indices)
            if places is not None:
                return read(node.inputs[0], places)
        if isinstance(op, Pad):
            return self._pad(op, node, kind, indices)
        if isinstance(op, Concat):
            return self._concat(op, node, indices)
        if isinstance(op, Iota):
            index = indices[op.axis]
            if index[1]:
                return self.terms.term("index", index, op.dtype)
            return self.terms.number(index[0], op.dtype)
        value = node.outputs[number]
        if value not in self._own:
            own = axes(kind.shape)
            if op.contracts and not op.is_own():
                self._own[value] = self._contraction(op, node, kinds, read, own, kind)
            elif isinstance(op, Reduction) and op.combine in COMBINES and not op.is_own():
                self._own[value] = self._reduction(op, node, read, own, kind)
            else:
                self._own[value] = self._opaque(op, node, number, kinds, read, own, kind)
        return self.terms.moved(self._own[value], axes(kind.shape), indices)

    @staticmethod
    def _moved(op: Op, source: Type, kind: Type, indices: Indices) -> Indices | None:
        if isinstance(op, Reshape):
            return unraveled(row_major(indices, kind.shape), source.shape)
        maps = op.index(source)
        if maps is None:
            return None
        return tuple(combined(zip(indices, m.coefficients, strict=True), m.offset) for m in maps)

    def _pad(self, op: Pad, node: Node, kind: Type, indices: Indices) -> Term:
        source = node.inputs[0]
        value = self.terms.number(op.value, kind.dtype)
        if not source.type.size:
            return value
        where: list[tuple[Index, int]] = []
        gaps = zip(op.low, op.interior, strict=True)
        for index, (low, gap) in zip(indices, gaps, strict=True):
            where.append((shifted(index, -low), gap + 1))
        conditions, term = self._placed(node, source, where, self.element)
        return self.terms.guard(conditions, term, value)

    def _placed(
        self, node: Node, value: Value, where: list[tuple[Index, int]], read: Element
    ) -> tuple[list[Condition], Term]:
        """The element at (index / divisor) along each axis, and where there is one."""
        conditions: list[Condition] = []
        places: list[Index] = []
        own: list[Index] = []
        for (index, divisor), n in zip(where, value.type.shape, strict=True):
            low, high = span(index)
            place = ZERO if n == 1 else quotient(index, divisor)
            certain = divisor == 1 and low >= 0 and high < n
            conditions.append((index, 0, (n - 1) * divisor + 1, divisor))
            own.append(place if certain else self._within(node, value, len(own), n))
            places.append(place)
        return conditions, self._elsewhere(read(value, tuple(own)), own, places)

    def _within(self, node: Node, value: Value, axis: int, extent: int) -> Index:
        """A variable for an operand's axis, whose values all are places of it."""
        key = (id(node), value, axis)
        if key not in self._places:
            self._places[key] = self.terms.fresh(extent)
        return self._places[key]

    def _elsewhere(self, term: Term, own: list[Index], places: list[Index]) -> Term:
        pairs = [(i, j) for i, j in zip(own, places, strict=True) if i != j]
        return self.terms.moved(term, tuple(i for i, _ in pairs), tuple(j for _, j in pairs))

    def _concat(self, op: Concat, node: Node, indices: Indices) -> Term:
        parts: list[tuple[int, Term]] = []
        start = 0
        low, high = span(indices[op.axis])
        for number, value in enumerate(node.inputs):
            extent = value.type.shape[op.axis]
            if extent and start <= high and start + extent > low:
                place = shifted(indices[op.axis], -start)
                own = place
                if low < start or high >= start + extent:
                    own = self._within(node, value, number, extent)
                whole = (*indices[: op.axis], own, *indices[op.axis + 1 :])
                term = self._elsewhere(self.element(value, whole), [own], [place])
                parts.append((start + extent, term))
            start += extent
        return self.terms.cases(indices[op.axis], parts)

    def _contraction(
        self, op: Op, node: Node, kinds: list[Type], read: Element, own: Indices, kind: Type
    ) -> Term:
        nest = op.iteration(*kinds)
        places: list[Index] = []
        for axis, extent in enumerate(nest.extents):
            named = [d for d, o in enumerate(nest.output) if o.coefficients[axis]]
            if axis >= nest.kept or extent == 1 or not named:
                summed = axis >= nest.kept
                places.append(variable(REDUCED + axis - nest.kept, extent) if summed else ZERO)
                continue
            step = nest.output[named[0]].coefficients[axis]
            place = quotient(own[named[0]], step)
            whole = step * extent == kind.shape[named[0]]
            places.append(place if whole else remainder(place, extent))

        conditions: list[Condition] = []
        factors: list[Term] = []
        for value, how in zip(node.inputs, (nest.a, nest.b), strict=True):
            maps = zip(how.index, how.divisors, strict=True)
            where = [
                (combined(zip(places, m.coefficients, strict=True), m.offset), divisor)
                for m, divisor in maps
            ]
            more, factor = self._placed(node, value, where, read)
            conditions += more
            factors.append(factor)
        zero = self.terms.number(0, kind.dtype)
        product = self.terms.guard(conditions, self.terms.op(MULTIPLY, *factors), zero)
        return self.terms.fold("sum", places[nest.kept :], product, kind.dtype)

    def _reduction(
        self, op: Reduction, node: Node, read: Element, own: Indices, kind: Type
    ) -> Term:
        (source,), reduced = node.inputs, op.reduced_axes or ()
        keeps = kind.rank == source.type.rank
        bound: list[Index] = []
        places, left = [], list(own)
        for axis, n in enumerate(source.type.shape):
            if axis in reduced:
                bound.append(variable(REDUCED + len(bound), n))
                places.append(bound[-1])
                if keeps:
                    left.pop(0)
            else:
                places.append(left.pop(0))
        return self.terms.fold(op.combine, bound, read(source, tuple(places)), kind.dtype)

    def _opaque(
        self,
        op: Op,
        node: Node,
        number: int,
        kinds: list[Type],
        read: Element,
        own: Indices,
        kind: Type,
    ) -> Term:
        """A function of the operands, whole but for the axes that the op keeps apart."""
        maps = op.axis_map(*kinds)[number]
        bound: list[Index] = []
        bodies: list[Term] = []
        for place, (value, map) in enumerate(zip(node.inputs, maps, strict=True)):
            indices = []
            for axis, (to, n) in enumerate(zip(map, value.type.shape, strict=True)):
                if to is None or to == SUMMED:
                    bound.append(variable(WHOLE + 100 * place + axis, n))
                    indices.append(bound[-1])
                else:
                    indices.append(own[to])
            bodies.append(read(value, tuple(indices)))
        behind: list[Op] = []
        while op.finds_largest and number == 0:
            key = self.terms.keys[bodies[0]]
            if key[0] != "op" or not key[1].keeps_largest:
                break
            behind.append(key[1])
            bodies[0] = key[2][0]
        closed, arguments, _ = self.terms.close(bodies, [b[1][0][0] for b in bound if b[1]])
        apart = {to for map in maps for to in map if to is not None}
        explicit = tuple(i for d, i in enumerate(own) if d not in apart)
        shapes = tuple(
            tuple(n for n, to in zip(k.shape, map, strict=True) if to is None or to == SUMMED)
            for k, map in zip(kinds, maps, strict=True)
        )
        named = self.terms.term(
            "opaque", type(op), kind.dtype, _attributes(op, kinds), number, shapes, closed
        )
        term = self.terms.at(named, (*explicit, *arguments))
        for outer in reversed(behind):
            term = self.terms.op(outer, term)
        return term

    def _constant(self, elements: Elements, indices: Indices) -> Term:
        array = elements.array
        assert array is not None
        data = array.tobytes()
        if data == data[: array.itemsize] * array.size:
            return self.terms.term("number", elements.dtype, data[: array.itemsize])
        if not any(i[1] for i in indices):
            one = array[tuple(i[0] for i in indices)]
            return self.terms.term("number", elements.dtype, one.tobytes())
        kind = (PLACED + elements.digest, elements.shape, elements.dtype)
        return self.terms.at(self.terms.term("input", *kind), indices)

    def _fold(self, node: Node) -> None:
        """Constants, and what is made of constants alone."""
        if isinstance(node.op, Constant):
            self.constants[node.output] = node.op.value
            if node.op.value.array is not None:
                self.arrays[node.op.value.digest] = node.op.value.array
            return
        known = [self.constants.get(v) for v in node.inputs]
        if (
            not known
            or None in known
            or len(node.outputs) != 1
            or isinstance(node.op, Fused | Scan)
        ):
            return
        arrays = [e.array for e in known if e is not None and e.array is not None]
        if node.output.type.size > min(FOLDED, max(a.size for a in arrays)):
            return
        with np.errstate(all="ignore"):
            (result,) = node.op.evaluate(*arrays)
        array = np.asarray(result, dtype=node.output.type.numpy_dtype)
        self.constants[node.output] = Elements.of(array)


def _attributes(op: Op, kinds: list[Type]) -> tuple[object, ...]:
    """The attributes, an axis counted from the last one of the first operand."""
    return tuple(
        v - kinds[0].rank if name == "axis" and kinds else v for name, v in op.attributes.items()
    )
