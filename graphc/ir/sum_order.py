"""The order in which a sum adds its terms, which decides the last bits of a float result.

An order is a loop nest over the summed axes, written from the outermost loop:

    c/16,r,c,s        for blocks of 16 c: for r: for c in the block: for s
    n,p,q             for n: for p: for q
    3*n/16,p,q,n%16   16 lanes, of which lane l adds the terms with n = l modulo 16; three parts
    2.3%64            axes 2 and 3 as one, in 64 lanes
    n/16,p%4,n%16     64 lanes: lane 16 a + b adds those with p = a modulo 4, n = b modulo 16

Each lane adds its terms one after the other to a sum that begins at zero; a product is added by a
fused multiply-add. The lanes are added by halves: lane l and lane l + h for h = lanes / 2, ..., 1.
`parts` cut the steps of the first loop into equal contiguous ranges, part p of P from
p * steps // P to (p + 1) * steps // P; the parts are added in ascending order.

An order depends on nothing but extents and layouts: every kernel of a node, whatever its tile, its
vector registers and the threads that run it, adds in the order that the node states.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

from graphc.base.errors import GraphError
from graphc.base.target import LANES as LANES

_TEXT = re.compile(r"(?:(\d+)\*)?([^*]+)")
_LOOP = re.compile(r"([\w.]+?)(?:/(\d+))?(?:%(\d+))?")
Sum = TypeVar("Sum")


@dataclass(frozen=True)
class SumLoop:
    """A loop over `axes` as one, the last fastest, by `step`.

    An earlier loop over the same axes leaves it one of its own steps.
    """

    axes: tuple[str, ...]
    step: int = 1
    lanes: int = 1
    """Partial sums, a power of two, that take the terms of the loop in turn."""

    def __str__(self) -> str:
        step = f"/{self.step}" if self.step > 1 else ""
        lanes = f"%{self.lanes}" if self.lanes > 1 else ""
        return ".".join(self.axes) + step + lanes


@dataclass(frozen=True)
class SumOrder:
    """The order of a sum; see the module."""

    loops: tuple[SumLoop, ...]
    """The loops over the summed axes, the outermost first."""
    parts: int = 1
    """Ranges of the first loop that are summed apart."""

    @property
    def lanes(self) -> int:
        """Partial sums of a part: the product of the loops' lanes, those of the last fastest."""
        return math.prod(loop.lanes for loop in self.loops)

    def __str__(self) -> str:
        parts = f"{self.parts}*" if self.parts > 1 else ""
        return parts + ",".join(map(str, self.loops))

    @staticmethod
    def parse(text: str) -> SumOrder:
        """Return the order that `str` wrote as `text`, or raise GraphError.

        Example:
            >>> SumOrder.parse("3*n/16,p,q,n%16").lanes
            16
        """
        match = _TEXT.fullmatch(text)
        found = [_LOOP.fullmatch(part) for part in match[2].split(",")] if match else [None]
        if match is None or None in found:
            raise GraphError(f"expected the order of a sum, such as 'c/16,r,c,s', got {text!r}")
        loops = tuple(
            SumLoop(tuple(m[1].split(".")), int(m[2] or 1), int(m[3] or 1)) for m in found if m
        )
        return SumOrder(loops, int(match[1] or 1))

    def steps(self, extents: Mapping[str, int]) -> int:
        """Return the steps of the first loop."""
        first = self.loops[0]
        return -(-_extent(first, extents) // first.step)

    def terms(
        self, extents: Mapping[str, int], part: int = 0
    ) -> Iterator[tuple[int, dict[str, int]]]:
        """Yield the lane and the indices of each term of a part, in order."""
        steps = self.steps(extents)
        begin, end = part * steps // self.parts, (part + 1) * steps // self.parts
        for places in self._places(extents, 0, {}, begin, end):
            index, lane = dict[str, int](), 0
            for loop in self.loops:
                lane = lane * loop.lanes + places[loop.axes] % loop.lanes
            for axes, place in places.items():
                for axis in reversed(axes):
                    place, index[axis] = divmod(place, extents[axis])
            yield lane, index

    def _places(
        self,
        extents: Mapping[str, int],
        depth: int,
        around: dict[tuple[str, ...], int],
        begin: int,
        end: int,
    ) -> Iterator[dict[tuple[str, ...], int]]:
        """The places along each group of axes, in order."""
        if depth == len(self.loops):
            yield dict(around)
            return
        loop = self.loops[depth]
        extent, start = _extent(loop, extents), 0
        for earlier in self.loops[:depth]:
            if earlier.axes == loop.axes:
                start = around[loop.axes]
                extent = min(extent, start + earlier.step)
        steps = range(start, extent, loop.step)
        for place in steps[begin:end] if depth == 0 else steps:
            yield from self._places(extents, depth + 1, {**around, loop.axes: place}, 0, 0)

    def total(
        self,
        extents: Mapping[str, int],
        zero: Sum,
        add: Callable[[Sum, dict[str, int]], Sum],
        join: Callable[[Sum, Sum], Sum],
    ) -> Sum:
        """Return the sum: `add` adds the term at an index, `join` adds two partial sums."""
        parts = []
        for part in range(self.parts):
            lanes = [zero] * self.lanes
            for lane, index in self.terms(extents, part):
                lanes[lane] = add(lanes[lane], index)
            while len(lanes) > 1:
                half = len(lanes) // 2
                lanes = [join(x, y) for x, y in zip(lanes[:half], lanes[half:], strict=True)]
            parts.append(lanes[0])
        total = parts[0]
        for other in parts[1:]:
            total = join(total, other)
        return total


def _extent(loop: SumLoop, extents: Mapping[str, int]) -> int:
    return math.prod(extents[axis] for axis in loop.axes)
