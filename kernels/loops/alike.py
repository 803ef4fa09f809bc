"""Nests that differ in names and sizes alone, which one function computes, given its memory."""

from __future__ import annotations

from collections.abc import Mapping

from graphc.base.records import replace
from graphc.kernels.loops.language import At, Loop, Nest, Step, Unless
from graphc.kernels.program.access import Domain
from graphc.kernels.program.body.statement import Statement


def canonical(nest: Nest) -> Nest:
    """The nest with numbers for the names of memory and registers, without the sizes of memory and,
    of a single axis, its extent: a function is given these. Nests of one canonical nest do the same
    to other arrays."""
    registers = [r.name for s in nest.statements for r in s.results]
    names = {name: f"_{i}" for i, name in enumerate((*(m.name for m in nest.memory), *registers))}
    memory = tuple(replace(m, name=names[m.name], size=0) for m in nest.memory)
    domain = nest.domain
    if domain.rank == 1:
        domain = Domain((0,), domain.lane, domain.width)
    return Nest(domain, memory, tuple(_renamed(step, names) for step in nest.body))


def _renamed(step: Step, names: Mapping[str, str]) -> Step:
    if isinstance(step, Loop | Unless):
        step = replace(step, body=tuple(_renamed(inner, names) for inner in step.body))
    if isinstance(step, At):
        return replace(step, register=names[step.register])
    if isinstance(step, Unless):
        return replace(step, source=names[step.source], target=names[step.target])
    if isinstance(step, Statement):
        return step.renamed(names)
    return step
