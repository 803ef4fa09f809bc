"""Split an element's code into functors that load and functors that compute, so that a thread can
load several elements before it computes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from graphc.kernels.program.body.statement import Load, RegisterProgram
from graphc.ops.pointwise.logic import C_TYPES


def loads_first(
    program: RegisterProgram,
    names: Sequence[str],
    argument: str,
    define: Callable[[RegisterProgram], list[str]],
) -> tuple[list[str], list[str]]:
    """The struct `Loads` of an element's unconditional loads, and the end of a call with two
    functors of `argument`: one loads, the other does the rest. `define` gives the definitions of
    the indices that a program uses."""
    loads, rest = split_loads(program)
    results = [r for s in loads.statements for r in s.results]
    registers = ", ".join(r.name for r in results)
    unpacked = [f"const auto [{registers}] = loads;"] if results else []
    fields = [f"  vec<{C_TYPES[r.dtype]}> {r.name};" for r in results]
    first, second = loads.lines(names, "1"), rest.lines(names, "1")
    functors = [
        f"    [&]({argument}) {{",
        *(f"      {line}" for line in (*define(loads), *first, f"return Loads{{{registers}}};")),
        "    },",
        f"    [&]({argument}, const Loads& loads) {{",
        *(f"      {line}" for line in (*unpacked, *define(rest), *second)),
        "    });",
    ]
    return ["struct Loads {", *fields, "};"], functors


def split_loads(program: RegisterProgram) -> tuple[RegisterProgram, RegisterProgram]:
    """The loads that depend on no computed value, and the rest."""
    loads = program.filter(lambda s: isinstance(s, Load) and not s.operands)
    return loads, program.filter(lambda s: s not in loads.statements)
