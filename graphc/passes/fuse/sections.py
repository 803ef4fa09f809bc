"""Sections: an axis cut into equal runs, each read or written whole, as a recurrent cell does with
its gates. One kernel computes the sections of an element together: a value is read by slices that
are sections of it, or made by a concat of sections.
"""

from __future__ import annotations

from dataclasses import dataclass

from graphc.ir import Graph, Node, Value
from graphc.ops.base import Contraction, View
from graphc.ops.join import Concat
from graphc.ops.view import Slice

MOST_SECTIONS = 8
"""More would not fit the registers of any tile."""


@dataclass(frozen=True)
class Sections:
    """`count` runs of `size` elements along `axis`."""

    axis: int
    count: int
    size: int

    def shape(self, whole: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of one section of a value of shape `whole`."""
        return (*whole[: self.axis], self.size, *whole[self.axis + 1 :])


def section_read(node: Node) -> tuple[Sections, int] | None:
    """The sections of which a slice reads one, and its number; None for any other node."""
    if not isinstance(node.op, Slice):
        return None
    source, shape = node.inputs[0].type.shape, node.output.type.shape
    axes = [d for d, n in enumerate(source) if shape[d] != n]
    if len(axes) != 1 or any(step != 1 for step in node.op.steps):
        return None
    (axis,) = axes
    size, start = shape[axis], node.op.starts[axis]
    if size == 0 or source[axis] % size or start % size:
        return None
    return Sections(axis, source[axis] // size, size), start // size


def sections_joined(node: Node) -> Sections | None:
    """The sections that a concat writes; None for any other node."""
    if not isinstance(node.op, Concat) or not 2 <= len(node.inputs) <= MOST_SECTIONS:
        return None
    shape = node.inputs[0].type.shape
    if 0 in shape or any(v.type.shape != shape for v in node.inputs):
        return None
    return Sections(node.op.axis, len(node.inputs), shape[node.op.axis])


def sections_of_sums(body: Graph) -> Sections | None:
    """The sections in which a body's epilogue reads what its contraction makes; None if it reads
    that whole."""
    made: set[Value] = set()
    for node in body.nodes:
        if isinstance(node.op, Contraction):
            made.update(node.outputs)
        elif any(v in made for v in node.inputs):
            if found := section_read(node):
                return found[0]
            if not isinstance(node.op, View):
                made.update(node.outputs)
    return None
