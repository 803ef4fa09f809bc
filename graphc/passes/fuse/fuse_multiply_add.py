"""Fuse multiply-adds: a product that one sum alone reads becomes part of it, rounded once.

    a * b + c  ->  fma(a, b, c)
    a * b - c  ->  fms(a, b, c)
    c - a * b  ->  fnma(a, b, c)

Kernels are compiled without leave to fuse products on their own, so that what is rounded is what
the graph says, whatever the compiler and the instruction set. A sum of two products stays as it is:
which of them to round is arbitrary, and x * x - y * y is 0 where x is y. So does a sum that a
reduction reads, whose products may leave the reduction.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from graphc.base.target import Target
from graphc.ir import FLOATS, Graph, Node, Value
from graphc.ir.rewrite import drop_dead
from graphc.ops.base import Op
from graphc.ops.fused import KernelNode
from graphc.ops.pointwise.arithmetic import Add, Multiply, Square, Subtract
from graphc.ops.pointwise.fused_multiply_add import (
    FusedMultiplyAdd,
    FusedMultiplySubtract,
    FusedNegateMultiplyAdd,
)

PRODUCTS: frozenset[type[Op]] = frozenset((Multiply, Square))
SUMS: Mapping[type[Op], tuple[Op, Op]] = {
    Add: (FusedMultiplyAdd(), FusedMultiplyAdd()),
    Subtract: (FusedMultiplySubtract(), FusedNegateMultiplyAdd()),
}
"""What a sum is with a product as its first operand, and as its second."""


def fuse_multiply_add(graph: Graph, target: Target) -> Graph:
    """`graph` with multiply-adds in the bodies of its kernels."""
    return replace(graph, nodes=tuple(map(_in_kernel, graph.nodes)))


def _in_kernel(node: Node) -> Node:
    if not isinstance(node, KernelNode):
        return node
    body = node.body
    body = replace(body, nodes=tuple(map(_in_kernel, body.nodes)))
    return replace(node, op=replace(node.op, body=_fused(body)))


def _fused(body: Graph) -> Graph:
    """A kernel's body with multiply-adds."""
    reads = Counter(v for n in body.nodes for v in n.inputs)
    reads.update(body.outputs)
    reduced = {v for n in body.nodes if n.op.reduced_axes is not None for v in n.inputs}
    products = {
        n.output: n
        for n in body.nodes
        if type(n.op) in PRODUCTS and reads[n.output] == 1 and n.output.type.dtype in FLOATS
    }
    if not products:
        return body
    nodes = tuple(n if n.outputs[0] in reduced else _summed(n, products) for n in body.nodes)
    return body if nodes == body.nodes else drop_dead(replace(body, nodes=nodes))


def _summed(node: Node, products: Mapping[Value, Node]) -> Node:
    """The node, or the multiply-add that it is with the product that it reads."""
    fused = SUMS.get(type(node.op))
    if fused is None:
        return node
    x, y = node.inputs
    if (x in products) == (y in products):
        return node
    product, other = (products[x], y) if x in products else (products[y], x)
    if product.output.type.shape != node.output.type.shape:
        return node  # what is the same for many sums is computed once
    return replace(
        node, op=fused[x not in products], inputs=(product.inputs[0], product.inputs[-1], other)
    )
