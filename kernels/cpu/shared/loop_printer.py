"""C++ for a CPU from loop nests: over chunks of registers, along an axis, and written out."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from graphc.kernels.cpu.shared.kernel_source import domain_text
from graphc.kernels.loops.along import along_loops
from graphc.kernels.loops.language import At, Loop, Nest, Step, Unless, walk
from graphc.kernels.loops.places import with_arguments
from graphc.kernels.loops.verify import verify_nest
from graphc.kernels.program.access import AffineAccess, Domain
from graphc.kernels.program.body.literals import literal
from graphc.kernels.program.body.statement import (
    Address,
    Argument,
    Compute,
    Literal,
    Load,
    Statement,
    Store,
)
from graphc.ops.pointwise.logic import C_TYPES

INLINE = " __attribute__((always_inline))"


def chunk_lines(nest: Nest, domain: str) -> Iterator[str]:
    """The statements that play units `begin` to `end` of a nest of chunk loops; a unit is a
    register. `domain` is the struct of the extents, or empty for one axis of any extent, whose
    units are elements.

    The header's `pointwise` calls the body of the outer loops with their indices `i`, with a run
    `first` to `stop` of the last one's, and with the number `N` of lanes that live."""
    rank = nest.domain.rank
    indices = [*(f"i[{d}]" for d in range(rank - 1)), "j"]
    for step in nest.body:
        if isinstance(step, Statement):
            yield step.text(indices, "W")
            continue
        outer, inner = _levels(step)
        call = f"pointwise<{domain}>" if domain else "pointwise"
        yield f"{call}(begin, end, [=]<int N>(const long* i, long first, long stop){INLINE} {{"
        yield from (f"  {s.text(indices, 'N')}" for s in outer if isinstance(s, Statement))
        advance = "N" if not domain else "W" if nest.domain.lane == rank - 1 else "1"
        yield f"  for (long j = first; j < stop; j += {advance}) {{"
        yield from (f"    {s.text(indices, 'N')}" for s in inner.body if isinstance(s, Statement))
        yield "  }"
        yield "});"


def _levels(step: Step) -> tuple[tuple[Step, ...], Loop]:
    """What the body of the outer chunk loop begins with, and the loop over the last axis."""
    assert isinstance(step, Loop) and step.kind == "chunk", f"no chunk loop: {step}"
    last = step.body[-1] if step.body else None
    return (step.body[:-1], last) if isinstance(last, Loop) else ((), step)


