"""The loads of an element's code that can be made before anything is computed."""

from __future__ import annotations

from graphc.kernels.program.body.statement import Load, RegisterProgram


def split_loads(program: RegisterProgram) -> tuple[RegisterProgram, RegisterProgram]:
    """The loads that depend on no computed value, and the rest."""
    loads = program.filter(lambda s: isinstance(s, Load) and not s.operands)
    return loads, program.filter(lambda s: s not in loads.statements)
