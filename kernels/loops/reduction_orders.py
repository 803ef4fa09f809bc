"""The orders of the sums of a body with reductions (`graphc.ir.sum_order`).

They follow from the extents that are reduced and from layouts, not from the number of rows, so that
the elements of one row are added in one order whatever the batch:

    softmax of [n, 10]            1%16             a row's neighbours in 16, 32 or 64 lanes
    sum of [n, k] over n          0%4              neighbours are of other rows: four sums in turn
    sum of [n, 100000]            3*1/64,1%64      parts of long rows, for several workers
    statistics of [n, c, h, w]    0,2.3%64
    the same, with n in lanes     0/16,2.3%4,0%16
    column sums of [n, k]         4*0              parts of the rows

Adjacent reduced axes that every value steps through as one are one axis.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from graphc.ir import FLOATS, Graph, Node
from graphc.ir.graph import known_of
from graphc.ir.sum_order import LANES, SumLoop, SumOrder
from graphc.kernels.loops.rewrites import in_sum_order
from graphc.kernels.loops.rows import (
    Rows,
    columns_of,
    reduced_shape,
    reductions_of,
    row_axes,
    rows_over,
)
from graphc.kernels.program.access import Domain
from graphc.ops.base import ORDERED, Reduction

CHAINS = 4
"""Sums in turn, so that an addition need not wait for the one before it."""
PART = 2048
"""Registers of a part of a row: some microseconds, beside which adding its sum takes no time."""
MOST_PARTS = 64
"""Parts of a sum, however long it is: enough for all workers."""
FEWEST_ROWS = 32
"""The fewest rows of a part of column sums, which are cleared, written and read once more."""
FEW_ELEMENTS, MANY_ELEMENTS = 8192, 32768
"""Elements of such a part, while there are less than eight of them and otherwise."""


def order_reductions(body: Graph) -> Graph:
    """`body` with the order of each sum and product of floats in its node."""
    columns = {n.output for n in columns_of(body)}
    own, across = _orders(_Alike(_structure(body), body))

    def ordered(node: Node) -> Node:
        op = node.op
        if not isinstance(op, Reduction) or op.combine not in ORDERED or not op.axes:
            return node
        if node.output.type.dtype not in FLOATS:
            return node
        return replace(node, op=replace(op, order=across if node.output in columns else own))

    # Orders change neither axes nor loops.
    return known_of(replace(body, nodes=tuple(map(ordered, body.nodes))), body, row_axes, rows_over)


@dataclass(frozen=True)
class _Alike:
    """A body that equals others but for names and lines."""

    structure: object
    body: Graph = field(compare=False)


def _structure(body: Graph) -> object:
    """The ops and types of a body, and which op reads what."""
    numbers = {value: i for i, value in enumerate(body.inputs)}
    nodes = []
    for node in body.nodes:
        read = tuple([numbers[v] for v in node.inputs])
        for value in node.outputs:
            numbers[value] = len(numbers)
        nodes.append((node.op, read, *[v.type for v in node.outputs]))
    results = tuple([numbers[v] for v in body.outputs])
    return tuple([v.type for v in body.inputs]), tuple(nodes), results


@functools.lru_cache(maxsize=256)
def _orders(alike: _Alike) -> tuple[str, str]:
    """The orders of sums along rows and across them, of all bodies that are alike: layers
    repeat."""
    body = alike.body
    lane, *_ = row_lanes(body)
    widths = {v.type.layout.width for v in (*body.outputs, *body.inputs)}
    shape = reduced_shape(body) or (1,)
    rows = rows_over(body, Domain(shape, lane, max(widths) if max(widths) > 1 else LANES))
    across = str(column_order(body, rows)) if columns_of(body) else ""
    return str(row_order(body, rows)), across


def ordered_rows(body: Graph, rows: Rows) -> Rows:
    """`rows` with an order in each reduction: the one that its node states, if it does."""
    orders = row_order(body, rows), column_order(body, rows)
    for order, nodes in zip(orders, (reductions_of(body), columns_of(body)), strict=True):
        for node in nodes:
            stated = node.op.attributes["order"]
            assert stated in ("", str(order)), f"{node.output} adds in {stated}, not in {order}"
    own = {str(axis): str(d) for d, group in enumerate(rows.groups) for axis in group}

    def of_domain(loop: SumLoop) -> SumLoop:
        return replace(loop, axes=tuple(dict.fromkeys(own[a] for a in loop.axes if a in own)))

    moved = (replace(order, loops=tuple(map(of_domain, order.loops))) for order in orders)
    return replace(rows, nest=in_sum_order(rows.nest, *moved))


def row_lanes(body: Graph) -> tuple[int, ...]:
    """The axes of the reduced values that may lie in the lanes, of which one is part of the order.

    It is the axis that layouts put there, or the last one if it is reduced; else the last one or
    any other that is kept.
    """
    laned = lanes_of_layouts(body)
    if laned is not None:
        return (laned,)
    shape = reduced_shape(body) or (1,)
    kept = [d for d in range(len(shape)) if d not in _axes(body)]
    if columns_of(body) or not kept:
        wide = [d for d, n in enumerate(shape) if n != 1]
        return (len(shape) - 1 if kept else max(wide, default=0),)
    if _ends_reduced(body):
        return (max(d for d in _axes(body) if shape[d] != 1),)
    wide = [d for d in kept if shape[d] != 1]
    return tuple(reversed(wide)) or (kept[-1],)


def lanes_of_layouts(body: Graph) -> int | None:
    """The axis of the reduced values in lanes of some value that is read or written; None if there
    is none. Views may have moved it, so a value's own rank tells only where nothing else does."""
    known, values = row_axes(body), (*body.outputs, *body.inputs)
    laned = [(v, axis) for v in values if (axis := v.type.layout.axis) is not None]
    found = (known[v][axis] for v, axis in laned if v in known)
    widest = max(laned, key=lambda pair: pair[0].type.rank, default=None)
    if widest is None:
        return None
    value, axis = widest
    own = len(reduced_shape(body)) - value.type.rank + axis
    return next((axis for axis in found if axis is not None), own)


