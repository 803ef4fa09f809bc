"""Round the operands of float32 contractions, as `compile(precision=)` asks.

narrow_products ("bfloat16"): each operand of a contraction, and of attention's products, is rounded
to bf16 and stored so; sums stay f32. Early, so that what is rounded for several readers, or in
every iteration of a loop, is rounded once.

round_products ("tf32"): each operand is rounded to 10 bits of fraction: where it is read, if the
device's kernels convert what they read, else in memory. Late, so that a rounding stays with its
contraction.

Both change what the graph means; that is what was asked for. Every device computes what the graph
then says, and the reference decides.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from graphc.base.target import Target
from graphc.ir import NARROW, Graph, Node, Value
from graphc.ir.rewrite import drop_dead, names_of, resolve, substitute
from graphc.ops.base import Op
from graphc.ops.pointwise.bf16 import ReadBf16
from graphc.ops.pointwise.logic import Cast
from graphc.ops.pointwise.tf32 import ReadTf32, RoundTf32
from graphc.ops.pointwise.widen import Widen


def narrow_products(graph: Graph, target: Target) -> Graph:
    """Round the f32 operands of contractions to bf16, in memory."""
    operands = _narrowing(graph, target)
    return operands.rewritten(operands.stored)


def narrow_large(body: Graph, target: Target) -> Graph:
    """Round the operands of a loop body's products as `narrow_products`, with exceptions.

    The exceptions are products of which blocks may hold one operand, and those of two changing
    operands, which may become sums over time.
    """
    changing, most = _changing(body), target.kind.held_elements
    operands = _narrowing(body, target)

    def operand(value: Value, reader: Node) -> Value:
        constant = [v.type.size for v in reader.inputs if v not in changing]
        waits = reader.op.contracts and not reader.op.images and len(constant) < 2
        if waits and all(size <= most for size in constant) and most:
            return value
        return operands.stored(value, reader)

    return operands.rewritten(operand)


def narrow_looped(body: Graph, target: Target) -> Graph:
    """Round the operands that `narrow_large` left, on read, if blocks may hold one of the two."""
    changing, most = _changing(body), target.kind.held_elements
    operands = _narrowing(body, target)

    def operand(value: Value, reader: Node) -> Value:
        constant = [v.type.size for v in reader.inputs if v not in changing]
        held = reader.op.contracts and not reader.op.images and len(constant) == 1
        if held and constant[0] <= most and not any(map(operands.was_narrow, reader.inputs)):
            return operands.emit(ReadBf16(), value, reader)
        return operands.stored(value, reader)

    return operands.rewritten(operand)


def _changing(body: Graph) -> set[Value]:
    """Return the values of a loop's body that differ between iterations."""
    changing = set(body.inputs)
    for node in body.nodes:
        if not changing.isdisjoint(node.inputs):
            changing.update(node.outputs)
    return changing


def _narrowing(graph: Graph, target: Target) -> _Operands:
    """Return the rounding of contractions' operands to bf16, in memory."""
    operands = _Operands(graph, (Cast("bf16"), Widen()), "bf16")
    if not target.kind.converts_on_reads:
        operands.of_others = (Cast("bf16"), Cast("f32"))
    return operands


def round_products(graph: Graph, target: Target) -> Graph:
    """Round the f32 operands of contractions to tf32, on read where the device can."""
    if target.kind.converts_on_reads:
        operands = _Operands(graph, (ReadTf32(),), "tf32")
        return operands.rewritten(operands.rounded)
    operands = _Operands(graph, (RoundTf32(),), "tf32")
    return operands.rewritten(operands.stored)


class _Operands:
    """Rounds operands of contractions to `dtype` by `steps`, each value once.

    `of_others` holds the rounded values for contractions whose kernels may not convert on read.
    """

    def __init__(self, graph: Graph, steps: tuple[Op, ...], dtype: str) -> None:
        self.graph, self.steps, self.of_others, self.dtype = graph, steps, steps, dtype
        self.producers, self.names = graph.producers, names_of(graph)
        self.nodes: list[Node] = []
        self.made: dict[tuple[Value, bool], Value] = {}
        self.emitted: dict[tuple[Op, Value], Value] = {}
        self.twins: dict[Value, Value] = {}
        """What takes the place of values that an earlier round of this pass made, further on."""

    def rewritten(self, operand: Callable[[Value, Node], Value]) -> Graph:
        """Return the graph whose f32 contractions read `operand` of their inputs."""
        for node in self.graph.nodes:
            read = tuple(resolve(v, self.twins) for v in node.inputs)
            if len(read) == 1 and (twin := self.emitted.get((node.op, *read))) is not None:
                self.twins[node.output] = twin
                continue
            kinds = {v.type.dtype for v in (*node.inputs, *node.outputs)}
            if node.op.contracts and kinds == {"f32"}:
                node = replace(node, inputs=tuple(operand(v, node) for v in node.inputs))
            elif (factors := node.inputs[node.op.own_factors]) and factors[0].type.dtype == "f32":
                node = self._multiplying(node, factors, operand)
            self.nodes.append(node)
        return drop_dead(substitute(self.graph, self.nodes, self.twins))

    def _multiplying(
        self, node: Node, factors: Sequence[Value], operand: Callable[[Value, Node], Value]
    ) -> Node:
        """Return the node with rounded operands, and rounded numbers of its own."""
        if all(map(self.was_narrow, factors)):
            return node
        made = dict(zip(factors, (operand(v, node) for v in factors), strict=True))
        inputs = list(node.inputs)
        inputs[node.op.own_factors] = [made[v] for v in factors]
        return replace(node, op=node.op.multiplying(self.dtype), inputs=tuple(inputs))

    def rounded(self, value: Value, reader: Node) -> Value:
        """Return `value` rounded for this reader alone."""
        if self.was_narrow(value) and reader.op.contracts:
            return value
        for op in self.steps if reader.op.contracts else self.of_others:
            value = self.emit(op, value, reader)
        return value

    def stored(self, value: Value, reader: Node) -> Value:
        """Return `value` rounded once for all readers, before views that only move or repeat it."""
        key = value, reader.op.contracts
        if key in self.made:
            return self.made[key]
        producer = self.producers.get(value)
        turned = producer is not None and producer.op.moves and producer.is_free
        if producer is not None and turned and producer.inputs[0].type.size <= value.type.size:
            source = self.stored(producer.inputs[0], reader)
            self.made[key] = self.emit(producer.op, source, producer)
        else:
            self.made[key] = self.rounded(value, reader)
        return self.made[key]

    def was_narrow(self, value: Value) -> bool:
        """Return whether the value was converted from f16 or bf16, so that it is not rounded."""
        producer = self.producers.get(value)
        while producer is not None and producer.op.moves:
            producer = self.producers.get(producer.inputs[0])
        if producer is None or producer.op not in (Cast("f32"), Widen()):
            return False
        return producer.inputs[0].type.dtype in NARROW

    def emit(self, op: Op, source: Value, like: Node) -> Value:
        """Append `op` on `source` at the source position of `like`."""
        (type,) = op.infer(source.type)
        result = Value(self.names.fresh(source.name), type)
        self.nodes.append(replace(like, op=op, inputs=(source,), outputs=(result,)))
        self.emitted[op, source] = result
        return result
