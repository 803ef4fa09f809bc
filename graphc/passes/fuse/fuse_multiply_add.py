"""Fuse multiply-adds: a product that one sum alone reads becomes part of it, rounded once.

    a * b + c  ->  fma(a, b, c)
    a * b - c  ->  fms(a, b, c)
    c - a * b  ->  fnma(a, b, c)

Kernels are compiled without leave to fuse products on their own, so that what is rounded is what
the graph says, whatever the compiler and the instruction set. Of a sum of two products the first
is fused; a difference of two stays as it is, so that x * x - y * y is 0 where x is y. So does a sum
that a reduction adds up, whose factors may be taken out of it. Shapes do not matter: a product of
fewer elements than the sum has as many as it where the batch is 1, whose bits are those of any.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Set
from dataclasses import replace

from graphc.base.target import Target
from graphc.ir import FLOATS, Graph, Node, Value
from graphc.ir.rewrite import drop_dead
from graphc.ops.base import Op
from graphc.ops.fused import KernelNode
from graphc.ops.pointwise.arithmetic import Add, Multiply, Negative, Square, Subtract
from graphc.ops.pointwise.fused_multiply_add import (
    FusedMultiplyAdd,
    FusedMultiplySubtract,
    FusedNegateMultiplyAdd,
)
from graphc.ops.pointwise.logic import Cast
from graphc.ops.pointwise.widen import Widen

PRODUCTS: frozenset[type[Op]] = frozenset((Multiply, Square))
SUMS: Mapping[type[Op], tuple[Op, Op]] = {
    Add: (FusedMultiplyAdd(), FusedMultiplyAdd()),
    Subtract: (FusedMultiplySubtract(), FusedNegateMultiplyAdd()),
}
"""What a sum is with a product as its first operand, and as its second."""


TERMS: frozenset[type[Op]] = frozenset((Add, Subtract, Negative, Cast, Widen))
"""Ops whose results are added up as their operands would be."""


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
    products = {
        n.output: n for n in body.nodes if type(n.op) in PRODUCTS and n.output.type.dtype in FLOATS
    }
    if not products:
        return body
    reads = Counter(v for n in body.nodes for v in n.inputs)
    reads.update(body.outputs)
    own = {v: n for v, n in products.items() if reads[v] == 1}
    made, reduced = _seen_through_views(body, products), _reduced(body)
    nodes = tuple(n if n.outputs[0] in reduced else _summed(n, own, made) for n in body.nodes)
    return body if nodes == body.nodes else drop_dead(replace(body, nodes=nodes))


def _seen_through_views(body: Graph, products: Collection[Value]) -> Set[Value]:
    """Products, and what only moves their elements."""
    found = set(products)
    for node in body.nodes:
        if node.op.moves and not found.isdisjoint(node.inputs):
            found.update(node.outputs)
    return found


def _reduced(body: Graph) -> Set[Value]:
    """What a reduction adds up, and the terms of that, from which factors may be taken."""
    found = set[Value]()
    for node in reversed(body.nodes):
        if node.op.reduced_axes is not None:
            found.update(node.inputs)
        elif (type(node.op) in TERMS or node.op.moves) and node.outputs[0] in found:
            found.update(node.inputs)
    return found


def _summed(node: Node, products: Mapping[Value, Node], made: Set[Value]) -> Node:
    """The node, or the multiply-add that it is with one of `products`, which it alone reads.

    Values `made` from products count as products.
    """
    fused = SUMS.get(type(node.op))
    if fused is None:
        return node
    x, y = node.inputs
    if x in made and y in made and fused[0] != fused[1]:  # a difference
        return node
    if x not in products and y not in products:
        return node
    product, other = (products[x], y) if x in products else (products[y], x)
    return replace(
        node, op=fused[x not in products], inputs=(product.inputs[0], product.inputs[-1], other)
    )