@dataclass(frozen=True)
class WrittenLoops:
    """Prints a nest loop by loop, of single elements. A worker has units `begin` to `end` of the
    chunk loops, which go over the same axes."""

    nest: Nest

    def __post_init__(self) -> None:
        verify_nest(self.nest)

    @property
    def units(self) -> int:
        """Iterations of the chunk loops."""
        around = (loop for _, loops in walk(self.nest.body) for loop in loops)
        loop = next(x for x in around if x.kind == "chunk" and not isinstance(x, At))
        return math.prod(self._counts(loop))

    def lines(self) -> list[str]:
        """The statements of a worker."""
        return [*self._steps(self.nest.body)]

    def _counts(self, loop: Loop) -> list[int]:
        """Iterations along each axis of a loop."""
        *outer, last = (self.nest.domain.extents[d] for d in loop.axes)
        return [*outer, -(-last // loop.step)]

    def _steps(self, body: Sequence[Step]) -> Iterator[str]:
        for step in body:
            if isinstance(step, Unless):
                yield from _block([f"if ({step.source} != {step.target})"], self._steps(step.body))
            elif isinstance(step, Loop) and self._has_units(step):
                yield from _block(["for (long unit = begin; unit < end; unit++)"], self._unit(step))
            elif isinstance(step, Loop):
                yield from _block(self._heads(step), self._steps(step.body))
            else:
                assert isinstance(step, Statement), f"not for a CPU: {step}"
                yield scalar_text(step, self._names)

    def _has_units(self, loop: Loop) -> bool:
        return loop.kind == "chunk" and (len(loop.axes) > 1 or loop.step > 1)

    def _heads(self, loop: Loop) -> list[str]:
        """A line for each axis, or the condition of an `At`, which defines its index."""
        assert loop.kind in ("chunk", "serial", "lane"), f"not for a CPU: {loop}"
        extents, last = self.nest.domain.extents, loop.axes[-1]
        first, stop = ("begin", "end") if loop.kind == "chunk" else ("0", str(extents[last]))
        if isinstance(loop, At):
            inside = f"i{last} >= {first} && i{last} < {stop}"
            return [f"if (const long i{last} = {loop.register}; {inside})"]
        if loop.kind == "lane":
            first, stop = f"run{last}", f"least(run{last} + {loop.step}, {extents[last]})"
        bounds = [*((d, "0", str(extents[d])) for d in loop.axes[:-1]), (last, first, stop)]
        return [f"for (long i{d} = {low}; i{d} < {high}; i{d}++)" for d, low, high in bounds]

    def _unit(self, loop: Loop) -> Iterator[str]:
        """The indices of a unit, of the last axis the first of its run, and the body, with pointers
        to the rows of memory of these indices."""
        counts, outer = self._counts(loop), loop.axes[: -1 if loop.step > 1 else None]
        for place, (axis, count) in enumerate(zip(loop.axes, counts, strict=True)):
            inner, run = math.prod(counts[place + 1 :]), axis not in outer
            index = f"unit{f' / {inner}' * (inner > 1)} % {count}{f' * {loop.step}' * run}"
            yield f"const long {'run' if run else 'i'}{axis} = {index};"
        rows: dict[str, AffineAccess] = {}

        def in_row(argument: Argument) -> Argument:
            if not isinstance(argument, Address) or argument.access is None:
                return argument
            access, others = argument.access, [*{*range(self.nest.domain.rank)}.difference(outer)]
            first = replace(access, strides=_only(access.strides, outer), offset=0)
            if rows.setdefault(argument.pointer, first) != first:
                return argument
            rest = replace(access, strides=_only(access.strides, others))
            return Address(f"{argument.pointer}_row", rest)

        body = with_arguments(loop.body, in_row)
        for pointer, first in rows.items():
            yield f"const auto {pointer}_row = {pointer} + {first.text(self._names)};"
        yield from self._steps(body)

    @property
    def _names(self) -> list[str]:
        return [f"i{d}" for d in range(self.nest.domain.rank)]


def _only(strides: Sequence[int], axes: Sequence[int]) -> tuple[int, ...]:
    """The strides along some axes."""
    return tuple(stride * (axis in axes) for axis, stride in enumerate(strides))


def _block(heads: Sequence[str], lines: Iterable[str]) -> Iterator[str]:
    yield from (*heads[:-1], f"{heads[-1]} {{")
    yield from (*(f"  {line}" for line in lines), "}")


def scalar_text(statement: Statement, indices: Sequence[str]) -> str:
    """A load, a store or a formula of single elements."""
    if isinstance(statement, Store):
        place, value = statement.arguments
        return f"{_element(place, indices)} = {value};"
    ((name, dtype),) = statement.results
    if isinstance(statement, Load):
        assert statement.plain, f"a load under a condition: {statement}"
        text = _element(statement.arguments[0], indices)
    else:
        assert isinstance(statement, Compute), f"a call: {statement}"
        operands = [
            literal(a.value, dtype) if isinstance(a, Literal) else a for a in statement.arguments
        ]
        text = statement.formula.scalar_expression(*map(str, operands))
    return f"const {C_TYPES[dtype]} {name} = {text};"


def _element(argument: object, indices: Sequence[str]) -> str:
    assert isinstance(argument, Address) and argument.access is not None
    return f"{argument.pointer}[{argument.access.text(indices)}]"


def rows_text(nest: Nest) -> str:
    """The domain `Kept` of the rows of a nest along an axis."""
    domain, kept = nest.domain, along_loops(nest).rows.axes
    lane = len(kept) - 1 if domain.lane in kept else -1
    extents = tuple(domain.extents[d] for d in kept) or (1,)
    return domain_text("Kept", Domain(extents, lane, domain.width))


def along_lines(nest: Nest, state: str) -> Iterator[str]:
    """The last two arguments of a call of prefix.h or sort.h, which has the loops: functors of the
    row's indices `i`, its last index `r` and the index `j` along the axis. One returns an element,
    the other stores the results, a `state`."""
    loops, names = along_loops(nest), ["j"] * nest.domain.rank
    for number, axis in enumerate(loops.rows.axes):
        names[axis] = "r" if axis == loops.rows.axes[-1] else f"i[{number}]"
    yield f"  [=]<int N>(const long* i, long r, long j){INLINE} {{"
    yield from (f"    {line}" for line in loops.read(names, "N"))
    yield f"  }}, [=]<int N>(const long* i, long r, long j, const {state}& state){INLINE} {{"
    yield from (f"    {line}" for line in loops.write(names, "N"))
    yield "  });"
