"""Describe the epilogue of a contraction: a program of strips on the sums of a unit of work."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from graphc.base.target import Target
from graphc.kernels.cpu.contract.epilogue import tile_epilogue
from graphc.kernels.cpu.shared.kernel_source import argument_order
from graphc.kernels.prebuilt.contract_sides import Walk
from graphc.kernels.prebuilt.operations import LARGER
from graphc.kernels.prebuilt.places import Memory
from graphc.kernels.prebuilt.strips import strip_program
from graphc.kernels.program.body.literals import splat_literal
from graphc.kernels.program.body.statement import (
    Argument,
    Compute,
    NamedFunction,
    Register,
    RegisterProgram,
    Statement,
)
from graphc.kernels.program.epilogue import Epilogue
from graphc.kernels.program.kernel import Kernel
from graphc.kernels.program.nest import Nest, Window
from graphc.ops.fused import KernelNode


@dataclass(frozen=True)
class FinishAxis:
    """An axis of an epilogue's domain. Indices [low, high) of a kept axis are its own times the
    factor, by the divisor."""

    kept: int | None
    """The kept axis; None for the whole of the domain's."""
    factor: int
    divisor: int
    extent: int


@dataclass(frozen=True)
class Finish:
    """The epilogue of a unit."""

    program: bytes
    """What `strips::run` reads. The sums are the memory behind the node's arguments."""
    axes: tuple[FinishAxis, ...]
    """The axes of its domain."""
    apart: int | None
    """A kept axis, such as groups of channels, whose indices are finished one by one, as their sums
    do not follow each other evenly along an axis of the output; None if there is none."""
    apart_step: int
    """Elements of the sums that the program's indices move by from one of these to the next."""


@dataclass(frozen=True)
class _Formula:
    """A C++ expression of a, b and c, as strips name their operands."""

    text: str

    def scalar_expression(self, *operands: str) -> str:
        return self.text


def finish_of(
    node: KernelNode,
    nest: Nest,
    lane: int,
    window: Window | None,
    walks: Mapping[int, Walk],
    kernel: Kernel,
    target: Target,
) -> Finish | None:
    """The epilogue of `node`, of whose sums each kept axis has a walk; None where strips lack an
    operation. `lane` is the axis in the lanes."""
    body = node.body
    epilogue = tile_epilogue(body, nest, lane, target.lanes)
    order, count = argument_order(node), len(node.inputs)
    memory = {
        name: Memory(order[value], value.type.dtype, kernel.offset(order[value]))
        for name, value in epilogue.used.items()
    }
    found = _axes(nest, epilogue, walks)
    if found is None:
        return None
    strides, axes, apart, apart_step = found
    local = count + len(node.outputs)
    registers = {
        name: Memory(local, "f32", -4 * at, strides)
        for name, at in _registers(nest, window, walks).items()
    }
    program = strip_program(
        epilogue.domain,
        _without_largest(epilogue.program),
        memory,
        [(i, count + o) for i, o in kernel.inplace],
        registers,
    )
    return None if program is None else Finish(program, axes, apart, apart_step)


def _axes(
    nest: Nest, epilogue: Epilogue, walks: Mapping[int, Walk]
) -> tuple[tuple[int, ...], tuple[FinishAxis, ...], int | None, int] | None:
    """Elements of the sums from one index of each axis of the domain to the next, and the kept axes
    that it follows; then the axis that is finished one by one, and its step. None where there are
    several such axes."""
    strides, axes = [], []
    apart, apart_step = None, 0
    for place, extent in zip(nest.section_place, epilogue.domain.extents, strict=True):
        own = [a for a, c in enumerate(place.coefficients) if c and a in walks]
        if not own:
            strides.append(0)
            axes.append(FinishAxis(None, 1, 1, extent))
            continue
        outer, inner = own[0], own[-1]
        unit = walks[inner].stride // place.coefficients[inner]
        uneven = [a for a in own if walks[a].stride != unit * place.coefficients[a]]
        if uneven:
            if apart is not None or uneven != [outer]:
                return None
            apart, apart_step = outer, unit * place.coefficients[outer]
        strides.append(unit)
        axes.append(FinishAxis(outer, place.coefficients[outer], walks[outer].scale, extent))
    return tuple(strides), tuple(axes), apart, apart_step


def _registers(nest: Nest, window: Window | None, walks: Mapping[int, Walk]) -> dict[str, int]:
    """Where the sums of each register of the program begin, in elements."""
    if window:
        (p, rows), (q, columns) = window
        steps = [walks[a].plane if a in walks else 0 for a in (p, q)]
        places = itertools.product(range(rows), range(columns))
        return {f"sum[{n}]": r * steps[0] + s * steps[1] for n, (r, s) in enumerate(places)}
    if nest.sections is not None:
        stride = walks[nest.sections].stride
        return {f"sum[{n}]": n * stride for n in range(nest.section_count)}
    return {"sum": 0}


def _without_largest(program: RegisterProgram) -> RegisterProgram:
    """The program with the maximum of a window as comparisons, one element after another."""
    return replace(program, statements=tuple(_simple(program.statements)))


def _simple(statements: Sequence[Statement]) -> Iterator[Statement]:
    for statement in statements:
        formula = statement.formula if isinstance(statement, Compute) else None
        if not isinstance(formula, NamedFunction) or formula.name != "largest":
            yield statement
            continue
        first, *others = statement.arguments
        place: Argument = splat_literal(0, "i32")
        (largest, _), (number, _) = statement.results
        for i, other in enumerate(others, 1):
            names = [f"{largest}_{i}_{step}" for step in range(3)]
            steps: tuple[tuple[str, str, tuple[Argument, ...]], ...] = (
                ("bool", LARGER, (other, first)),
                ("f32", "select(a, b, c)", (names[0], other, first)),
                ("i32", "select(a, b, c)", (names[0], splat_literal(i, "i32"), place)),
            )
            for name, (kind, text, operands) in zip(names, steps, strict=True):
                yield Compute((Register(name, kind),), operands, _Formula(text))
            first, place = names[1:]
        yield Compute((Register(largest, "f32"),), (first,), _Formula("a"))
        yield Compute((Register(number, "u8"),), (place,), _Formula("convert<uint8_t>(a)"))
