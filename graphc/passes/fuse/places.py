"""Helpers of fusion: which elements a node reads, and how large kernels get."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from graphc.ir import Node, Value
from graphc.ir.sections import sections_joined

OF_RULE = "update rules stay among themselves, so that one launch updates all parameters"
ELSEWHERE = "it reads values of that kernel at other places, through a view, a window or a gather"
CIRCLE = (
    "a third kernel needs the one and is needed by the other: they would wait for each other; or "
    "they belong to two micro-batches"
)
LARGE = "one kernel of both would be more than a compiler builds in a second or so"
LARGEST = 1500
"""The size of a kernel's body, from where on nothing is merged into it: 8 sines. What a cut stores
and reads again takes some per cent of the time that so many take."""
LEAST, MOST = 8, 200
"""What a node counts at least and at most: a line of text, and a sine."""
MANY = 8
"""Values that are joined: from more on each counts `MOST`, since each has a branch of its own."""
TAKEN = "the reader is in the kernel of another contraction, and a kernel holds one"
RESHAPED = (
    "a reshape gives other indices: pointwise ops are moved in front of one that follows a "
    "contraction, where their other operands can be reshaped too"
)
NO_RULE = "no fusion joins a {} kernel with a {} kernel that makes what it reads"


def size(node: Node) -> int:
    """Return what the node adds to the size of a kernel, which `LARGEST` limits."""
    if len(node.inputs) > MANY:
        return MOST * len(node.inputs)
    if node.op.draws and node.op.attributes.get("part"):
        return LEAST  # it is computed with the first part
    return min(max(LEAST, getattr(node.op, "operations", None) or 0), MOST)


def is_over(node: Node, shape: tuple[int, ...]) -> bool:
    """Return whether the node computes each element of this shape from its own index."""
    return node.op.pointwise and node.output.type.shape == shape


def misfit(node: Node, shape: tuple[int, ...]) -> str:
    """Return why a node does not compute elements of this shape one by one, or ""."""
    op = node.op
    if is_over(node, shape):
        return ""
    if op.contracts:
        return "a contraction reads each element of its operands many times, so they are in memory"
    if op.reduced_axes is not None:
        return "a reduction needs all elements of its rows, an epilogue has one tile of them"
    if op.own_template:
        return f"{op.name} has a template of its own, which reads what lies in memory"
    if op.pointwise:
        return "it has another shape, so its elements are not those of the other one by one"
    return f"{op.name} reads elements at other places than its own, so they are in memory"


def read_elsewhere(node: Node, producers: Mapping[Value, Node]) -> set[Value]:
    """Return the values that the node reads, also through views, at other indices than its own."""
    direct = node.op.in_registers or sections_joined(node) is not None
    found = set()
    for value in node.inputs:
        own = through_unit_reshapes(value, producers) if direct else None
        source: Value | None = value
        while source is not None:
            if source != own:
                found.add(source)
            producer = producers.get(source)
            through = producer is not None and (producer.op.moves or producer.op.converts_reads)
            source = producer.inputs[0] if producer is not None and through else None
    return found


def through_unit_reshapes(value: Value, producers: Mapping[Value, Node]) -> Value:
    """Follow views of axes of size 1, and widening, back to their source."""
    producer = producers.get(value)
    while producer is not None and _keeps_order(producer):
        value = producer.inputs[0]
        producer = producers.get(value)
    return value


def _keeps_order(node: Node) -> bool:
    """Return whether a free node has the elements of its only input in their order."""
    if len(node.inputs) != 1 or not node.is_free:
        return False
    ((axes,),), shape = node.op.axis_map(node.inputs[0].type), node.output.type.shape
    wide = [d for d, n in enumerate(shape) if n != 1]
    return [d for d, n in zip(axes, node.inputs[0].type.shape, strict=True) if n != 1] == wide


def stored(value: Value, producers: Mapping[Value, Node]) -> Value:
    """Return what `value` widens, or itself."""
    producer = producers.get(value)
    return producer.inputs[0] if producer and producer.op.converts_reads else value


def readers(value: Value, consumers: Mapping[Value, Sequence[Node]]) -> Iterator[Node]:
    """Return the nodes that read `value` or what widens it."""
    for node in consumers.get(value, ()):
        if node.op.converts_reads:
            yield from consumers.get(node.output, ())
        else:
            yield node
