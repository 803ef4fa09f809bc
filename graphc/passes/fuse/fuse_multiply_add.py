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
from graphc.ops.base import Reduction
from graphc.ops.fused import KernelNode
from graphc.ops.pointwise.arithmetic import Add, Multiply, Subtract
from graphc.ops.pointwise.fused_multiply_add import (
    FusedMultiplyAdd,
    FusedMultiplySubtract,
    FusedNegateMultiplyAdd,
)


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
    reduced = {v for n in body.nodes if isinstance(n.op, Reduction) for v in n.inputs}
    products = {
        n.output: n
        for n in body.nodes
        if isinstance(n.op, Multiply) and reads[n.output] == 1 and n.output.type.dtype in FLOATS
    }
    if not products:
        return body
    nodes = tuple(n if n.outputs[0] in reduced else _summed(n, products) for n in body.nodes)
    return body if nodes == body.nodes else drop_dead(replace(body, nodes=nodes))


def _summed(node: Node, products: Mapping[Value, Node]) -> Node:
    """The node, or the multiply-add that it is with the product that it reads."""
    if not isinstance(node.op, Add | Subtract):
        return node
    x, y = node.inputs
    if (x in products) == (y in products):
        return node
    product, other = (products[x], y) if x in products else (products[y], x)
    if product.output.type.shape != node.output.type.shape:
        return node  # what is the same for many sums is computed once
    op = FusedMultiplyAdd()
    if isinstance(node.op, Subtract):
        op = FusedMultiplySubtract() if x in products else FusedNegateMultiplyAdd()
    return replace(node, op=op, inputs=(*product.inputs, other))
