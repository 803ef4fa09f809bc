"""Sections: an axis cut into equal runs, each read or written whole, as a recurrent cell does with
its gates. One kernel computes the sections of an element together: a value is read by slices that
are sections of it, or made by a concat of sections.
"""

from __future__ import annotations

from graphc.ir import Graph, Node, Value
from graphc.ir.affine import Sections as Sections

MOST_SECTIONS = 8
"""More would not fit the registers of any tile."""


def section_read(node: Node) -> tuple[Sections, int] | None:
    """The sections of which a slice reads one, and its number; None for any other node."""
    return node.op.section(node.inputs[0].type) if node.op.moves else None


def sections_joined(node: Node) -> Sections | None:
    """The sections that a concat writes; None for any other node."""
    few = 2 <= len(node.inputs) <= MOST_SECTIONS
    return node.op.sections(*(v.type for v in node.inputs)) if few else None


def sections_of_sums(body: Graph) -> Sections | None:
    """The sections in which a body's epilogue reads what its contraction makes; None if it reads
    that whole."""
    made: set[Value] = set()
    for node in body.nodes:
        if node.op.contracts:
            made.update(node.outputs)
        elif any(v in made for v in node.inputs):
            if found := section_read(node):
                return found[0]
            if not node.op.moves:
                made.update(node.outputs)
    return None
