"""Epilogues of contractions as nests: what is done to sums, which tiles have in registers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from graphc.kernels.loops.language import Loop, Memory, Nest
from graphc.kernels.loops.plain import plain_nest
from graphc.kernels.program.access import linear_index
from graphc.kernels.program.body.statement import Address, Call, Load, Register, Store
from graphc.kernels.program.epilogue import Epilogue

SUMS = "sums"
"""The memory that stands for the registers of tiles: for each that the epilogue is given, as many
elements as its domain has."""


def epilogue_nest(part: Epilogue) -> Nest:
    """The nest of an epilogue, which reads sums from memory, or adds partial ones."""
    nest, domain, statements = plain_nest(part), part.domain, part.program.statements
    made = {r.name for s in statements for r in s.results}
    given = dict.fromkeys(name for s in statements for name in s.operands if name not in made)
    here = linear_index(domain.extents, domain.identity(), domain)
    # What is stored may have the pointer of a reshaped value, which is no output.
    stored = {p for s in statements if isinstance(s, Store) for p in s.pointers}
    loads, memory = list[Load](), [replace(m, written=m.name in stored) for m in nest.memory]
    for number, name in enumerate(given):
        place = Address(SUMS, replace(here, offset=number * domain.size))
        loads.append(Load((Register(name, part.dtype),), (place,)))
    if given:
        memory.append(Memory(SUMS, part.dtype, len(given) * domain.size))
    for call in (s for s in statements if isinstance(s, Call) and s.function == "add_parts"):
        settings: tuple[Any, ...] = call.settings
        memory.append(Memory(call.pointers[0], part.dtype, settings[0] * settings[1]))
    loop = Loop(tuple(range(domain.rank)), "serial", (*loads, *statements))
    return Nest(domain, tuple(dict.fromkeys(memory)), (loop,))
