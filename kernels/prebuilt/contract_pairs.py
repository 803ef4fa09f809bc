"""Which products of a contraction exist, as a description says it: by pairs of axes, of which one
is kept and one is summed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from graphc.kernels.prebuilt.contract_sides import Sides
from graphc.kernels.program.nest import Border, Nest, Quotient, Read
from graphc.ops.base import Array


@dataclass(frozen=True)
class Pair:
    """A kept and a summed axis that meet in borders of an operand."""

    kept: int | None
    """The kept axis; None if the borders depend on the summed one alone."""
    summed: int | None
    """The summed axis; None if the borders depend on the kept one alone."""
    of_x: bool
    """Whether the operand is X."""
    class_of: Array
    """u8 [extent of kept]: which indices have the same products."""
    exists: Array
    """u8 [classes, extent of summed]: which products those are."""
    term: Array | None
    """i32 [classes, extent of summed]: what a divided address adds to the offset of a product."""
    line: Array | None
    """i32 [extent of kept]: what it adds to the offset of a line."""


def pairs_of(nest: Nest, sides: Sides, lanes_summed: bool) -> list[Pair] | None:
    """The pairs of both operands; None where a border goes through a register, or through more
    axes."""
    found: list[Pair] = []
    for read in (sides.x, sides.y):
        meeting: dict[tuple[int | None, int | None], list[Border]] = {}
        for border in (*read.borders, *(q.border for q in read.quotients)):
            axes = [a for a in border.axes if nest.axes[a].extent > 1]
            kept, summed = ([a for a in axes if nest.axes[a].kept is k] for k in (True, False))
            if len(kept) > 1 or len(summed) > 1:
                return None
            key = (kept[0] if kept else None, summed[0] if summed else None)
            whole = (*sides.batches, *(() if lanes_summed else sides.columns[-1:]))
            if key[0] is not None and key[0] in whole:
                return None
            meeting.setdefault(key, []).append(border)
        for (kept_axis, summed_axis), borders in meeting.items():
            quotients = [q for q in read.quotients if q.border in borders]
            pair = _pair(nest, read, kept_axis, summed_axis, borders, quotients, read is sides.x)
            if pair is None:
                return None
            found.append(pair)
    return found


def _pair(
    nest: Nest,
    read: Read,
    kept: int | None,
    summed: int | None,
    borders: list[Border],
    quotients: list[Quotient],
    of_x: bool,
) -> Pair | None:
    a = np.arange(1 if kept is None else nest.axes[kept].extent)[:, None]
    z = np.arange(1 if summed is None else nest.axes[summed].extent)[None, :]

    def value(border: Border) -> Array:
        of_a = 0 if kept is None else border.coefficients[kept]
        of_z = 0 if summed is None else border.coefficients[summed]
        return np.asarray(of_a * a + of_z * z + border.offset)

    inside = np.ones((a.size, z.size), bool)
    for border in borders:
        v = value(border)
        inside &= (v % border.divisor == 0) & (v >= 0) & (v // border.divisor < border.extent)
    exists, first, class_of = np.unique(inside, axis=0, return_index=True, return_inverse=True)
    class_of = class_of.reshape(-1)
    if len(exists) > 255:
        return None
    term = line = None
    if quotients:
        term = np.zeros(exists.shape, np.int32)
        line = np.zeros(a.size, np.int32)
        for quotient in quotients:
            border = quotient.border
            of_a = 0 if kept is None else border.coefficients[kept]
            term += quotient.stride * (value(border)[first] // border.divisor)
            apart = np.asarray(of_a * (np.arange(a.size) - first[class_of]))
            live = np.asarray(exists.any(axis=1))[class_of]
            assert not np.any(apart[live] % border.divisor)
            line += quotient.stride * (apart // border.divisor)
    return Pair(kept, summed, of_x, class_of.astype(np.uint8), exists.astype(np.uint8), term, line)
