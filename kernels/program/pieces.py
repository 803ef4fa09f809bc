"""The elements of an output that one index of a kernel's domain computes: one, or one per
section."""

from __future__ import annotations

from dataclasses import dataclass

from graphc.ir import Graph, Value
from graphc.ir.sections import Sections, sections_joined
from graphc.kernels.program.access import AffineIndex


@dataclass(frozen=True)
class Piece:
    """One element to store: `value` at the indices `source` is the output's element at `target`."""

    value: Value
    source: tuple[AffineIndex, ...]
    target: tuple[AffineIndex, ...]


def space(body: Graph, output: Value) -> tuple[int, ...]:
    """The shape of the domain in which to compute `output`: a section's shape if it is a concat."""
    shape, joined = output.type.shape, _joined(body, output)
    return joined.shape(shape) if joined else shape


def pieces(
    body: Graph,
    output: Value,
    indices: tuple[AffineIndex, ...],
    shape: tuple[int, ...],
    sections: Sections | None = None,
) -> list[Piece]:
    """What to store of `output` at `indices` of a value of `shape`.

    That is its element, those of the sections that a concat joins, or, for a value with `sections`,
    one per section.
    """
    joined = _joined(body, output)
    if joined and joined.shape(output.type.shape) == shape:
        parts = body.producers[output].inputs
        return [Piece(v, indices, index_in_whole(indices, joined, i)) for i, v in enumerate(parts)]
    if sections is None or output.type.shape == shape:
        return [Piece(output, indices, indices)]
    return [Piece(output, at, at) for at in every_section(indices, sections)]


def element_at(output: Value, indices: tuple[AffineIndex, ...]) -> tuple[Value, Piece]:
    """`output` and its element at `indices`, to be stored there."""
    return output, Piece(output, indices, indices)


def every_section(
    indices: tuple[AffineIndex, ...], sections: Sections
) -> list[tuple[AffineIndex, ...]]:
    """The indices in the whole value, one per section, of `indices` within a section."""
    return [index_in_whole(indices, sections, number) for number in range(sections.count)]


def index_in_whole(
    indices: tuple[AffineIndex, ...], sections: Sections, number: int
) -> tuple[AffineIndex, ...]:
    """The indices in the whole value of `indices` within section `number`."""
    old = indices[sections.axis]
    moved = AffineIndex(
        old.coefficients, old.offset + number * sections.size * old.divisor, old.divisor
    )
    return (*indices[: sections.axis], moved, *indices[sections.axis + 1 :])


def _joined(body: Graph, output: Value) -> Sections | None:
    """The sections of a concat that computes `output`; None if it is no such concat."""
    producer = body.producers.get(output)
    return sections_joined(producer) if producer else None
