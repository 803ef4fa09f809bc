"""Whether a node reads a value where it makes its own: what decides if both fit into one kernel."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from graphc.ir import Node, Value
from graphc.ops.base import Pointwise, Reduction, View
from graphc.ops.widen import Widen
from graphc.passes.fuse.sections import sections_joined
from graphc.passes.rewriting.free import is_free


def read_elsewhere(node: Node, producers: Mapping[Value, Node]) -> set[Value]:
    """What the node reads, through views or not, at another index than its own."""
    direct = isinstance(node.op, (Pointwise, Reduction)) or sections_joined(node) is not None
    found = set()
    for value in node.inputs:
        own = through_unit_reshapes(value, producers) if direct else None
        source: Value | None = value
        while source is not None:
            if source != own:
                found.add(source)
            producer = producers.get(source)
            views = producer is not None and isinstance(producer.op, View | Widen)
            source = producer.inputs[0] if producer is not None and views else None
    return found


def through_unit_reshapes(value: Value, producers: Mapping[Value, Node]) -> Value:
    """Where views that only add, drop or move axes of extent 1, and widening, lead back to."""
    producer = producers.get(value)
    while producer is not None and _keeps_places(producer):
        value = producer.inputs[0]
        producer = producers.get(value)
    return value


def _keeps_places(node: Node) -> bool:
    """Whether a node that costs nothing has the elements of its only input in their order."""
    if len(node.inputs) != 1 or not is_free(node):
        return False
    ((axes,),), shape = node.op.axis_map(node.inputs[0].type), node.output.type.shape
    wide = [d for d, n in enumerate(shape) if n != 1]
    return [d for d, n in zip(axes, node.inputs[0].type.shape, strict=True) if n != 1] == wide


def stored(value: Value, producers: Mapping[Value, Node]) -> Value:
    """What `value` widens, or itself."""
    producer = producers.get(value)
    return producer.inputs[0] if producer and isinstance(producer.op, Widen) else value


def readers(value: Value, consumers: Mapping[Value, Sequence[Node]]) -> Iterator[Node]:
    """The nodes that read `value` or what widens it."""
    for node in consumers.get(value, ()):
        if isinstance(node.op, Widen):
            yield from consumers.get(node.output, ())
        else:
            yield node