def row_order(body: Graph, rows: Rows) -> SumOrder:
    """The order in which the elements of a row are added."""
    domain, axes = rows.domain, rows.reduced_axes
    groups = _groups(rows, axes, _axes(body))
    extents = [domain.extents[d] for d in axes] or [1]
    run, outer = extents[-1], math.prod(extents[:-1])
    if domain.lane in axes[:-1]:
        lane = axes.index(domain.lane)
        loops = [SumLoop(g, LANES if i == lane else 1) for i, g in enumerate(groups)]
        loops[-1] = replace(loops[-1], lanes=CHAINS if run >= 2 * CHAINS else 1)
        loops.append(SumLoop(groups[lane], 1, LANES))
        registers = outer // extents[lane] * -(-extents[lane] // LANES) * run
        return _in_parts(loops, domain.extents[axes[0]], registers)
    if domain.lane in axes or _ends_reduced(body):
        lanes, registers = LANES, outer * -(-run // LANES)
        single = all(len(loop.sums) <= 1 for loop in rows.loops)
        most = CHAINS if single else CHAINS // 2  # sums of several values hide each other's latency
        if _ends_reduced(body) or domain.size == outer * run:
            while lanes < most * LANES and run >= 4 * lanes:
                lanes *= 2
    else:
        lanes, registers = CHAINS if run >= 8 * CHAINS else 1, outer * run
    loops = [*map(SumLoop, groups[:-1]), SumLoop(groups[-1], lanes=lanes)]
    return _in_parts(loops, extents[0], registers)


def _in_parts(loops: list[SumLoop], extent: int, registers: int) -> SumOrder:
    """The order with parts of a first loop over `extent` elements; a loop alone is cut where its
    lanes begin anew."""
    first = replace(loops[0], step=loops[0].lanes, lanes=1) if len(loops) == 1 else loops[0]
    parts = min(MOST_PARTS, registers // PART, -(-extent // first.step))
    if parts <= 1:
        return SumOrder(tuple(loops))
    return SumOrder((first, *(loops[1:] or loops)), parts)


def column_order(body: Graph, rows: Rows) -> SumOrder:
    """The order in which the rows are added by column sums."""
    domain, axes = rows.domain, rows.kept_axes
    kept = tuple(d for d in range(len(reduced_shape(body))) if d not in _axes(body))
    extents = [domain.extents[d] for d in axes] or [1]
    elements = math.prod(domain.extents)
    count, loops = math.prod(extents), [SumLoop(tuple(map(str, kept)))]
    if domain.lane in axes:
        lane, groups = axes.index(domain.lane), _groups(rows, axes, kept)
        count = count // extents[lane] * -(-extents[lane] // LANES)
        loops = [SumLoop(g, LANES if i == lane else 1) for i, g in enumerate(groups)]
        loops.append(SumLoop(groups[lane], 1, LANES))
        steps = -(-extents[0] // loops[0].step)
    else:
        steps = count
    wanted = max(min(8, elements // FEW_ELEMENTS), elements // MANY_ELEMENTS)
    parts = min(MOST_PARTS, wanted, count // FEWEST_ROWS, steps)
    parts -= parts % (4 if parts >= 8 else 2 if parts >= 3 else 1)
    return SumOrder(tuple(loops), max(parts, 1))


def _axes(body: Graph) -> tuple[int, ...]:
    """The axes that reductions along rows reduce."""
    op = reductions_of(body)[0].op
    assert isinstance(op, Reduction)
    return op.axes


def _ends_reduced(body: Graph) -> bool:
    """Whether a row's last elements are neighbours: no kept axis follows the reduced ones of more
    than one element."""
    shape, axes = reduced_shape(body), _axes(body)
    last = next((d for d in reversed(range(len(shape))) if d not in axes or shape[d] != 1), None)
    return last in axes or bool(columns_of(body))


def _groups(rows: Rows, axes: Sequence[int], all: Sequence[int]) -> list[tuple[str, ...]]:
    """The names of the axes that each of the domain's `axes` merges; those of one element, which
    the domain lacks, join the first."""
    groups = [list(rows.groups[d]) for d in axes] or [[]]
    groups[0] += [a for a in all if not any(a in g for g in groups)]
    return [tuple(map(str, sorted(g))) for g in groups]
