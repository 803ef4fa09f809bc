"""Nests along an axis: a loop over rows, in it one over the axis of a running result or sort."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from graphc.kernels.loops.language import Loop, Nest
from graphc.kernels.program.body.along import Along
from graphc.kernels.program.body.statement import RegisterProgram


@dataclass(frozen=True)
class AlongLoops:
    """The parts of such a nest."""

    rows: Loop
    before: RegisterProgram
    along: Along
    after: RegisterProgram

    def read(self, indices: Sequence[str], live: str) -> list[str]:
        """C++ statements that return an element."""
        return [*self.before.lines(indices, live), f"return {self.along.operands[0]};"]

    def write(self, indices: Sequence[str], live: str) -> list[str]:
        """C++ statements that store the results `state`."""
        return [*self.along.lines(self.after.statements), *self.after.lines(indices, live)]


def along_of(nest: Nest) -> Along:
    """The running result or sort of a nest that has one."""
    (found,) = (s for s in nest.statements if isinstance(s, Along))
    return found


def along_loops(nest: Nest) -> AlongLoops:
    """The parts of a nest along an axis."""
    (rows,), statements, along = nest.body, nest.statements, along_of(nest)
    assert isinstance(rows, Loop), f"no loop over rows: {rows}"
    at = statements.index(along)
    before, after = (RegisterProgram(s, {}, {}) for s in (statements[:at], statements[at + 1 :]))
    return AlongLoops(rows, before, along, after)
