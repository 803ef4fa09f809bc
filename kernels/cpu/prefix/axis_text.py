"""Print kernels that run along one axis.

Reading an element and storing a result are functors of the row's indices `i`, its last index `r`
and the index `j` along the axis. The result is a struct with `value` and, if there are two outputs,
`place`.
"""

from __future__ import annotations

from graphc.kernels.cpu.shared.kernel_source import array_text, domain_text
from graphc.kernels.program.access import Domain
from graphc.kernels.program.axis import AxisBody


def rows_text(space: AxisBody) -> str:
    """The constants, and the domain `Kept` of the rows."""
    kept = space.kept
    extents = tuple(space.domain.extents[d] for d in kept) or (1,)
    lane = -1 if space.in_lanes else len(kept) - 1
    arrays = array_text(space.program.arrays)
    return arrays + domain_text("Kept", Domain(extents, lane, space.domain.width))


def functor_lines(space: AxisBody, state: str) -> list[str]:
    """The two functors and the end of the call that takes them."""
    kept = space.kept
    names = [f"i[{kept.index(d)}]" if d in kept[:-1] else "r" for d in range(space.domain.rank)]
    names[space.axis] = "j"
    arguments = "const long* i, long r, long j"
    return [
        f"  [=]<int N>({arguments}) __attribute__((always_inline)) {{",
        *(f"    {line}" for line in space.read.lines(names)),
        f"    return {space.operand};",
        f"  }}, [=]<int N>({arguments}, const {state}& state) __attribute__((always_inline)) {{",
        *(f"    {line}" for line in space.write.lines(names)),
        "  });",
    ]
