"""Split the gradient of a strided convolution into dense ones, for row-major images.

With stride a, row h of dx meets the taps r that leave h + padding - r divisible by a: for rows
h = a * u + i the taps r0, r0 + a, ... with r0 = (i + padding) mod a, and then the row
p = u + e - m of dy, with e = (i + padding - r0) / a, for tap number m. So the rows (and columns) of
one phase i are a dense gradient of stride 1, of every a-th tap; its row f is row u = f - e. A pixel
of dx belongs to one phase, so that their sum, spread out by `pad`, puts them together.

Done on the CPU where the batch does not fill the lanes: neighbours in a row of dx would else meet
different taps, and a register of them is gathered from dy one by one.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from graphc.base.target import Target
from graphc.ir import Graph, Names, Node, Value
from graphc.ir.rewrite import names_of, substitute
from graphc.ops.base import Op
from graphc.ops.constant import Constant
from graphc.ops.convolution import Conv2dDgrad
from graphc.ops.join import Pad
from graphc.ops.pointwise.arithmetic import Add
from graphc.ops.view import BroadcastTo, Slice

Emit = Callable[..., Value]
"""Appends a node of an op on values and gives its output."""


@dataclass(frozen=True)
class _Phase:
    """One residue class along an axis of a strided gradient.

    Elements `skip` to `skip + count` of the dense result are every `stride`-th element of dx from
    `first` on; the taps are every `stride`-th from `tap` on.
    """

    first: int
    tap: int
    taps: int
    skip: int
    count: int


def split_strides(graph: Graph, target: Target) -> Graph:
    """The same results with every strided gradient of a row-major convolution in dense parts."""
    if not target.has_lanes:
        return graph
    names = names_of(graph)
    nodes: list[Node] = []
    substitution: dict[Value, Value] = {}
    for node in graph.nodes:
        op = node.op
        if isinstance(op, Conv2dDgrad) and _is_split(op, node, target):
            parts = _parts(op, node, names)
            nodes += parts
            substitution[node.output] = parts[-1].output
        else:
            nodes.append(node)
    return substitute(graph, nodes, substitution) if substitution else graph


def _is_split(op: Conv2dDgrad, node: Node, target: Target) -> bool:
    batch = node.output.type.shape[0]
    return max(op.stride) > 1 and op.dilation == (1, 1) and not target.fills_lanes(batch)


def _parts(op: Conv2dDgrad, node: Node, names: Names) -> list[Node]:
    """The nodes whose last makes what `node` does."""
    dy, weight = node.inputs
    nodes: list[Node] = []

    def emit(op: Op, *inputs: Value) -> Value:
        (kind,) = op.infer(*(v.type for v in inputs))
        nodes.append(Node(op, inputs, (Value(names.fresh(f"{base}.{op.name}"), kind),), node.where))
        return nodes[-1].output

    base = node.output.name
    total: Value | None = None
    for rows, columns in itertools.product(*(_phases(op, node, axis) for axis in (0, 1))):
        part = _part(op, emit, dy, weight, (rows, columns))
        total = part if total is None else emit(Add(), total, part)
    if total is None:  # all taps lie in the padding
        zero = Constant.of(np.zeros((), node.output.type.numpy_dtype))
        emit(BroadcastTo(node.output.type.shape), emit(zero))
    return nodes


def _phases(op: Conv2dDgrad, node: Node, axis: int) -> list[_Phase]:
    """Those along `axis` that meet any tap."""
    dy, weight = node.inputs
    stride, padding, extent = op.stride[axis], op.padding[axis], op.size[axis]
    phases = []
    for first in range(min(stride, extent)):
        tap = (first + padding) % stride
        taps = len(range(tap, weight.type.shape[2 + axis], stride))
        skip = (first + padding - tap) // stride
        reach = dy.type.shape[2 + axis] + taps - 1
        count = min(reach - skip, len(range(first, extent, stride)))
        if taps and count > 0:
            phases.append(_Phase(first, tap, taps, skip, count))
    return phases


def _part(
    op: Conv2dDgrad, emit: Emit, dy: Value, weight: Value, phases: tuple[_Phase, _Phase]
) -> Value:
    """dx at the rows and columns of these phases, 0 elsewhere."""
    kind = weight.type
    taps = Slice((0, 0, *(p.tap for p in phases)), kind.shape, (1, 1, *op.stride))
    reach = tuple(n + p.taps - 1 for n, p in zip(dy.type.shape[2:], phases, strict=True))
    dense = Conv2dDgrad((1, 1), (0, 0), (1, 1), op.groups, (reach[0], reach[1]))
    whole = emit(dense, dy, emit(taps, weight))
    shape = whole.type.shape
    place = (0, 0, *(p.skip for p in phases))
    end = (*shape[:2], *(p.skip + p.count for p in phases))
    if (place, end) != ((0,) * 4, shape):
        whole = emit(Slice(place, end, (1,) * 4), whole)
    behind = (
        size - p.first - (p.count - 1) * stride - 1
        for size, p, stride in zip(op.size, phases, op.stride, strict=True)
    )
    apart = (0, 0, *(stride - 1 for stride in op.stride))
    return emit(Pad((0, 0, *(p.first for p in phases)), (0, 0, *behind), apart), whole)
