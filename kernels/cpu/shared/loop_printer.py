"""C++ for a CPU from loop nests: chunk loops over vector registers, and loops along an axis."""

from __future__ import annotations

from collections.abc import Iterator

from graphc.kernels.cpu.shared.kernel_source import domain_text
from graphc.kernels.loops.along import along_loops
from graphc.kernels.loops.language import Loop, Nest, Step
from graphc.kernels.program.access import Domain
from graphc.kernels.program.body.statement import Statement

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
