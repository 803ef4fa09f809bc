"""What a contraction's kernel does with its sums: the pointwise rest of the body, as a program."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

from graphc.ir import Graph, Node
from graphc.kernels.program.access import Domain, Place, linear_index, merge_axes
from graphc.kernels.program.expression import Walk
from graphc.kernels.program.inplace import inplace_pairs
from graphc.kernels.program.names import Names
from graphc.kernels.program.nest import Nest
from graphc.kernels.program.pieces import every_section, pieces
from graphc.kernels.program.statement import Address, Function, Program
from graphc.ops.logic import C_TYPES
from graphc.ops.pooling import MaxPool2d
from graphc.passes.fuse.sections import sections_of_sums

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
    """The epilogue on a register of sums named `sum`, along the iteration axis `lane`. Of a body
    that pools, on the registers `sum[0]`, `sum[1]`, ... of a window, over the pooled pixels; of one
    that reads sections, on a register for each, over the index within a section."""
    (axis,) = (d for d, place in enumerate(nest.output) if place.coefficients[lane])
    pool, sections = pooling(body), sections_of_sums(body)
    shape = pool.outputs[0].type.shape if pool else nest.node.output.type.shape
    shape = sections.shape(shape) if sections else shape
    domain = Domain(shape, axis, width)
    walk = _walk(body, domain)
    if sections:
        for number, places in enumerate(every_section(domain.identity(), sections)):
            walk.give(nest.node.output, places, f"sum[{number}]")
        return _epilogue(body, nest, walk, domain)
    if pool is None:
        walk.give(nest.node.output, domain.identity(), "sum")
        return _epilogue(body, nest, walk, domain)
    assert isinstance(pool.op, MaxPool2d)
    n, k, p, q = domain.identity()
    largest = []
    rows, columns = pool.op.kernel_size
    for number, (r, s) in enumerate(itertools.product(range(rows), range(columns))):
        here = (n, k, _scaled(p, rows, r), _scaled(q, columns, s))
        walk.give(nest.node.output, here, f"sum[{number}]")
        largest.append(walk.value(pool.inputs[0], here))
    results = [(v.name, v.type.dtype) for v in pool.outputs]
    registers = walk.compute_all(results, Function("largest"), *largest)
    for value, register in zip(pool.outputs, registers, strict=True):
        walk.give(value, domain.identity(), register)
    return _epilogue(body, nest, walk, domain)


def pooling(body: Graph) -> Node | None:
    """The max_pool2d of the body, if it has one."""
    return next((n for n in body.nodes if isinstance(n.op, MaxPool2d)), None)


def _scaled(place: Place, factor: int, offset: int) -> Place:
    return Place(tuple(factor * c for c in place.coefficients), offset)


def finish_of(body: Graph, nest: Nest, parts: int, width: int) -> Finish:
    """The epilogue on `parts` partial sums that lie in the workspace in the output's order."""
    output, sections = nest.node.output, sections_of_sums(body)
    shape, size = output.type.shape, output.type.size
    domain = Domain(sections.shape(shape) if sections else shape, len(shape) - 1, width)
    walk = _walk(body, domain)
    here = domain.identity()
    for places in every_section(here, sections) if sections else [here]:
        access = linear_index(shape, places, domain)
        results, memory = [("sum", output.type.dtype)], Address("workspace", access)
        (register,) = walk.call(results, "add_parts", (parts, size), memory)
        walk.give(output, places, register)
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
    return Walk(body, domain, names.pointers(body), names)


def _epilogue(body: Graph, nest: Nest, walk: Walk, domain: Domain) -> Epilogue:
    sections = sections_of_sums(body)
    here, shape = domain.identity(), domain.extents
    wanted = [(v, p) for v in body.outputs for p in pieces(body, v, here, shape, sections)]
    walk.store_all(wanted)
    program = walk.taken()
    values = (*body.inputs, *body.outputs)
    pointers = tuple(
        (walk.pointers[v], i, C_TYPES[v.type.dtype])
        for i, v in enumerate(values)
        if walk.pointers[v] in program.pointers
    )
    operands = [body.inputs[read.input] for read in (nest.a, nest.b)]
    inplace = inplace_pairs(body, [program], walk.pointers, operands)
    return Epilogue(program, domain, pointers, inplace)
