"""Rewrites of one node, tried in order; each gives the value to use in place of its output."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from graphc.dtypes import widened
from graphc.ir import Node, Value
from graphc.ops.base import REGISTRY, Pointwise
from graphc.ops.constant import Constant
from graphc.passes.simplify.padded import concat_of_padded
from graphc.passes.simplify.reshapes import before_reshape, concat_of_reshapes, reshape_of_slice

if TYPE_CHECKING:
    from graphc.passes.simplify.clean import Sweep

Rule = Callable[[Node, "Sweep"], Value | None]


def rules_of(node: Node) -> tuple[Rule, ...]:
    """The rules for the node's op. Each gives a value equal to the node's output, from earlier
    nodes or new ones, that weighs less (`measure.py`); or None to keep the node."""
    own = RULES.get(node.op.name, ())
    return (*own, without_broadcasts, before_reshape) if isinstance(node.op, Pointwise) else own


def input_itself(node: Node, sweep: Sweep) -> Value | None:
    return node.inputs[0]


def input_if_same_type(node: Node, sweep: Sweep) -> Value | None:
    (x,) = node.inputs
    same = (x.type.shape, x.type.dtype) == (node.output.type.shape, node.output.type.dtype)
    return x if same else None


def _of_same_op(node: Node, sweep: Sweep) -> Node | None:
    """The producer of the only input, if it has the same op class."""
    producer = sweep.producer(node.inputs[0])
    return producer if producer is not None and producer.op.name == node.op.name else None


def twice_negative(node: Node, sweep: Sweep) -> Value | None:
    inner = _of_same_op(node, sweep)
    return None if inner is None else inner.inputs[0]


def neutral(element: float, places: tuple[int, ...]) -> Rule:
    """x op element is x, exactly; `places` are the inputs where the element may stand. A negative
    zero is not the element 0: -0.0 - -0.0 is 0.0."""

    def neutral_element(node: Node, sweep: Sweep) -> Value | None:
        for place in places:
            producer = sweep.producer(node.inputs[place])
            if producer is None or not isinstance(producer.op, Constant):
                continue
            other = node.inputs[1 - place]
            array = widened(producer.op.array)
            exact = np.all((array == element) & ~np.signbit(array))
            if exact and other.type.shape == node.output.type.shape:
                return other
        return None

    return neutral_element


def permute_twice(node: Node, sweep: Sweep) -> Value | None:
    inner = _of_same_op(node, sweep)
    if inner is None:
        return None
    axes = tuple(inner.op.attributes["axes"][a] for a in node.op.attributes["axes"])
    return sweep.emit(REGISTRY["permute_dims"](axes), inner.inputs, node)  # type: ignore[call-arg]


def permute_nothing(node: Node, sweep: Sweep) -> Value | None:
    axes = node.op.attributes["axes"]
    return node.inputs[0] if axes == tuple(range(len(axes))) else None


def permute_of_matmul(node: Node, sweep: Sweep) -> Value | None:
    """(A B)^T = B^T A^T, so that the product itself is written where it is wanted; where it is
    wanted as A B too, that would be a second product."""
    inner = sweep.producer(node.inputs[0])
    axes = node.op.attributes["axes"]
    rank = len(axes)
    if inner is None or inner.op.name != "matmul" or rank < 2 or inner.output in sweep.shared:
        return None
    if axes != (*range(rank - 2), rank - 1, rank - 2):
        return None
    a, b = inner.inputs
    if a.type.rank != rank or b.type.rank != rank:
        return None
    permute = REGISTRY["permute_dims"](axes)  # type: ignore[call-arg]
    flipped = tuple(sweep.emit(permute, (v,), inner) for v in (b, a))
    return sweep.emit(inner.op, flipped, inner)


def permute_of_outer(node: Node, sweep: Sweep) -> Value | None:
    """The operands permuted in place of what an op makes of them by broadcasting each, as the
    transposed gradient of one sample's weight: that is written once, where it is wanted."""
    inner = sweep.producer(node.inputs[0])
    if inner is None or not isinstance(inner.op, Pointwise) or inner.output in sweep.shared:
        return None
    whole = inner.output.type
    wide = [v for v in inner.inputs if v.type.rank]
    if not wide or any(v.type.rank != whole.rank or v.type.size >= whole.size for v in wide):
        return None
    moved = {v: sweep.emit(node.op, (v,), node) for v in dict.fromkeys(wide)}
    return sweep.emit(inner.op, tuple(moved.get(v, v) for v in inner.inputs), inner)


def reshape_twice(node: Node, sweep: Sweep) -> Value | None:
    inner = _of_same_op(node, sweep)
    if inner is None:
        return None
    (x,) = inner.inputs
    return x if x.type == node.output.type else sweep.emit(node.op, (x,), node)


def sum_of_nothing(node: Node, sweep: Sweep) -> Value | None:
    """A reduction over axes of extent 1 moves nothing."""
    (x,) = node.inputs
    if any(x.type.shape[a] != 1 for a in node.op.attributes["axes"]):
        return None
    if x.type.shape == node.output.type.shape:
        return x
    return sweep.emit(REGISTRY["reshape"](node.output.type.shape), (x,), node)  # type: ignore[call-arg]


def without_broadcasts(node: Node, sweep: Sweep) -> Value | None:
    """Pointwise ops broadcast by themselves: read what a broadcast_to read."""
    inputs = []
    for value in node.inputs:
        producer = sweep.producer(value)
        is_broadcast = producer is not None and producer.op.name == "broadcast_to"
        inputs.append(producer.inputs[0] if producer is not None and is_broadcast else value)
    if tuple(inputs) == node.inputs:
        return None
    shape = np.broadcast_shapes(*(v.type.shape for v in inputs))
    if shape != node.output.type.shape:
        # One operand must keep the shape; broadcast the result instead, which is less work.
        small = sweep.emit(node.op, tuple(inputs), node)
        return sweep.emit(REGISTRY["broadcast_to"](node.output.type.shape), (small,), node)  # type: ignore[call-arg]
    return sweep.emit(node.op, tuple(inputs), node)


RULES: dict[str, tuple[Rule, ...]] = {
    "stop_gradient": (input_itself,),
    "cast": (input_if_same_type,),
    "broadcast_to": (input_if_same_type,),
    "negative": (twice_negative,),
    "multiply": (neutral(1, (0, 1)),),
    "divide": (neutral(1, (1,)),),
    "add": (concat_of_padded,),
    "concat": (concat_of_reshapes,),
    "subtract": (neutral(0, (1,)),),
    "permute_dims": (permute_nothing, permute_twice, permute_of_matmul, permute_of_outer),
    "reshape": (input_if_same_type, reshape_twice, reshape_of_slice),
    "sum": (sum_of_nothing,),
    "prod": (sum_of_nothing,),
    "max": (sum_of_nothing,),
    "min": (sum_of_nothing,),
}
