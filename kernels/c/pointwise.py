"""Lower pointwise bodies and reductions to plain C: a function per kernel, a loop nest per group of
outputs, or one for all that reductions lead to."""

from __future__ import annotations

from collections.abc import Sequence

from graphc.ir.sum_order import LANES
from graphc.kernels.c.loop_printer import function_text
from graphc.kernels.loops.language import Memory, Nest
from graphc.kernels.loops.plain import plain_nest
from graphc.kernels.loops.reduction_orders import ordered_rows, row_lanes
from graphc.kernels.loops.rewrites import hoist, split_last
from graphc.kernels.loops.rows import find_rows, reduced_shape
from graphc.kernels.loops.verify import verify_nest
from graphc.kernels.program.access import Domain
from graphc.kernels.program.body.names import Identifiers
from graphc.kernels.program.pieces import space
from graphc.kernels.program.pointwise_nest import group_outputs, make_pointwise_nest
from graphc.ops.fused import KernelNode

HEADERS = '#include "c/window.h"\n#include "c/elementary.h"\n'
"""What printed functions include, from the folder of kernels."""


def lower_file(nodes: Sequence[KernelNode]) -> str:
    """The text of a C file with the function `NAME_kernel` of each node, whose arguments are the
    node's inputs and outputs, row-major."""
    return "\n".join([HEADERS, *map(_function, nodes)])


def row_nests(node: KernelNode) -> tuple[list[Nest], list[Memory]]:
    """The verified nests of a node in serial loops, one over the last axis inside one over the
    others, or over elements inside one over rows; and the memory of its inputs and outputs."""
    body, names = node.body, Identifiers()
    pointers, nests = names.pointers(body), []
    reduces = node.op.template == "reduce"
    if reduces:
        domain = Domain(reduced_shape(body) or (1,), row_lanes(body)[0], LANES)
        nests.append(ordered_rows(body, find_rows(body, domain, pointers=pointers)).nest)
    for outputs in group_outputs(body) if not reduces else ():
        domain = Domain(space(body, outputs[0]) or (1,))
        if domain.size:
            part = make_pointwise_nest(body, outputs, domain, pointers, names).merged
            nests.append(split_last(hoist(plain_nest(part))))
    for nest in nests:
        verify_nest(nest)
    written = set(body.outputs)
    values = (*body.inputs, *body.outputs)
    return nests, [Memory(pointers[v], v.type.dtype, v.type.size, v in written) for v in values]


def _function(node: KernelNode) -> str:
    return function_text(f"{node.op.kernel}_kernel", *row_nests(node))
