"""C++ for a CPU from loop nests: chunk loops over registers, and loops written out."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from graphc.kernels.loops.language import At, Loop, Nest, Step, Unless, walk
from graphc.kernels.loops.verify import verify_nest
from graphc.kernels.program.body.literals import literal
from graphc.kernels.program.body.statement import Address, Compute, Literal, Load, Statement, Store
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
    """Prints a nest loop by loop. A worker has units `begin` to `end` of the chunk loops, which go
    over the same axes; statements outside of the loop over the lane axis have numbers, not
    registers."""

    nest: Nest

    def __post_init__(self) -> None:
        verify_nest(self.nest)

    def lines(self) -> list[str]:
        """The statements of a worker."""
        return [*self._steps(self.nest.body)]

    @property
    def units(self) -> int:
        """Iterations of the chunk loops."""
        around = (loop for _, loops in walk(self.nest.body) for loop in loops)
        loop = next(x for x in around if x.kind == "chunk" and not isinstance(x, At))
        return math.prod(self._counts(loop))

    def _counts(self, loop: Loop) -> list[int]:
        """Iterations along each axis of a loop."""
        *outer, last = (self.nest.domain.extents[d] for d in loop.axes)
        return [*outer, -(-last // loop.step)]

    def _steps(self, body: Sequence[Step], lanes: bool = False) -> Iterator[str]:
        names = [f"i{d}" for d in range(self.nest.domain.rank)]
        for step in body:
            if isinstance(step, Unless):
                yield from self._block([f"if ({step.source} != {step.target})"], step.body)
            elif isinstance(step, At):
                yield from self._block([self._at(step)], step.body)
            elif isinstance(step, Loop):
                yield from self._loop(step)
            elif isinstance(step, Statement):
                yield step.text(names, "N") if lanes else scalar_text(step, names)

    def _block(self, heads: Sequence[str], body: Sequence[Step]) -> Iterator[str]:
        *outer, head = heads
        yield from (*outer, f"{head} {{")
        yield from (f"  {line}" for line in self._steps(body))
        yield "}"

    def _at(self, at: At) -> str:
        """The condition of an `At`, which defines its index."""
        (axis,) = at.axes
        first, last = (
            ("begin", "end") if at.kind == "chunk" else (0, self.nest.domain.extents[axis])
        )
        here = f"i{axis} >= {first} && i{axis} < {last}"
        return f"if (const long i{axis} = {at.register}; {here})"

    def _loop(self, loop: Loop) -> Iterator[str]:
        extents, last = self.nest.domain.extents, loop.axes[-1]
        if loop.kind == "chunk" and (len(loop.axes) > 1 or loop.step > 1):
            yield "for (long unit = begin; unit < end; unit++) {"
            yield from (f"  {line}" for line in (*self._indices(loop), *self._steps(loop.body)))
            yield "}"
            return
        if loop.kind == "chunk":
            yield from self._block([_for(last, "begin", "end")], loop.body)
            return
        first, stop = "0", str(extents[last])
        if loop.kind == "lane":
            first, stop = f"run{last}", f"least(run{last} + {loop.step}, {extents[last]})"
        outer = [_for(d, "0", str(extents[d])) for d in loop.axes[:-1]]
        if last != self.nest.domain.lane:
            yield from self._block([*outer, _for(last, first, stop)], loop.body)
            return
        yield from outer
        whole = extents[last] if loop.kind != "lane" else loop.step
        yield f"registers<{extents[last]}, {whole}>({first}, [&]<int N>(long i{last}){INLINE} {{"
        yield from (f"  {line}" for line in self._steps(loop.body, True))
        yield "});"

    def _indices(self, loop: Loop) -> Iterator[str]:
        """The indices of a unit of several axes; of the last one the first of its run."""
        counts = self._counts(loop)
        for place, (axis, count) in enumerate(zip(loop.axes, counts, strict=True)):
            inner = math.prod(counts[place + 1 :])
            index = "unit" + (f" / {inner}" if inner > 1 else "")
            index = "0" if count == 1 else index + (f" % {count}" if place else "")
            run = loop.step > 1 and axis == loop.axes[-1]
            yield f"const long {'run' if run else 'i'}{axis} = {index}{run * f' * {loop.step}'};"


def _for(axis: int, first: str, stop: str) -> str:
    return f"for (long i{axis} = {first}; i{axis} < {stop}; i{axis}++)"


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
