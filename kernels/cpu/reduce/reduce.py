"""Choose which axis of a reduction lies in the lanes, and how many rows one sweep computes."""

from __future__ import annotations

from graphc.ir import Graph
from graphc.ir.graph import remembered
from graphc.kernels.cpu.pointwise.pointwise import lane_cost
from graphc.kernels.loops.reduction_orders import row_lanes
from graphc.kernels.loops.rows import Rows, reduced_shape, rows_over
from graphc.kernels.program.access import Domain


@remembered
def vectorized_rows(body: Graph, width: int) -> Rows:
    """The rows of `body` with the cheapest axis in the lanes of those that the order allows."""
    shape = reduced_shape(body) or (1,)
    choices = [rows_over(body, Domain(shape, lane, width)) for lane in row_lanes(body)]
    return min(choices, key=lambda r: sum(lane_cost(x.body.accesses, r.domain) for x in r.loops))


def rows_per_sweep(rows: Rows) -> int:
    """Rows that one sweep over the reduced axes computes side by side.

    More than one where neighbouring rows are contiguous and the elements of one row far apart, as
    in the column sums of a matrix: each stretch of memory is then read at once.
    """
    kept, reduced = rows.kept_axes, rows.reduced_axes
    if rows.columns or len(rows.loops) != 1 or not kept or not reduced or rows.loops[0].before:
        return 1
    (loop,), domain, last = rows.loops, rows.domain, kept[-1]
    step, far = (domain.width if d == domain.lane else 1 for d in (last, reduced[-1]))
    near = any(
        0 < a.strides[last] * step <= domain.width
        and abs(a.strides[reduced[-1]]) * far > 4 * domain.width
        for a in loop.body.accesses
    )
    if not near or not loop.sums:
        return 1
    statements = len(loop.body.statements) + len(loop.sums)
    extent = domain.extents[last]
    fitting = (g for g in (8, 4, 2) if extent % (g * step) == 0 and g * statements <= 48)
    return next(fitting, 1)
