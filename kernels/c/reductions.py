"""Reductions in plain C: partial results in front of the loops, which are joined behind them.

The loops go through the indices in order, as each lane of each part of a `SumOrder` does, so that
the indices of a term say which partial result takes it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from graphc.ir.sum_order import SumLoop, SumOrder
from graphc.kernels.loops.language import Loop, ending, walk
from graphc.kernels.program.access import Domain
from graphc.kernels.program.body.literals import literal
from graphc.kernels.program.body.reduce import JOINS, Reduce
from graphc.ops.pointwise.logic import C_TYPES, REGISTER_TYPES

WORDS = {"u8": "uint32_t", "i8": "uint32_t", "i32": "uint32_t", "i64": "uint64_t"}
"""The types in which integers wrap around."""


@dataclass(frozen=True)
class Partials:
    """The partial results of a reduction, of `dtype`: those of its `order`, for each index of the
    axes `inside` of its loops that it leaves."""

    reduce: Reduce
    domain: Domain
    inside: tuple[int, ...]
    dtype: str
    order: SumOrder

    def begin(self) -> Iterator[str]:
        """The statements in front of the loops. A row of partial results may be long."""
        size = self._count * math.prod(self.domain.extents[d] for d in self.inside)
        neutral = literal(self.reduce.identity, self.dtype)
        static = "static " if self.inside else ""
        yield f"{static}{REGISTER_TYPES[self.dtype]} {self._name}[{size}];"
        yield f"for (int64_t k = 0; k < {size}; k++) {self._name}[k] = {neutral};"

    def add(self, indices: Sequence[str]) -> str:
        """The statement that takes a term."""
        own = self.at(indices, self._place(indices))
        if self.reduce.combine != "products":
            return self._join(own, self.reduce.operand)
        one, other, *exists = self.reduce.operands
        text = f"{own} = fma({one}, {other}, {own});"
        if word := WORDS.get(self.dtype):
            text = self._join(own, f"(({word}){one} * ({word}){other})")
        return f"if ({exists[0]}) {text}" if exists else text

    def _place(self, indices: Sequence[str]) -> str:
        """The number of the partial result that takes a term."""
        if self._count == 1:
            return "0"
        first, lanes = self.order.loops[0], self.order.lanes
        steps = self.order.steps({str(d): n for d, n in enumerate(self.domain.extents)})
        step = f"{self._number(first.axes, indices)} / {first.step}"
        place = f"((({step}) + 1) * {self.order.parts} - 1) / {steps} * {lanes}"
        for loop in self.order.loops:
            lanes //= loop.lanes
            place += f" + {self._number(loop.axes, indices)} % {loop.lanes} * {lanes}"
        return place

    def end(self, indices: Sequence[str]) -> Iterator[str]:
        """The statements that join the partial results of an index in the first one."""
        if self._count == 1:
            return
        lanes, one = self.order.lanes, self.at(indices, "k")
        yield f"for (int64_t half = {lanes} / 2; half > 0; half /= 2)"
        yield f"  for (int64_t k = 0; k < {self._count}; k++)"
        yield f"    if (k % {lanes} < half) {self._join(one, self.at(indices, 'k + half'))}"
        yield f"for (int64_t k = {lanes}; k < {self._count}; k += {lanes})"
        yield f"  {self._join(self.at(indices), one)}"

    def at(self, indices: Sequence[str], place: str = "0") -> str:
        """A partial result of an index."""
        if not self.inside:
            return f"{self._name}[{place}]"
        index = self._number(map(str, self.inside), indices)
        return f"{self._name}[{index} * {self._count} + {place}]"

    @property
    def _name(self) -> str:
        return f"{'_'.join((*self.reduce.pointers, *(r.name for r in self.reduce.results)))}_parts"

    @property
    def _count(self) -> int:
        return self.order.lanes * self.order.parts

    def _number(self, axes: Iterable[str], indices: Sequence[str]) -> str:
        """The indices along some axes, counted as one."""
        found = "0"
        for axis in map(int, axes):
            found = f"({found} * {self.domain.extents[axis]} + {indices[axis]})"
        return found

    def _join(self, one: str, other: str) -> str:
        if self.dtype in WORDS and self.reduce.combine in ("sum", "prod", "products"):
            word, sign = WORDS[self.dtype], "*" if self.reduce.combine == "prod" else "+"
            return f"{one} = ({C_TYPES[self.dtype]})(({word}){one} {sign} ({word}){other});"
        return JOINS[self.reduce.combine].format(one, other)


def partials_behind(
    loop: Loop, around: tuple[Loop, ...], domain: Domain, dtypes: Mapping[str, str]
) -> Iterator[Partials]:
    """Those of the reductions whose results are known behind `loop`, with loops `around` it; memory
    has these `dtypes`."""
    for reduce, loops in walk((loop,), around):
        if isinstance(reduce, Reduce) and ending(reduce, loops) == len(around):
            axes = (d for x in loops[len(around) :] for d in x.axes if x.kind != "lane")
            inside = tuple(d for d in axes if d not in reduce.axes)
            dtype = dtypes[reduce.pointers[0]] if reduce.address else reduce.dtype
            order = reduce.order or SumOrder((SumLoop(tuple(map(str, reduce.axes))),))
            assert isinstance(order, SumOrder), f"an order of threads: {reduce}"
            yield Partials(reduce, domain, inside, dtype, order)
