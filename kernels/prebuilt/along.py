"""Describe running results and sorts along an axis."""

from __future__ import annotations

import struct

from graphc.base.target import Target
from graphc.ir import Node
from graphc.ir.types import DTYPES
from graphc.kernels.cpu.shared.kernel_source import argument_order
from graphc.kernels.prebuilt.description import Prebuilt
from graphc.kernels.program.access import Domain
from graphc.kernels.program.axis import AxisNest, make_axis_nest, only_node
from graphc.kernels.program.body.statement import Address, Load, Statement, Store
from graphc.kernels.program.kernel import Kernel
from graphc.ops.combine import LATEST_MAX, LATEST_MIN, PROD, SUM
from graphc.ops.fused import KernelNode
from graphc.ops.prefix import Prefix
from graphc.ops.sort import Sort

AXES = 8
"""The most axes of a domain."""
COMBINES = (SUM, PROD, LATEST_MAX, LATEST_MIN)
"""The running results in the order of their numbers; behind them is the sort."""
ELEMENTS = ("f32", "f64", "i32", "i64")
"""The dtypes in the order of their numbers."""


def describe_along(node: Node, kernel: Kernel, target: Target) -> Prebuilt | None:
    """The description of a running result or a sort of elements that lie in memory; None where
    they are computed, for logarithms of sums and for dtypes of one and two bytes."""
    assert isinstance(node, KernelNode)
    sorts = node.op.template == "sort"
    inner, op = only_node(node, Sort) if sorts else only_node(node, Prefix)
    x = inner.inputs[0].type
    domain = Domain(x.shape, x.rank - 1, target.lanes)
    space = make_axis_nest(node, inner, domain)
    known = sorts or (isinstance(op, Prefix) and op.combine in COMBINES)
    places = _places(space, node, kernel)
    if not known or places is None or x.dtype not in ELEMENTS or space.domain.rank > AXES:
        return None
    if isinstance(op, Sort):
        numbers = (len(COMBINES), op.descending, False, 1, op.count)
    else:
        pieces = op.pieces(x.shape)
        numbers = (COMBINES.index(op.combine), op.reverse, space.in_lanes, pieces, space.extent)
    kind, *others = numbers
    head = kernel.phases[0], kind, ELEMENTS.index(x.dtype), space.axis, *others
    extents = [*space.domain.extents, *(1,) * AXES][:AXES]
    data = struct.pack(f"<8q{AXES}q", *head, *extents)
    return Prebuilt("graphc_along", data + b"".join(places))


def _places(space: AxisNest, node: KernelNode, kernel: Kernel) -> list[bytes] | None:
    """Where the elements of the input, the values and their places lie; None if something is
    computed but indices."""
    statements = space.program.statements
    loads = [s for s in statements if isinstance(s, Load)]
    along = space.along
    if len(loads) != 1 or not loads[0].plain or space.program.arrays:
        return None
    if [r.name for r in loads[0].results] != [*along.operands]:
        return None
    order, values = argument_order(node), {p: v for v, p in space.pointers.items()}
    found = [_place(loads[0], space, order[values[loads[0].pointers[0]]], kernel)]
    outputs = {}
    for statement in statements:
        if isinstance(statement, Store):
            value = values[statement.pointers[0]]
            outputs[value] = _place(statement, space, order[value], kernel)
    absent = struct.pack(f"<2q{AXES}q", -1, 0, *(0,) * AXES)
    (inner,) = (n for n in node.body.nodes if n.op.own_template)
    own = [outputs.pop(v, absent) for v in inner.outputs]
    found += [*own, absent][:2]
    return None if outputs or None in found else [place for place in found if place]


def _place(statement: Statement, space: AxisNest, number: int, kernel: Kernel) -> bytes | None:
    """The access of a load or a store."""
    address = statement.arguments[0]
    assert isinstance(address, Address)
    access, lane = address.access, space.domain.lane
    if access is None or access.divisor != 1:
        return None
    if lane is not None and access.strides[lane] != access.lane_stride:
        return None
    dtype = next(v for v, p in space.pointers.items() if p == address.pointer).type.dtype
    offset = access.offset * DTYPES[dtype].itemsize - kernel.offset(number)
    strides = [*access.strides, *(0,) * AXES][:AXES]
    return struct.pack(f"<2q{AXES}q", number, offset, *strides)
