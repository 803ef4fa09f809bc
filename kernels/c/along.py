"""Running results and sorts in plain C: the elements of a row are put in an array, and loops behind
it find what they come to."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from graphc.ir import FLOATS
from graphc.kernels.c.reductions import WORDS
from graphc.kernels.loops.language import Step, walk
from graphc.kernels.program.body.along import Along
from graphc.kernels.program.body.literals import literal
from graphc.ops.pointwise.logic import C_TYPES, REGISTER_TYPES
from graphc.ops.prefix import Prefix

State = tuple[str, str]
"""The C texts of a value and of its place along the axis."""


@dataclass(frozen=True)
class Row:
    """The row of `extent` elements that `along` runs along, in the direction of the op. Runs begin
    at whole registers if the nest has `registers`, else with the pieces."""

    along: Along
    extent: int
    registers: bool

    @property
    def count(self) -> int:
        """How many elements have results."""
        return self.extent if self.along.count is None else self.along.count

    def begin(self) -> Iterator[str]:
        """The arrays of elements and of their places; a sort has room for as many places again."""
        size = max(self.extent, 1)
        yield f"static {REGISTER_TYPES[self._dtype]} {self._name}[{size}];"
        if not isinstance(self.along.op, Prefix):
            yield f"static int32_t {self._name}_places[{2 * size}];"
        elif self._picks:
            yield f"static int32_t {self._name}_places[{size}];"

    def add(self, index: str) -> Iterator[str]:
        """The statements that take the element at an index."""
        value, place = self._at(self._turned(index))
        yield f"{value} = {self.along.operands[0]};"
        if self._picks:
            yield f"{place} = (int32_t){index};"

    def end(self) -> Iterator[str]:
        """The statements that put the elements in order, or join each with those before it."""
        op, name = self.along.op, self._name
        if isinstance(op, Prefix):
            yield from self._joined()
            return
        places, flag = f"{name}_places", str(op.descending).lower()
        yield f"sort({name}, {places}, {places} + {self.extent}, {self.extent}, {flag});"

    def results(self, index: str, after: Iterable[Step]) -> Iterator[str]:
        """The definitions of the results at an index, of those that steps `after` it use."""
        value, place = self._at(self._turned(index))
        if not isinstance(self.along.op, Prefix):
            value = f"{self._name}[{place}]"
        used = {name for s, _ in walk(after) for name in s.operands}
        for (name, dtype), text in zip(self.along.results, (value, place), strict=False):
            if name in used:
                yield f"const {REGISTER_TYPES[dtype]} {name} = {text};"

    def _joined(self) -> Iterator[str]:
        """Joins runs of elements by doubling distances, runs one after another, and pieces."""
        by, pieces, extent, shift = self.along.by, self.along.pieces, self.extent, 0
        ends = [f"{extent} * {piece} / {pieces}" for piece in ("piece", "(piece + 1)")]
        if self.registers:
            steps = -(-extent // by)
            shift = steps * by - extent if self._reverse else 0
            ends = [f"{steps} * {piece} / {pieces} * {by}" for piece in ("piece", "(piece + 1)")]
            ends = [f"{end} - {shift}" if shift else end for end in ends]
        one, last, earlier = self._at("k"), self._at("stop - 1"), self._at("k - distance")
        ahead, carry, total = (self._state(name) for name in ("ahead", "carry", "total"))
        assert isinstance(self.along.op, Prefix)
        neutral = literal(self.along.op.combine.neutral_of(self._dtype), self._dtype), "0"
        yield from self._define(ahead, neutral)
        yield f"for (int64_t piece = 0; piece < {pieces}; piece++) {{"
        yield f"  const int64_t begin = {ends[0]}, end = least({ends[1]}, {extent});"
        yield from self._define(carry, neutral if self.registers else ahead)
        yield from self._define(total, neutral)
        yield f"  for (int64_t run = begin; run < end; run += {by}) {{"
        yield f"    const int64_t first = most(run, 0), stop = least(run + {by}, end);"
        yield f"    for (int64_t distance = 1; distance < {by}; distance *= 2)"
        yield "      for (int64_t k = stop - 1; k >= first + distance; k--)"
        yield f"        {self._join(earlier, one, one)}"
        yield f"    {self._join(total, last, total)}"
        yield f"    for (int64_t k = first; k < stop; k++) {self._join(carry, one, one)}"
        yield f"    {self._assign(carry, last)}"
        yield "  }"
        if self.registers:
            yield f"  for (int64_t k = most(begin, 0); k < end; k++) {self._join(ahead, one, one)}"
        yield f"  {self._join(ahead, total, ahead)}"
        yield "}"

    @property
    def _name(self) -> str:
        return f"{self.along.results[0].name}row"

    @property
    def _dtype(self) -> str:
        return self.along.results[0].dtype

    @property
    def _reverse(self) -> bool:
        return isinstance(self.along.op, Prefix) and self.along.op.reverse

    @property
    def _picks(self) -> bool:
        """Whether a running result has the place of what it picked."""
        return isinstance(self.along.op, Prefix) and bool(self.along.op.combine.picks)

    def _turned(self, index: str) -> str:
        """The number of the element at an index, in the direction of the op."""
        return f"{self.extent - 1} - {index}" if self._reverse else index

    def _at(self, number: str) -> State:
        return f"{self._name}[{number}]", f"{self._name}_places[{number}]"

    def _state(self, name: str) -> State:
        return f"{self._name}_{name}", f"{self._name}_{name}_place"

    def _define(self, state: State, start: State) -> Iterator[str]:
        yield f"{REGISTER_TYPES[self._dtype]} {state[0]} = {start[0]};"
        if self._picks:
            yield f"int32_t {state[1]} = {start[1]};"

    def _assign(self, target: State, source: State) -> str:
        places = f" {target[1]} = {source[1]};" if self._picks else ""
        return (
            f"{{ {target[0]} = {source[0]};{places} }}" if places else f"{target[0]} = {source[0]};"
        )

    def _join(self, a: State, b: State, target: State) -> str:
        """The statement that makes `target`, which is a or b, of a's elements and then b's."""
        assert isinstance(self.along.op, Prefix)
        combine, word = self.along.op.combine, WORDS.get(self._dtype)
        known = {"a": a[0], "b": b[0], "zero": literal(0, self._dtype)}
        if combine.picks:
            later = combine.picks.format(**known)
            if self._dtype in FLOATS:
                later += f" || {b[0]} != {b[0]}"
            if target == a:
                return f"if ({later}) {self._assign(a, b)}"
            return f"if (!({later})) {self._assign(b, a)}"
        if word:
            known = {name: f"({word}){text}" for name, text in known.items()}
        text = combine.expression.format(**known)
        return f"{target[0]} = {f'({C_TYPES[self._dtype]})({text})' if word else text};"
