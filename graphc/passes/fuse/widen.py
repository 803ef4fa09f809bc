"""Replace arithmetic on f16 and bf16 by arithmetic on f32 between conversions.

Every op on floats of two bytes becomes the op on f32 between conversions: its operands widened,
its results rounded once. So kernels know such floats in loads, stores and conversions alone, and a
value is the same whether it lies in memory between two kernels or in a register of one. What only
moves elements stays as it is.

Conversions to f32 that the graph has, and views of them, are widened the same way.

Operands are widened anew for each reader: one that computes in registers reads two bytes and widens
there (`widen`); one that is given memory gets f32 in memory (`cast`). On the CPU a contraction is
given memory where it reads an element often, but for products of bf16 that an instruction adds in
pairs.
"""

from __future__ import annotations

import math
from dataclasses import replace

from graphc.base.target import Target
from graphc.ir import NARROW, Graph, Node, Value
from graphc.ir.rewrite import drop_dead, names_of
from graphc.ops.base import Op
from graphc.ops.pointwise.logic import Cast
from graphc.ops.pointwise.widen import Widen
from graphc.passes.fuse.channels import has_kernels

FEW_READS = 64
"""On the CPU an element that a contraction reads more often is better converted once for all: dense
layers of 1024 to 2048 features gain until 64 rows (2.3 times at 1 row), convolutions lose."""


def widen(graph: Graph, target: Target) -> Graph:
    """Replace arithmetic on f16 and bf16 by arithmetic on f32 between conversions."""
    values = (*graph.inputs, *graph.state, *(v for n in graph.nodes for v in n.outputs))
    if not any(map(_narrow, values)):
        return graph
    widening = _Widening(graph, target)
    for node in graph.nodes:
        widening.add(node)
    return drop_dead(replace(graph, nodes=tuple(widening.nodes)))


def _narrow(value: Value) -> bool:
    return value.type.dtype in NARROW


class _Widening:
    """Moves conversions of f16 and bf16 to f32 to their readers.

    `stored` maps each conversion, and views of it, to the stored value.
    """

    def __init__(self, graph: Graph, target: Target) -> None:
        self.target, self.names = target, names_of(graph)
        self.nodes: list[Node] = []
        self.producers = graph.producers
        self.stored: dict[Value, Value] = {}

    def add(self, node: Node) -> None:
        """Append `node`, between conversions if it computes on f16 or bf16."""
        if node.op.takes_narrow or node.op.converts_reads or not node.op.widens:
            self._follow(node)
            self.nodes.append(node)
            return
        op = node.op
        on_reads = self.target.kind.converts_on_reads
        factors = node.inputs[op.own_factors]
        multiplies = bool(factors) and on_reads
        # A kernel of its own template reads in place what it multiplies, and nothing else.
        in_place = tuple(not multiplies or v in factors for v in node.inputs)
        registers = op.in_registers or (op.contracts and on_reads) or self._multiplies_narrow(node)
        if registers or op.contracts or multiplies:
            found = zip(node.inputs, in_place, strict=True)
            node = replace(node, inputs=tuple(self.stored.get(v, v) if i else v for v, i in found))
        if self._multiplies_pairs(node):
            registers = True
        if not any(map(_narrow, (*node.inputs, *node.outputs))):
            self.nodes.append(node)
            return
        inputs = tuple(
            self._read(v, node, registers and i) if _narrow(v) else v
            for v, i in zip(node.inputs, in_place, strict=True)
        )
        outputs = tuple(self._wide(v) if _narrow(v) else v for v in node.outputs)
        if getattr(op, "dtype", None) in NARROW:
            op = replace(op, dtype="f32")  # type: ignore[type-var]
        self.nodes.append(replace(node, op=op, inputs=inputs, outputs=outputs))
        for value, wide in zip(node.outputs, outputs, strict=True):
            if value is not wide:
                self._emit(Cast(value.type.dtype), wide, value, node)

    def _multiplies_narrow(self, node: Node) -> bool:
        """Return whether a kernel's own template multiplies floats of one dtype as stored."""
        factors = node.inputs[node.op.own_factors]
        if not self.target.kind.converts_on_reads:
            return False
        values = (self.stored.get(v, v) for v in factors)
        dtypes = {v.type.dtype for v in values}
        return len(dtypes) == 1 and dtypes <= {*NARROW}

    def _multiplies_pairs(self, node: Node) -> bool:
        """Return whether a contraction's kernel adds products of bf16 in pairs, as stored."""
        target = self.target
        if not target.multiplies_pairs or not node.op.contracts:
            return False
        if {v.type.dtype for v in node.inputs} != {"bf16"} or not node.output.type.size:
            return False
        if not node.op.images:  # a matrix product
            return True
        in_lanes = target.fills_lanes(node.inputs[0].type.shape[0])
        return not in_lanes and has_kernels(node)

    def _read(self, value: Value, node: Node, registers: bool) -> Value:
        """Return the f32 value for an f16 or bf16 value that `node` reads."""
        if node.op.contracts and not registers:
            a, b = (replace(v.type, dtype="f32") for v in node.inputs)
            products = math.prod(node.op.iteration(a, b).extents)
            registers = products <= FEW_READS * value.type.size
        return self._widened(value, node) if registers else self._copied(value, node)

    def _follow(self, node: Node) -> None:
        """Record conversions to f32, and views of them."""
        if node.op in (Cast("f32"), Widen()) and _narrow(node.inputs[0]):
            self.stored[node.output] = node.inputs[0]
        elif node.op.moves and node.inputs[0] in self.stored:
            source = self.stored[node.inputs[0]]
            type = replace(node.output.type, dtype=source.type.dtype)
            view = Value(self.names.fresh(node.output.name), type)
            self.stored[node.output] = self._emit(node.op, source, view, node)

    def _widened(self, value: Value, node: Node) -> Value:
        """Return f32 that is converted where it is read, at no cost."""
        return self._emit(Widen(), value, self._wide(value), node)

    def _copied(self, value: Value, node: Node) -> Value:
        """Return f32 in memory, copied before views that only move or repeat it."""
        producer = self.producers.get(value)
        if producer is not None and producer.op.moves and producer.is_free:
            (source,) = producer.inputs
            if source.type.size <= value.type.size:
                copy = self._copied(source, node)
                return self._emit(producer.op, copy, self._wide(value), producer)
        return self._emit(Cast("f32"), value, self._wide(value), node)

    def _wide(self, value: Value) -> Value:
        return Value(self.names.fresh(f"{value.name}.f32"), replace(value.type, dtype="f32"))

    def _emit(self, op: Op, source: Value, result: Value, like: Node) -> Value:
        self.nodes.append(replace(like, op=op, inputs=(source,), outputs=(result,)))
        return result
