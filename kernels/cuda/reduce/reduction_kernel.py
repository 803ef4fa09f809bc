"""Lower a fused node with reductions to reduce.cuh."""

from __future__ import annotations

from collections.abc import Iterator

from graphc.ir import Graph
from graphc.kernels.cuda.reduce.hoist_factors import factored
from graphc.kernels.cuda.reduce.launches import add_reduction
from graphc.kernels.cuda.reduce.one_pass_variance import in_one_pass
from graphc.kernels.cuda.reduce.reduce import Shape, choose_shape, reloaded_bytes, values_of
from graphc.kernels.cuda.reduce.stage_text import ReduceText
from graphc.kernels.cuda.shared.kernel_source import constant_arrays, index_type, memory_order
from graphc.kernels.cuda.shared.launches import Launches
from graphc.kernels.loops.cached_rows import cache_rows_in_outputs
from graphc.kernels.loops.rows import Rows, find_rows, reduced_shape
from graphc.kernels.program.access import Domain
from graphc.kernels.program.body.statement import Call, Statement
from graphc.kernels.program.inplace import inplace_pairs
from graphc.kernels.program.kernel import Kernel
from graphc.ops.fused import KernelNode

DEAR = 8.0
"""Bytes of loads per element from which recomputing a value costs more than storing and loading
four bytes each."""


def lower_reduce(node: KernelNode, tickets: bool = False) -> Kernel:
    """The kernel of a fused node with reductions, whose last blocks may draw `tickets`."""
    body, extents = node.body, reduced_shape(node.body)
    whole = [v for v in (*body.inputs, *body.outputs) if v.type.shape == extents]
    order = memory_order(whole) if whole else tuple(range(len(extents)))
    domain = Domain(tuple(extents[d] for d in order))
    rows = find_rows(body, domain, recompute=True, order=order)
    shape = choose_shape(rows)
    for form in _forms(body, shape):
        if form is body:
            break
        of_form = find_rows(form, domain, recompute=True, order=order)
        chosen = choose_shape(of_form)
        if chosen.keeps_row or not shape.keeps_row or not reloaded_bytes(of_form, 1):
            rows, shape = of_form, chosen
            break
    if not shape.keeps_row:
        rows = _cache_expensive(rows)
    inplace = inplace_pairs(body, [rows.loop_program, rows.after], rows.pointers)
    text = ReduceText(rows, shape, index_type(body), tickets=tickets)
    launches = Launches(node, rows.pointers, text.workspace, inplace)
    add_reduction(text, launches)
    headers = ("reduce/reduce", "shared/tickets") if text.draws_tickets else ("reduce/reduce",)
    return launches.kernel(headers, [constant_arrays(rows.program), *text.types])


def _forms(body: Graph, shape: Shape) -> Iterator[Graph]:
    """Forms of `body` that read the rows fewer times, the best first. Where blocks keep rows, some
    forms have so many sums that no room is left for rows."""
    if shape.rows_apart and shape.keeps_row:
        return
    once = in_one_pass(body)
    if shape.keeps_row or shape.splits > 1:
        yield factored(once)
    if shape.keeps_row:
        yield factored(body)
    yield once


def _cache_expensive(rows: Rows) -> Rows:
    """`rows` whose loops cache what takes longer to recompute than to store and load: values that
    read several elements each, such as gradients of overlapping windows."""
    values = values_of(rows)

    def asked(statement: Statement) -> float:
        if not isinstance(statement, Call):
            return 0.0
        read = (values[p].type.numpy_dtype.itemsize for p in statement.pointers if p in values)
        return float(statement.taps * sum(read))

    return cache_rows_in_outputs(rows, asked, DEAR) if len(rows.loops) > 1 else rows
