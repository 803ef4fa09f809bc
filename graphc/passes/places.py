"""Whether a node reads a value where it makes its own: what decides if both fit into one kernel."""

from __future__ import annotations

from collections.abc import Mapping, Set

from graphc.ir import Node, Value
from graphc.ops.base import Pointwise, Reduction, View
from graphc.passes.groups import is_free


def reads_elsewhere(node: Node, members: Set[Value], producers: Mapping[Value, Node]) -> bool:
    """Whether the node reads one of `members` at another index than its own."""
    direct = isinstance(node.op, (Pointwise, Reduction))
    for value in node.inputs:
        source = value
        while True:
            same_place = direct and through_unit_reshapes(value, producers) == source
            if source in members and not same_place:
                return True
            producer = producers.get(source)
            if producer is None or not isinstance(producer.op, View) or source in members:
                break
            source = producer.inputs[0]
    return False


def through_unit_reshapes(value: Value, producers: Mapping[Value, Node]) -> Value:
    """Where reshapes that only add or drop axes of extent 1 lead back to."""
    producer = producers.get(value)
    while producer is not None and producer.op.name == "reshape" and is_free(producer):
        value = producer.inputs[0]
        producer = producers.get(value)
    return value
