"""Rewrite single nodes by algebra; each rule returns the value to use instead of its output."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from graphc.base.dtypes import widened
from graphc.ir import Node, Value
from graphc.ops.base import Op, Pointwise
from graphc.ops.join import Concat
from graphc.ops.matmul import Matmul
from graphc.ops.pointwise.arithmetic import Add, Negative, StopGradient
from graphc.ops.pointwise.logic import Cast
from graphc.ops.reduction import NumberReduction
from graphc.ops.view import BroadcastTo, PermuteDims, Reshape, Slice
from graphc.passes.simplify.padded import concat_of_padded, joined_neighbours
from graphc.passes.simplify.reshapes import (
    before_reshape,
    concat_of_reshapes,
    of_reshapes,
    reshape_of_slice,
    slice_of_split,
)
from graphc.passes.simplify.sweep import Sweep

Rule = Callable[[Node, Sweep], Value | None]


def behind(*kinds: type[Op]) -> Callable[[Callable[..., Value | None]], Rule]:
    """Register a rule for a chain of nodes, each of which is the first input of the next.

    The function takes all of them, and the given classes are those of all but the first.
    """

    def rule_of(function: Callable[..., Value | None]) -> Rule:
        @functools.wraps(function)
        def rule(node: Node, sweep: Sweep) -> Value | None:
            found = [node]
            for kind in kinds:
                inner = sweep.producer(found[-1].inputs[0])
                if inner is None or not isinstance(inner.op, kind):
                    return None
                found.append(inner)
            return function(*found, sweep)

        return rule

    return rule_of


def input_itself(node: Node, sweep: Sweep) -> Value | None:
    return node.inputs[0]


def input_if_same_type(node: Node, sweep: Sweep) -> Value | None:
    (x,) = node.inputs
    same = (x.type.shape, x.type.dtype) == (node.output.type.shape, node.output.type.dtype)
    return x if same else None


@behind(Negative)
def twice_negative(node: Node, inner: Node, sweep: Sweep) -> Value | None:
    return inner.inputs[0]


def neutral_element(node: Node, sweep: Sweep) -> Value | None:
    """x op element is x, exactly. A negative zero is not the element 0: -0.0 - -0.0 is 0.0."""
    if node.op.neutral is None:
        return None
    element, places = node.op.neutral
    for place in places:
        array = sweep.constant(node.inputs[place])
        other = node.inputs[1 - place]
        if array is None or other.type.shape != node.output.type.shape:
            continue
        array = widened(array)
        if np.all((array == element) & ~np.signbit(array)):
            return other
    return None


@behind(PermuteDims)
def permute_twice(node: Node, inner: Node, sweep: Sweep) -> Value | None:
    axes = tuple(inner.op.attributes["axes"][a] for a in node.op.attributes["axes"])
    return sweep.emit(PermuteDims(axes), inner.inputs, node)


def permute_nothing(node: Node, sweep: Sweep) -> Value | None:
    axes = node.op.attributes["axes"]
    return node.inputs[0] if axes == tuple(range(len(axes))) else None


@behind(Matmul)
def permute_of_matmul(node: Node, inner: Node, sweep: Sweep) -> Value | None:
    """Rewrite (A B)^T = B^T A^T, so that the product is written as its readers need it.

    If A B is read too, that would be a second product.
    """
    axes = node.op.attributes["axes"]
    rank = len(axes)
    if rank < 2 or inner.output in sweep.shared:
        return None
    if axes != (*range(rank - 2), rank - 1, rank - 2):
        return None
    a, b = inner.inputs
    if a.type.rank != rank or b.type.rank != rank:
        return None
    flipped = tuple(sweep.emit(node.op, (v,), inner) for v in (b, a))
    return sweep.emit(inner.op, flipped, inner)


@behind(Pointwise)
def permute_of_outer(node: Node, inner: Node, sweep: Sweep) -> Value | None:
    """Permute the operands of an op that broadcasts both, instead of its result.

    The transposed gradient of one sample's weight is such: it is written once, as its readers need
    it.
    """
    if inner.output in sweep.shared:
        return None
    whole = inner.output.type
    wide = [v for v in inner.inputs if v.type.rank]
    if not wide or any(v.type.rank != whole.rank or v.type.size >= whole.size for v in wide):
        return None
    moved = {v: sweep.emit(node.op, (v,), node) for v in dict.fromkeys(wide)}
    return sweep.emit(inner.op, tuple(moved.get(v, v) for v in inner.inputs), inner)


@behind(Reshape)
def reshape_twice(node: Node, inner: Node, sweep: Sweep) -> Value | None:
    (x,) = inner.inputs
    return x if x.type == node.output.type else sweep.emit(node.op, (x,), node)


def sum_of_nothing(node: Node, sweep: Sweep) -> Value | None:
    """A reduction over axes of extent 1 moves nothing."""
    (x,) = node.inputs
    if any(x.type.shape[a] != 1 for a in node.op.reduced_axes or ()):
        return None
    if x.type.shape == node.output.type.shape:
        return x
    return sweep.emit(Reshape(node.output.type.shape), (x,), node)


def without_broadcasts(node: Node, sweep: Sweep) -> Value | None:
    """Pointwise ops broadcast by themselves: read what a broadcast_to read."""
    if BroadcastTo not in sweep.kinds:
        return None
    inputs = []
    for value in node.inputs:
        producer = sweep.producer(value)
        repeats = producer is not None and isinstance(producer.op, BroadcastTo)
        inputs.append(producer.inputs[0] if producer is not None and repeats else value)
    if tuple(inputs) == node.inputs:
        return None
    shape = np.broadcast_shapes(*(v.type.shape for v in inputs))
    if shape != node.output.type.shape:
        # One operand must keep the shape; broadcast the result instead, which is less work.
        small = sweep.emit(node.op, tuple(inputs), node)
        return sweep.emit(BroadcastTo(node.output.type.shape), (small,), node)
    return sweep.emit(node.op, tuple(inputs), node)


RULES: dict[type[Op], tuple[Rule, ...]] = {
    StopGradient: (input_itself,),
    Cast: (input_if_same_type,),
    BroadcastTo: (input_if_same_type,),
    Negative: (twice_negative,),
    Add: (concat_of_padded, joined_neighbours),
    Concat: (concat_of_reshapes,),
    PermuteDims: (permute_nothing, permute_twice, permute_of_matmul, permute_of_outer),
    Reshape: (
        *(input_if_same_type, reshape_twice),
        *(behind(Slice, Reshape)(slice_of_split), behind(Slice)(reshape_of_slice)),
    ),
    NumberReduction: (sum_of_nothing,),
    Pointwise: (neutral_element, without_broadcasts, before_reshape, of_reshapes),
}
"""The rules for ops of a class and of those that derive from it."""


def rules_of(op: Op) -> tuple[Rule, ...]:
    """Return the rules for an op, those of its class before those of its family.

    Each returns a value equal to the node's output, from earlier or new nodes, that weighs less
    (`measure.py`); or None to keep the node.
    """
    kind: Any = type(op)
    return _rules_of(kind)


@functools.cache
def _rules_of(kind: Any) -> tuple[Rule, ...]:
    return tuple(rule for base in kind.__mro__ for rule in RULES.get(base, ()))
