"""Print a contraction kernel: a Shape of constants, an epilogue functor, the entry function."""

from __future__ import annotations

import math
from collections.abc import Iterable

from graphc.ir import FLOATS
from graphc.kernels.cpu.contract.epilogue import Finish
from graphc.kernels.cpu.contract.index_text import (
    address,
    axis_enum,
    axis_name,
    condition,
    integers,
    loop_lines,
    output_index,
    sum_lines,
)
from graphc.kernels.cpu.contract.shape_text import SUMS, element, shape_lines
from graphc.kernels.cpu.contract.sum_loops import SumLoops
from graphc.kernels.cpu.contract.tile_schedule import TileSchedule
from graphc.kernels.cpu.shared.kernel_source import argument_order, array_text, entry
from graphc.kernels.loops.epilogues import epilogue_nest
from graphc.kernels.loops.verify import verify_nest
from graphc.kernels.program.body.statement import RegisterProgram
from graphc.kernels.program.epilogue import Epilogue
from graphc.kernels.program.nest import Nest, Read, Window
from graphc.ops.fused import KernelNode
from graphc.ops.pointwise.logic import C_TYPES

LONG = 5
"""Statements from which an epilogue is a loop over a tile's rows instead of being repeated for
each. Otherwise most of the kernel would be epilogues, and compile up to twice as long."""


def tiled_text(
    node: KernelNode,
    schedule: TileSchedule,
    epilogue: Epilogue | None = None,
    finish: Finish | None = None,
) -> list[str]:
    """A kernel of register tiles.

    `epilogue` runs on the registers; without one the sums are stored in the output's order, to the
    output or, with `finish`, to the workspace.
    """
    roles = schedule.roles
    out = len(node.inputs) + (len(node.outputs) if finish else 0)
    dtype = roles.nest.node.output.type.dtype
    result, total = C_TYPES[dtype], SUMS[dtype]
    programs = [e.program for e in (epilogue, finish and finish.epilogue) if e]
    lines = shape_lines(schedule)
    if epilogue:
        together = bool(roles.window) or roles.nest.sections is not None
        lines += functor("Epilogue", epilogue, sum_parameters(epilogue, together, result), ())
    else:
        lines += ["struct Epilogue {", _long(False), f"    {result}* out;", "};"]
    if finish:
        lines += _finish_functor(finish, total)
    fields = setup(node, "Epilogue", epilogue, out, "" if epilogue else f"{result}*")
    x, y = (f"(const {element(r)}*)arguments[{r.input}]" for r in (roles.x, roles.y))
    first = f"contract::run<Shape>({x}, {y}, chunk, {fields});"
    if not finish:
        return _sections(lines, entry(node, [first]), *programs)
    rows, lane = _rows_and_lane(finish)
    second = (
        f"contract::over<{rows}, {lane}, {finish.chunks}>"
        f"(chunk, {setup(node, 'Finish', finish.epilogue, out, f'const {total}*')});"
    )
    call = ["if (phase == 0)", f"    {first}", "else", f"    {second}"]
    return _sections(lines, entry(node, call, "phase"), *programs)


def plain_text(
    node: KernelNode,
    nest: Nest,
    lane: int,
    width: int,
    window: Window | None,
    chunks: int,
    epilogue: Epilogue,
    order: SumLoops | None,
) -> list[str]:
    """A kernel that computes sums lane by lane, as `order` says, and checks every read."""
    dtype = C_TYPES[nest.node.output.type.dtype]
    lines = ["struct Nest : PlainDefaults {", axis_enum(nest)]
    kinds = {"T": dtype, "A": _element(nest.a), "B": _element(nest.b)}
    lines += [f"    using {name} = {kind};" for name, kind in kinds.items()]
    lines += sum_lines([(a, nest.axes[a].extent, False) for a in nest.summed], nest)
    loops = plain_loops(nest, lane, width, window)
    registers = math.prod(count for _, count, _ in loops)
    lines += loop_lines([(axis_name(nest, a), n, step) for a, n, step in loops])
    sections = (lane if nest.sections is None else nest.sections, nest.section_count)
    (p, rows), (q, columns) = window or (sections, (lane, 1))
    lines.append(f"    static constexpr int ROWS = {axis_name(nest, p)}, WINDOW_ROWS = {rows};")
    lines.append(
        f"    static constexpr int COLUMNS = {axis_name(nest, q)}, WINDOW_COLUMNS = {columns};"
    )
    lines.append(f"    static constexpr long TILES = {registers}, CHUNKS = {chunks};")
    lines.append(
        f"    static constexpr int LANE = {axis_name(nest, lane)}, "
        f"LANE_EXTENT = {nest.axes[lane].extent};"
    )
    if order is not None and order.lane is not None:
        number = axis_name(nest, order.lane)
        lines.append(integers(SUM_LANE=number, SUM_LANES=order.lanes, PARTS=order.parts))
    lines.append("    static void add(T& sum, const A* a, const B* b, const long* at) {")
    for read in (nest.a, nest.b):
        lines += [f"        if (!({condition(nest, b)})) return;" for b in read.borders]
    x, y = (f"value({x}[{address(nest, r)}])" for x, r in (("a", nest.a), ("b", nest.b)))
    rounded = nest.node.output.type.dtype in FLOATS
    lines.append(f"        {f'sum = fma({x}, {y}, sum)' if rounded else f'sum += {x} * {y}'};")
    lines.append("    }")
    indices = [output_index(nest, place.coefficients, {}) for place in nest.section_place]
    if window:
        indices[2:] = [f"{indices[2]} / {rows}", f"{indices[3]} / {columns}"]
    lines.append("    template <int N, class E>")
    lines.append("    static void finish(const E& epilogue, const vec<T>* sum, const long* at) {")
    together = bool(window) or nest.sections is not None
    sums = "sum" if together else "sum[0]"
    lines.append(f"        epilogue.template operator()<N>({sums}, {', '.join(indices)});")
    lines += ["    }", "};"]
    lines += functor("Epilogue", epilogue, sum_parameters(epilogue, together, dtype), ())
    a, b = (f"(const {_element(r)}*)arguments[{r.input}]" for r in (nest.a, nest.b))
    call = f"contract::plain<Nest>({a}, {b}, chunk, {setup(node, 'Epilogue', epilogue, 0)});"
    return _sections(lines, entry(node, [call]), epilogue.program)


