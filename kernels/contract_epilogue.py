"""What a contraction's kernel does with its sums: the pointwise rest of the body, as a program."""

from __future__ import annotations

import math
from dataclasses import dataclass

from graphc.ir import Graph
from graphc.kernels.access import Domain, linear_index, memory_access, merge_axes
from graphc.kernels.expression import C_TYPES, Names, Program, Walk
from graphc.kernels.nest import Nest

FINISH_CHUNK = 8192
"""Elements of the output per chunk of the second phase, divided by the partial sums."""


@dataclass(frozen=True)
class Epilogue:
    """Statements over the output's index space. `pointers` are what they read and write: for each
    C identifier the number of the kernel's argument and the C type of its elements."""

    program: Program
    domain: Domain
    pointers: tuple[tuple[str, int, str], ...]
    inplace: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Finish:
    """The second phase: partial sums from the workspace, then the epilogue. `groups` are the
    output's axes that each axis of the epilogue's domain stands for."""

    epilogue: Epilogue
    parts: int
    size: int
    chunks: int


def epilogue_of(body: Graph, nest: Nest, lane: int, width: int) -> Epilogue:
    """The epilogue on a register of sums named `sum`, along the iteration axis `lane`."""
    (axis,) = (d for d, place in enumerate(nest.output) if place.coefficients[lane])
    domain = Domain(nest.node.output.type.shape, axis, width)
    walk = _walk(body, domain)
    walk.given[nest.node.output] = "sum"
    walk.axes["sum"] = frozenset(range(domain.rank))
    return _epilogue(body, nest, walk, domain)


def finish_of(body: Graph, nest: Nest, parts: int, width: int) -> Finish:
    """The epilogue on `parts` partial sums that lie in the workspace in the output's order."""
    shape = nest.node.output.type.shape
    size = math.prod(shape)
    domain = Domain(shape, len(shape) - 1, width)
    walk = _walk(body, domain)
    access = linear_index(shape, domain.identity(), domain)
    total = walk.emit(
        "load",
        "sum",
        nest.node.output.type.dtype,
        f"add_parts<$N, {parts}, {size}>(workspace + @0)",
        (),
        (access,),
    )
    walk.given[nest.node.output] = total
    epilogue = _epilogue(body, nest, walk, domain)
    merged, groups = merge_axes(domain, epilogue.program.accesses)
    epilogue = Epilogue(
        epilogue.program.merged(groups), merged, epilogue.pointers, epilogue.inplace
    )
    chunks = max(
        1, min(size * parts // FINISH_CHUNK, math.prod(map(merged.steps, range(merged.rank))))
    )
    return Finish(epilogue, parts, size, chunks)


def _walk(body: Graph, domain: Domain) -> Walk:
    names = Names()
    return Walk(body, domain, {v: names.fresh(v.name, "data") for v in body.inputs}, names)


def _epilogue(body: Graph, nest: Nest, walk: Walk, domain: Domain) -> Epilogue:
    places = domain.identity()
    registers = [walk.value(v, places) for v in body.outputs]
    outputs = {v: walk.names.fresh(v.name, "data") for v in body.outputs}
    # An output's pointer is known to the stores alone: its value is computed, not read.
    walk.pointers = {**walk.pointers, **outputs}
    for value, register in zip(body.outputs, registers, strict=True):
        walk.store(value, places, register)
    program = walk.program()
    used = frozenset[str]().union(*(s.pointers for s in program.statements))
    values = (*body.inputs, *body.outputs)
    pointers = tuple(
        (walk.pointers[v], i, C_TYPES[v.type.dtype])
        for i, v in enumerate(values)
        if walk.pointers[v] in used
    )
    return Epilogue(program, domain, pointers, _inplace(body, nest, walk, domain))


def _inplace(body: Graph, nest: Nest, walk: Walk, domain: Domain) -> tuple[tuple[int, int], ...]:
    """Inputs that the epilogue reads only where it writes an output of the same type."""
    operands = {nest.a.input, nest.b.input}
    pairs = []
    for i, value in enumerate(body.inputs):
        loads = [s for s in walk.statements if walk.pointers[value] in s.pointers]
        if i in operands or not loads:
            continue
        for o, output in enumerate(body.outputs):
            here = memory_access(output.type, domain.identity(), domain)
            same = output.type == value.type and all(s.accesses == (here,) for s in loads)
            if same and all(s.kind == "load" for s in loads):
                pairs.append((i, o))
    return tuple(pairs)
