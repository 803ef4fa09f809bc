"""Find fused contractions that are convolutions, or gradients of one, that a library can compute
whole.

A library gets a convolution of two operands as they lie in memory, with an epilogue of `STEPS`,
some of whose results are stored. Any other body uses a generated kernel.
"""

from __future__ import annotations

import math

from graphc.ir import Graph, Node, Value
from graphc.kernels.program.calls import CallTensor, Convolution, PointwiseStep
from graphc.ops.convolution import Conv2d, Conv2dDgrad, Conv2dWgrad
from graphc.ops.fused import KernelNode

ELEMENTS = {"f32", "f16", "bf16"}
"""Dtypes of operands and results."""
STEPS = ("add", "relu", "relu_grad", "cast")
"""Ops that an epilogue may have."""
READS = ("widen", "read_tf32")
"""Ops that convert operands as they are read."""


def convolution_of(node: Node) -> Convolution | None:
    """The convolution that a fused contraction is; None if it has more, or an unsupported
    layout."""
    if not isinstance(node, KernelNode) or node.op.template != "contract":
        return None
    body = node.body
    found = [n for n in body.nodes if isinstance(n.op, Conv2d | Conv2dDgrad | Conv2dWgrad)]
    if len(found) != 1 or not all(_lies(v) for v in (*body.inputs, *body.outputs)):
        return None
    (sums,) = found
    op, reads = sums.op, [_read(body, v) for v in sums.inputs]
    assert isinstance(op, Conv2d | Conv2dDgrad | Conv2dWgrad)
    operands = [value for value, _ in reads if value is not None]
    if len(operands) < 2 or len({(v.type.dtype, by) for v, by in reads if v}) > 1:
        return None
    tensors = _Tensors(body, sums)
    for value in operands:
        tensors.read(value)
    tensors.make(sums)
    steps = [tensors.step(n) for n in tensors.following]
    weights = tensors.found[2 if isinstance(op, Conv2dWgrad) else 1]
    if (
        not _dense(weights)
        or None in steps
        or sums.output.type.dtype != "f32"
        or not tensors.kinds <= ELEMENTS
    ):
        return None
    return Convolution(
        op.name,
        op.stride,
        op.padding,
        op.dilation,
        op.groups,
        tuple(tensors.found),
        tuple(step for step in steps if step is not None),
        reads[0][1] == "read_tf32",
    )


class _Tensors:
    """The tensors of a body, in the order in which they are met."""

    def __init__(self, body: Graph, sums: Node) -> None:
        self._body, self.found = body, list[CallTensor]()
        self._numbers: dict[Value, int] = {}
        self._makers = {v: n for n in body.nodes for v in n.outputs}
        behind, rest = {sums.output}, list[Node]()
        for node in body.nodes:
            if behind & {*node.inputs}:
                behind.update(node.outputs)
                rest.append(node)
        self._narrow: dict[Value, Value] = {}
        """For values that only a cast reads: the cast's result, which is stored instead."""
        for value in behind:
            users = [n for n in rest if value in n.inputs]
            alone = len(users) == 1 and value not in body.outputs
            if alone and users[0].op.name == "cast":
                self._narrow[value] = users[0].output
        self.following = [n for n in rest if n.output not in self._narrow.values()]
        """The nodes after the sums that are steps."""

    @property
    def kinds(self) -> set[str]:
        return {x.dtype for x in self.found}

    def read(self, value: Value) -> None:
        """Add an input with its layout."""
        kind = value.type
        place = self._body.inputs.index(value)
        self._add(value, CallTensor(place, kind.shape, kind.strides, kind.dtype))

    def make(self, node: Node) -> int:
        """Add the result of a node, which is stored if it is an output; returns its number."""
        made, outputs = node.output, self._body.outputs
        stored = self._narrow.get(made, made)
        kind, place = stored.type, None
        if stored in outputs:
            place = len(self._body.inputs) + outputs.index(stored)
        else:  # it takes the order of a result's elements
            kind = next((v.type for v in outputs if v.type.shape == kind.shape), kind)
        self._numbers[made] = len(self.found)
        return self._add(stored, CallTensor(place, kind.shape, kind.strides, stored.type.dtype))

    def step(self, node: Node) -> PointwiseStep | None:
        """The epilogue step that a node is; None if it is none."""
        if node.op.name not in STEPS:
            return None
        places = [self._operand(v) for v in node.inputs]
        if None in places:
            return None
        inputs = tuple(place for place in places if place is not None)
        return PointwiseStep(node.op.name, inputs, self.make(node))

    def _operand(self, value: Value) -> int | None:
        """The number of a tensor that a step reads. None if it is neither computed nor an input, or
        if it is a single axis broadcast between axes of one element."""
        if value in self._numbers:
            return self._numbers[value]
        if value in self._body.inputs:
            self.read(value)
            return self._numbers[value] if value.type.rank == 4 else None
        maker, shape = self._makers[value], value.type.shape
        if maker.op.name != "reshape" or len(shape) != 4 or sum(n > 1 for n in shape) > 1:
            return None
        (source,) = maker.inputs
        if source not in self._body.inputs:
            return None
        strides = tuple(1 if n > 1 else max(shape) for n in shape)
        place = self._body.inputs.index(source)
        return self._add(value, CallTensor(place, shape, strides, source.type.dtype))

    def _add(self, value: Value, tensor: CallTensor) -> int:
        self._numbers[value] = len(self.found)
        self.found.append(tensor)
        return self._numbers[value]


def _read(body: Graph, value: Value) -> tuple[Value | None, str]:
    """The input that an operand is, if it is one, and the op that converts it."""
    maker = next((n for n in body.nodes if value in n.outputs), None)
    by = maker.op.name if maker is not None else ""
    source = maker.inputs[0] if maker is not None and by in READS else value
    return (source if source in body.inputs else None), by


def _dense(x: CallTensor) -> bool:
    """Whether its elements are contiguous, as libraries require of weights."""
    return math.prod(x.shape) == 1 + sum(
        s * (n - 1) for s, n in zip(x.strides, x.shape, strict=True)
    )


def _lies(value: Value) -> bool:
    """Whether its layout has strides: it is row-major, or one block holds the axis in lanes."""
    layout = value.type.layout
    return layout.axis is None or layout.in_one_block(value.type.shape)
