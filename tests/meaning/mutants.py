"""Optimised graphs with one mistake each, as a wrong pass would make them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from graphc.base.errors import GraphError
from graphc.ir import Graph, Node, Value, verify
from graphc.ir.interpret import evaluate
from graphc.ops.constant import PLACED, Constant
from graphc.ops.fused import Fused
from graphc.ops.loops.scan import Scan
from graphc.ops.pointwise.arithmetic import StopGradient
from graphc.ops.reduction import Max, Sum

Mutant = tuple[str, Graph]
"""(what is wrong, the graph)."""


def mutants(graph: Graph) -> Iterator[Mutant]:
    """Every mistake that is made here, that the type check passes and that changes a result."""
    for kind, wrong in _graphs(graph):
        if _is_valid(wrong) and _differs(graph, wrong):
            yield kind, wrong


def _is_valid(graph: Graph) -> bool:
    """Whether the type check passes, that of bodies too, which have no state."""
    try:
        verify(graph)
    except (GraphError, AssertionError):
        return False
    return all(_is_valid(n.op.body) for n in graph.nodes if isinstance(n.op, Fused | Scan))


def _graphs(graph: Graph) -> Iterator[Mutant]:
    for place, node in enumerate(graph.nodes):
        for kind, other in _nodes(node, graph, place):
            yield kind, _with(graph, place, other)
        if isinstance(node.op, Fused | Scan):
            for kind, body in _graphs(node.op.body):
                op = replace(node.op, body=body)
                yield f"{kind} in a body", _with(graph, place, replace(node, op=op))
        if isinstance(node.op, Scan):
            for kind, op in _carries(node.op):
                yield kind, _with(graph, place, replace(node, op=op))


def _with(graph: Graph, place: int, node: Node) -> Graph:
    nodes = list(graph.nodes)
    nodes[place] = node
    return replace(graph, nodes=tuple(nodes))


def _nodes(node: Node, graph: Graph, place: int) -> Iterator[tuple[str, Node]]:
    if node.op.name in ("subtract", "divide", "less", "matmul", "relu_grad", "maximum"):
        yield "swapped operands", replace(node, inputs=(*reversed(node.inputs),))
    if node.op.name == "add":
        for term in node.inputs:
            if term.type == node.output.type:
                yield "dropped term", replace(node, op=StopGradient(), inputs=(term,))
    if isinstance(node.op, Constant) and node.op.value.dtype.startswith("f"):
        yield "changed constant", replace(node, op=Constant.of(node.op.array + np.float32(1)))
    for kind, op in _ops(node.op):
        yield kind, replace(node, op=op)
    if isinstance(node.op, Fused | Scan):
        return
    known = [*graph.inputs, *graph.state, *(v for n in graph.nodes[:place] for v in n.outputs)]
    for number, value in enumerate(node.inputs):
        same = [v for v in known if v.type == value.type and v not in node.inputs]
        for other in same[-1:]:
            inputs = (*node.inputs[:number], other, *node.inputs[number + 1 :])
            yield "stale value", replace(node, inputs=inputs)


def _ops(op: Any) -> Iterator[tuple[str, Any]]:
    if op.name == "slice":
        for step in (-1, 1):
            starts, stops = (tuple(n + step for n in x) for x in (op.starts, op.stops))
            for axis in range(len(starts)):
                moved = [
                    (*old[:axis], new[axis], *old[axis + 1 :])
                    for old, new in ((op.starts, starts), (op.stops, stops))
                ]
                yield "slice off by one", replace(op, starts=moved[0], stops=moved[1])
    if op.name == "pad":
        yield "wrong pad value", replace(op, value=op.value + 1.0)
        yield "pad at the other end", replace(op, low=op.high, high=op.low)
    if op.name == "permute_dims":
        yield "wrong permutation", replace(op, axes=tuple(sorted(op.axes)))
        yield "wrong permutation", replace(op, axes=op.axes[::-1])
    if op.name == "concat" or op.name.startswith("cum"):
        yield "wrong axis", replace(op, axis=max(0, op.axis - 1))
    if op.name == "sum":
        yield "another reduction", Max(op.axes, op.keepdims)
        yield "other axes", replace(op, axes=tuple(a + 1 for a in op.axes))
    if op.name == "max":
        yield "another reduction", Sum(op.axes, op.keepdims)
    if "pool2d" in op.name:
        yield "another window", replace(op, kernel_size=(1, 1))
        yield "another window", replace(op, kernel_size=op.kernel_size[::-1])
    if op.name.startswith("conv2d"):
        yield "another padding", replace(op, padding=(op.padding[0] + 1, op.padding[1]))
        yield "another dilation", replace(op, dilation=(2, 1), padding=(op.padding[0] + 1, 1))
    if op.name in ("tanh", "sigmoid", "exp", "relu"):
        yield "an activation left out", StopGradient()


def _carries(op: Scan) -> Iterator[tuple[str, Scan]]:
    body = op.body
    first = len(body.inputs) - op.xs - op.carries
    for i in range(op.carries):
        for j in range(i):
            outputs = list(body.outputs)
            if outputs[i].type == outputs[j].type:
                outputs[i], outputs[j] = outputs[j], outputs[i]
                yield "swapped carries", replace(op, body=replace(body, outputs=tuple(outputs)))
        outputs = list(body.outputs)
        outputs[i] = body.inputs[first + i]
        yield "a carry that stays", replace(op, body=replace(body, outputs=tuple(outputs)))
    yield "the other direction", replace(op, reverse=not op.reverse)


def _differs(graph: Graph, wrong: Graph) -> bool:
    """Whether results differ in NumPy by more than rounding, on numbers of this file's own."""
    generator = np.random.default_rng(7)
    inputs = [_numbers(v, generator) for v in graph.inputs]
    state = {v.name: _numbers(v, generator) for v in graph.state}
    stages = (graph, *(n.op.body for n in graph.nodes if isinstance(n.op, Fused | Scan)))
    ops = [n.op for g in stages for n in g.nodes if isinstance(n.op, Constant)]
    state |= {PLACED + op.value.digest: op.array for op in ops}
    with np.errstate(all="ignore"):
        (a, b), (c, d) = (evaluate(g, inputs, state) for g in (graph, wrong))
    pairs = [*zip(a, c, strict=True), *((b[n], d[n]) for n in b)]
    return any(not np.allclose(x, y, 1e-2, 1e-3, equal_nan=True) for x, y in pairs)


def _numbers(value: Value, generator: np.random.Generator) -> np.ndarray:
    if value.type.dtype.startswith("f"):
        return generator.uniform(0.1, 1.5, value.type.shape)
    return generator.integers(0, 3, value.type.shape).astype(value.type.numpy_dtype)