def _element(read: Read) -> str:
    """The C++ type of an operand's elements in memory."""
    return C_TYPES[read.type.dtype]


def plain_loops(
    nest: Nest, lane: int, width: int, window: Window | None
) -> list[tuple[int, int, int]]:
    """The kept loops as (axis, iterations, step), in registers and pooling windows."""
    steps = {**dict(window or ()), lane: width}
    if nest.sections is not None:
        steps[nest.sections] = nest.section_count
    return [(a, -(-nest.axes[a].extent // steps.get(a, 1)), steps.get(a, 1)) for a in nest.kept]


def _sections(lines: list[str], entry: str, *programs: RegisterProgram) -> list[str]:
    """The sections of the kernel's file: constant arrays of the programs, the types in `lines`, the
    entry function."""
    arrays = (array_text(p.arrays) for p in programs)
    return [*arrays, "\n".join(["using namespace graphc::contract;", "", *lines, ""]), entry]


def sum_parameters(epilogue: Epilogue, together: bool, dtype: str = "float") -> str:
    """The epilogue functor's parameters that hold sums."""
    sums = f"const vec<{dtype}>* sum" if together else f"vec<{dtype}> sum"
    return ", ".join([sums, *(f"long e{d}" for d in range(epilogue.domain.rank))])


def functor(
    title: str,
    epilogue: Epilogue,
    parameters: str,
    first: Iterable[str],
    fields: Iterable[str] = (),
) -> list[str]:
    """The struct of an epilogue functor, whose nest is proved."""
    verify_nest(epilogue_nest(epilogue))
    lines = [f"struct {title} {{", _long(len(epilogue.program.statements) >= LONG)]
    lines += [f"    {f};" for f in fields]
    lines += [f"    {C_TYPES[v.type.dtype]}* {name};" for name, v in epilogue.used.items()]
    lines += ["    template <int N>", f"    INLINE void operator()({parameters}) const {{"]
    indices = [f"e{d}" for d in range(epilogue.domain.rank)]
    lines += [f"        {line}" for line in (*first, *epilogue.program.lines(indices))]
    return [*lines, "    }", "};"]


def _long(long: bool) -> str:
    return f"    static constexpr bool LONG = {str(long).lower()};"


def _finish_functor(finish: Finish, total: str) -> list[str]:
    domain = finish.epilogue.domain
    first, rest = [], "row"
    for axis in reversed([d for d in range(domain.rank) if d != domain.lane]):
        first.append(f"const long e{axis} = {rest} % {domain.extents[axis]};")
        rest = f"{rest} / {domain.extents[axis]}"
    parameters = "long row, long lane"
    if domain.lane is not None:
        first.append(f"const long e{domain.lane} = lane;")
    return functor("Finish", finish.epilogue, parameters, first, [f"const {total}* workspace"])


def _rows_and_lane(finish: Finish) -> tuple[int, int]:
    domain = finish.epilogue.domain
    assert domain.lane is not None
    lane = domain.extents[domain.lane]
    return math.prod(domain.extents) // max(1, lane), lane


def setup(
    node: KernelNode, name: str, epilogue: Epilogue | None, out: int, workspace: str = ""
) -> str:
    """The statement that initializes the epilogue functor from the kernel's arguments."""
    fields = [f"({workspace})arguments[{out}]"] if workspace else []
    if epilogue is not None:
        order, values = argument_order(node), epilogue.used.values()
        fields += [f"({C_TYPES[v.type.dtype]}*)arguments[{order[v]}]" for v in values]
    return f"{name}{{{', '.join(fields)}}}"
