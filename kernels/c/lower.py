"""Lower kernels to plain C: a function per kernel, a loop nest per group of outputs, or one for all
that the kernel's reductions, running result, sort, gather's gradient or scatter leads to; of a
contraction one for the sums, before those of outputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from graphc.ir import Graph, Value
from graphc.ir.sum_order import LANES
from graphc.kernels.c.loop_printer import function_text
from graphc.kernels.loops.index_nest import index_nest
from graphc.kernels.loops.language import Memory, Nest
from graphc.kernels.loops.plain import plain_nest
from graphc.kernels.loops.products import products_nest
from graphc.kernels.loops.reduction_orders import ordered_rows, row_lanes
from graphc.kernels.loops.rewrites import along_last, hoist, in_order, split_last
from graphc.kernels.loops.rows import find_rows, reduced_shape
from graphc.kernels.loops.verify import verify_nest
from graphc.kernels.program.access import Domain
from graphc.kernels.program.axis import make_axis_nest, only_node
from graphc.kernels.program.body.names import Identifiers, Pointers
from graphc.kernels.program.epilogue import pooling
from graphc.kernels.program.pieces import space
from graphc.kernels.program.pointwise_nest import group_outputs, make_pointwise_nest
from graphc.ops.fused import KernelNode
from graphc.ops.indexing import TakeGrad
from graphc.ops.prefix import BLOCK, Prefix
from graphc.ops.scatter import Scatter
from graphc.ops.sort import Sort

HEADERS = '#include "c/window.h"\n#include "c/elementary.h"\n'
"""What printed functions include, from the folder of kernels."""

Nests = tuple[list[Nest], Mapping[Value, str]]
"""Nests, and the names of the memory of a body's inputs and outputs."""


def lower_file(nodes: Sequence[KernelNode]) -> str:
    """The text of a C file with the function `NAME_kernel` of each node, whose arguments are the
    node's inputs and outputs, row-major."""
    return "\n".join([HEADERS, *map(_function, nodes)])


def serial_nests(node: KernelNode) -> tuple[list[Nest], list[Memory]]:
    """The verified nests of a node in serial loops, one over the last axis inside one over the
    others, or over elements inside one over rows; and the memory of its inputs and outputs."""
    body = node.body
    nests, pointers = TEMPLATES[node.op.template](node)
    for nest in nests:
        verify_nest(nest)
    written = set(body.outputs)
    values = (*body.inputs, *body.outputs)
    return nests, [Memory(pointers[v], v.type.dtype, v.type.size, v in written) for v in values]


def _function(node: KernelNode) -> str:
    return function_text(f"{node.op.kernel}_kernel", *serial_nests(node))


def _pointwise(node: KernelNode) -> Nests:
    names = Identifiers()
    pointers = names.pointers(node.body)
    return _elements(node.body, pointers, names), pointers


def _elements(body: Graph, pointers: Pointers, names: Identifiers) -> list[Nest]:
    """A nest for each group of outputs of a pointwise body."""
    nests = []
    for outputs in group_outputs(body):
        domain = Domain(space(body, outputs[0]) or (1,))
        if domain.size:
            part = make_pointwise_nest(body, outputs, domain, pointers, names).merged
            nests.append(split_last(hoist(plain_nest(part))))
    return nests


def _contract(node: KernelNode) -> Nests:
    """A contraction, and what is done to its sums. These, and what is pooled, are memory of the
    function if they are no output."""
    body, names = node.body, Identifiers()
    pointers, nests = names.pointers(body), list[Nest]()
    (inner,), pool = (n for n in body.nodes if n.op.contracts), pooling(body)
    made = dict.fromkeys((inner.output, *(pool.inputs if pool else ())))
    rest = body
    for value in made:
        pointers.setdefault(value, names.fresh(value.name, "data"))
        if value == inner.output:
            nests.append(products_nest(body, inner, pointers, names))
        else:
            nests += _elements(replace(rest, outputs=(value,)), pointers, names)
        nodes = tuple(n for n in rest.nodes if value not in n.outputs)
        rest = replace(rest, inputs=(*rest.inputs, value), nodes=nodes)
    rest = replace(rest, outputs=tuple(v for v in body.outputs if v not in made))
    return nests + _elements(rest, pointers, names), pointers


def _rows(node: KernelNode) -> Nests:
    domain = Domain(reduced_shape(node.body) or (1,), row_lanes(node.body)[0], LANES)
    rows = ordered_rows(node.body, find_rows(node.body, domain))
    return [rows.nest], rows.pointers


def _along(kind: type[Prefix] | type[Sort]) -> Callable[[KernelNode], Nests]:
    """Rows along the axis of an op of this kind; running results are joined in the op's order."""

    def lower(node: KernelNode) -> Nests:
        inner, op = only_node(node, kind)
        shape = inner.inputs[0].type.shape
        part = make_axis_nest(node, inner, Domain(shape, len(shape) - 1, LANES))
        nest = along_last(plain_nest(part))
        if isinstance(op, Prefix):
            nest = in_order(nest, BLOCK if part.in_lanes else 1, op.pieces(shape))
        return [nest], part.pointers

    return lower


def _places(kind: type[TakeGrad] | type[Scatter]) -> Callable[[KernelNode], Nests]:
    """Loops whose indices are data."""

    def lower(node: KernelNode) -> Nests:
        part = index_nest(node, kind)
        return [part.nest], part.pointers

    return lower


TEMPLATES: Mapping[str, Callable[[KernelNode], Nests]] = {
    "contract": _contract,
    "index": _places(TakeGrad),
    "pointwise": _pointwise,
    "prefix": _along(Prefix),
    "reduce": _rows,
    "scatter": _places(Scatter),
    "sort": _along(Sort),
}
"""What makes the nests of each template."""
