"""Prove that a traced function computes each row along an axis from that row alone.

Then more rows change nothing of those that are there, and a call may be padded. The proof walks two
traces of the function at once, for the size of a call and for the one to pad to. An axis holds rows
where both traces have a value of the same type but for its extent, which is the small size in one
and the large one in the other; or a multiple, where a reshape made one axis of the rows and those
around them, as linear layers do. By `axis_map`, each node must then take row i of its inputs to row
i of its outputs, in the same way for each i, and in both traces in the same way: a function that
divides by `x.shape[0]` has a constant that differs. Every other value is the same in both traces.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from graphc.ir import Graph, Node, Value, tree
from graphc.ir.rewrite import drop_dead
from graphc.ops.axes import SUMMED
from graphc.ops.custom_gradient import without_marks
from graphc.program.tracing import Traced

Axes = Sequence[int | None]
Shape = Sequence[int]

EXTENTS = ("shape", "stops")
"""The attributes of ops that hold the extent of each axis of an output."""
ANY = 0
"""In place of a number of elements, where any number is right."""
MAY_MIX = "its rows may depend on each other"


def mixing(small: Traced, large: Traced, size: int, whole: int) -> str:
    """Return what keeps a call of `size` rows from being padded to `whole`, or "".

    `small` and `large` are the traces of one function for the two, without an update rule.
    """
    pair = small, large
    if any(traced.builder.shown for traced in pair):
        return "it shows or taps values"
    graphs = (t.builder.graph([x for _, x in tree.leaves(t.outputs)]) for t in pair)
    a, b = (drop_dead(without_marks(graph)) for graph in graphs)
    walk = _Walk(size, whole)
    try:
        walk.graphs(a, b)
    except _MixedError as found:
        return str(found)
    state = [[t.builder.buffers[v.name] for v in g.state] for t, g in ((small, a), (large, b))]
    if any(mine is not other for mine, other in zip(*state, strict=True)):
        return "it reads other state for another size"
    for number, (one, other) in enumerate(zip(a.outputs, b.outputs, strict=True)):
        if walk.axis(one, other) is None or walk.outer[one] > 1:
            return f"output {number} {one.type} has no such axis"
    return ""


class _MixedError(Exception):
    """Rows may depend on each other; the message says where."""


@dataclass(frozen=True)
class _Walk:
    """Two traces side by side."""

    size: int
    whole: int
    outer: dict[Value, int] = field(default_factory=dict)
    """How many elements the axis of rows has before each row's: those of an axis that was merged
    with it; ANY where all elements along the axis are alike. Of values of the smaller trace."""

    def axis(self, a: Value, b: Value, node: Node | None = None) -> int | None:
        """The axis of rows of a value of both traces; None if it has none."""
        if a.type == b.type:
            return None
        axis = self._row_axis(a.type.shape, b.type.shape)
        if a.type.dtype != b.type.dtype or axis is None:
            kinds = f"{a.type} and {b.type} for {self.size} and {self.whole}"
            raise _mixed(node, f"{a} is {kinds}")
        return axis

    def graphs(self, a: Graph, b: Graph) -> None:
        """Check all nodes and updates; inputs are what they are."""
        same = len(a.nodes) == len(b.nodes) and len(a.updates) == len(b.updates)
        if not same or len(a.outputs) != len(b.outputs) or len(a.state) != len(b.state):
            raise _MixedError("the function computes something else for another size")
        pairs = dict(zip(a.inputs, b.inputs, strict=True))
        pairs.update(zip(a.state, b.state, strict=True))
        for old, new in pairs.items():
            self.axis(old, new)
            self.outer[old] = 1
        for one, other in zip(a.nodes, b.nodes, strict=True):
            self._node(one, other, pairs)
        results = zip(a.results, b.results, strict=True)
        if any(pairs[one] != other for one, other in results):
            raise _MixedError("the function returns something else for another size")

    def _node(self, a: Node, b: Node, pairs: dict[Value, Value]) -> None:
        same = type(a.op) is type(b.op) and len(a.outputs) == len(b.outputs)
        if not same or [pairs[v] for v in a.inputs] != list(b.inputs):
            raise _mixed(a, "the function computes something else for another size")
        pairs.update(zip(a.outputs, b.outputs, strict=True))
        read = [self.axis(x, y, a) for x, y in zip(a.inputs, b.inputs, strict=True)]
        made = [self.axis(x, y, a) for x, y in zip(a.outputs, b.outputs, strict=True)]
        with_rows = [v for v, axis in zip(a.inputs, read, strict=True) if axis is not None]
        rows_made = [axis for axis in made if axis is not None]
        if a.op.is_source and rows_made:
            self._source(a, b)
            outer = 1
        else:
            self._attributes(a, b, made)
            outer = self._outer_of(a, with_rows)
            if a.op.is_loop:  # whose body says the rest
                bodies = [g for g in a.op.attributes.values() if isinstance(g, Graph)]
                ends = [v for body in bodies for v in body.outputs]
                if any(self.outer[v] > 1 for v in (*with_rows, *ends)):
                    raise _mixed(a, MAY_MIX)
                outer = 1
            elif not with_rows:
                outer = max((self._moved(a, b, axis) for axis in rows_made), default=ANY)
            elif a.op.name == "reshape":
                outer = self._reshaped(a, read[0], made[0])
            else:
                for node in (b, a) if self.size > 1 else (b,):  # of extent 1 less is known
                    self._rows_stay(node, read, made)
        self.outer.update(dict.fromkeys(a.outputs, outer))

    def _outer_of(self, a: Node, with_rows: Sequence[Value]) -> int:
        """What `outer` says of the rows of all that a node reads."""
        found = {self.outer[v] for v in with_rows} - {ANY}
        if len(found) > 1:
            raise _mixed(a, MAY_MIX)
        return found.pop() if found else ANY

    def _reshaped(self, a: Node, read: int | None, made: int | None) -> int:
        """What `outer` says of the result of a reshape, in which every row stays whole."""
        if read is None or made is None:
            raise _mixed(a, MAY_MIX)
        shape, result = a.inputs[0].type.shape, a.output.type.shape
        before = math.prod(shape[:read]) * max(self.outer[a.inputs[0]], 1)
        outer, rest = divmod(before, math.prod(result[:made]))
        if rest or not outer or result[made] % (outer * self.size):
            raise _mixed(a, MAY_MIX)
        return outer

    def _rows_stay(self, node: Node, read: Axes, made: Axes) -> None:
        """Check that row i of what is read goes to row i of what is made."""
        maps = node.op.axis_map(*(v.type for v in node.inputs))
        for axis, places_of in zip(made, maps, strict=True):
            for row, places in zip(read, places_of, strict=True):
                if row is not None and (axis is None or places[row] != axis):
                    raise _mixed(node, "it combines rows" if places[row] == SUMMED else MAY_MIX)

    def _source(self, a: Node, b: Node) -> None:
        """Check that the rows of a constant or ramp are the first ones of the larger one."""
        (small,), (large,) = a.op.evaluate(), b.op.evaluate()
        if small.tobytes() != large[tuple(map(slice, small.shape))].tobytes():
            raise _mixed(a, "its elements differ from size to size")

    def _moved(self, a: Node, b: Node, axis: int) -> int:
        """What `outer` says of rows that a node makes of elements that are the same in both."""
        if a.op.draws:
            raise _mixed(a, "it draws random numbers for each row")
        small, large = (n.op.index(n.inputs[0].type) if n.op.moves else None for n in (a, b))
        if small is None or small != large:
            raise _mixed(a, MAY_MIX)
        return 1 if any(index.coefficients[axis] for index in small) else ANY

    def _attributes(self, a: Node, b: Node, made: Axes) -> None:
        """Check that two ops do the same, but for the extent of the rows."""
        others = b.op.attributes
        for name, value in a.op.attributes.items():
            other = others[name]
            if isinstance(value, Graph) and isinstance(other, Graph):
                self.graphs(value, other)
            elif value != other and not (value != value and other != other):  # both are NaN
                if name not in EXTENTS or self._row_axis(value, other) != made[0]:
                    raise _mixed(a, f"its {name} differs from size to size")

    def _row_axis(self, small: Shape, large: Shape) -> int | None:
        """The one axis in which two shapes differ, if it holds rows, of one element or more."""
        if len(small) != len(large):
            return None
        differ = [d for d, (m, n) in enumerate(zip(small, large, strict=True)) if m != n]
        if len(differ) != 1:
            return None
        few, many = small[differ[0]], large[differ[0]]
        of_rows = few % self.size == 0 and few * self.whole == many * self.size
        return differ[0] if of_rows else None


def _mixed(node: Node | None, reason: str) -> _MixedError:
    if node is None:
        return _MixedError(reason)
    line = f" ({node.where.lines[0]})" if node.where.lines else ""
    return _MixedError(f"{node.outputs[0]} = {node.op.name}: {reason}{line}")
