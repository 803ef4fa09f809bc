"""Sections: an axis divided into equal runs, such as the gates of a recurrent cell.

Each section is read or written whole, by slices of a value or by a concat. One kernel computes all
sections of an element together.
"""

from __future__ import annotations

from graphc.ir import Graph, Node, Value
from graphc.ir.affine import Sections as Sections

MOST_SECTIONS = 8
"""More would not fit the registers of any tile."""


def section_read(node: Node) -> tuple[Sections, int] | None:
    """Return the sections of which a slice reads one, and its number, or None."""
    return node.op.section(node.inputs[0].type) if node.op.moves else None


def sections_joined(node: Node) -> Sections | None:
    """Return the sections that a concat writes, or None."""
    few = 2 <= len(node.inputs) <= MOST_SECTIONS
    return node.op.sections(*(v.type for v in node.inputs)) if few else None


def sections_of_sums(body: Graph) -> Sections | None:
    """Return the sections in which a body's epilogue reads its contraction, or None."""
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
