"""The places of an output that one index of a kernel's domain computes: one, or one per section."""

from __future__ import annotations

from dataclasses import dataclass

from graphc.ir import Graph, Value
from graphc.ir.sections import Sections, sections_joined
from graphc.kernels.program.access import AffineIndex


@dataclass(frozen=True)
class Piece:
    """`value` at `source`, a place of its own, is the output's element at `target`."""

    value: Value
    source: tuple[AffineIndex, ...]
    target: tuple[AffineIndex, ...]


def space(body: Graph, output: Value) -> tuple[int, ...]:
    """The shape over which `output` is best computed: of a section where it is a concat."""
    shape, joined = output.type.shape, _joined(body, output)
    return joined.shape(shape) if joined else shape


def pieces(
    body: Graph,
    output: Value,
    here: tuple[AffineIndex, ...],
    shape: tuple[int, ...],
    sections: Sections | None = None,
) -> list[Piece]:
    """What to store of `output` at the index `here` of a value of `shape`: its element, those of
    sections that a concat joins, or, of a value that has them too, those of `sections`."""
    joined = _joined(body, output)
    if joined and joined.shape(output.type.shape) == shape:
        parts = body.producers[output].inputs
        return [Piece(v, here, within(here, joined, i)) for i, v in enumerate(parts)]
    if sections is None or output.type.shape == shape:
        return [Piece(output, here, here)]
    return [Piece(output, at, at) for at in every_section(here, sections)]


def element_at(output: Value, places: tuple[AffineIndex, ...]) -> tuple[Value, Piece]:
    """The element of `output` at `places`, to store there."""
    return output, Piece(output, places, places)


def every_section(
    places: tuple[AffineIndex, ...], sections: Sections
) -> list[tuple[AffineIndex, ...]]:
    """The places, in a value with sections, of the index `places` of a section."""
    return [within(places, sections, number) for number in range(sections.count)]


def within(
    places: tuple[AffineIndex, ...], sections: Sections, number: int
) -> tuple[AffineIndex, ...]:
    """The place in the whole value of the index `places` of one of its sections."""
    old = places[sections.axis]
    moved = AffineIndex(
        old.coefficients, old.offset + number * sections.size * old.divisor, old.divisor
    )
    return (*places[: sections.axis], moved, *places[sections.axis + 1 :])


def _joined(body: Graph, output: Value) -> Sections | None:
    producer = body.producers.get(output)
    return sections_joined(producer) if producer else None
