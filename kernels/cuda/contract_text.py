"""The text of a contraction's kernels: accesses, the epilogue, and one launch or two."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from graphc.ir import Graph, Value
from graphc.kernels.cuda.contract import Problem, Tile, choose_tile, make_problem
from graphc.kernels.cuda.shell import (
    FEW_THREADS,
    Signature,
    constant_arrays,
    index_type,
    kernel_text,
    make_kernel,
    source,
    symbol_of,
)
from graphc.kernels.program.access import Domain, Place, merge_axes
from graphc.kernels.program.counts import check_counts
from graphc.kernels.program.expression import Walk
from graphc.kernels.program.inplace import inplace_pairs
from graphc.kernels.program.kernel import GridLaunch, Kernel
from graphc.kernels.program.names import Names
from graphc.kernels.program.nest import contraction_nest, sectioned_nest
from graphc.kernels.program.pieces import every_section, pieces
from graphc.kernels.program.statement import Program
from graphc.ops.fused import KernelNode
from graphc.ops.logic import C_TYPES
from graphc.passes.fuse.sections import sections_of_sums


def lower_contract(node: KernelNode) -> Kernel:
    """The kernel of a fused node with a contraction; every value is row-major."""
    body = node.body
    nest, cut = contraction_nest(body), sections_of_sums(body)
    problem = make_problem(sectioned_nest(nest, cut) if cut else nest)
    batches, m, n, k = problem.sizes
    count = batches * m * n
    if count == 0:
        return make_kernel(node, source(node, (), ()), ())
    output = problem.nest.node.output.type
    itemsize = output.numpy_dtype.itemsize
    number = problem.nest.section_count
    check_counts(node, batches=batches, rows=m, columns=n * number, terms_per_sum=k)
    narrow = min(x.read.type.numpy_dtype.itemsize for x in (problem.a, problem.b))
    tile, splits = choose_tile(batches, m, n, k, itemsize, number, narrow)
    epilogue = _epilogue(body, problem, C_TYPES[output.dtype])
    columns = replace(problem.b, outer_index=_column(tile, n, problem))
    operands = [body.inputs[x.read.input] for x in (problem.a, problem.b)]
    # Operands are read by many blocks: they are never overwritten.
    inplace = inplace_pairs(body, [epilogue.program], epilogue.pointers, operands)
    signature = Signature(epilogue.pointers, body, inplace, splits > 1)
    arguments = ", ".join(epilogue.pointers[v] for v in operands)
    kernels, launches = _kernels(node, problem, tile, splits, epilogue, signature, arguments)
    sections = (
        epilogue.constants,
        problem.a.text("RowAccess", _comment(problem, problem.rows, "row")),
        columns.text("ColumnAccess", _comment(problem, problem.columns, "column")),
        _shape(problem, tile, splits),
        epilogue.text,
        *kernels,
    )
    return make_kernel(
        node,
        source(node, ("contract", "memory"), sections),
        launches,
        workspace=splits * count * itemsize if splits > 1 else 0,
        flops=problem.nest.flops,
        inplace=inplace,
    )


def _kernels(
    node: KernelNode,
    problem: Problem,
    tile: Tile,
    splits: int,
    epilogue: _Epilogue,
    signature: Signature,
    operands: str,
) -> tuple[list[list[str]], list[GridLaunch]]:
    """The kernel, or that of the parts and the one that adds them, and how they are launched."""
    batches, m, n, _ = problem.sizes
    tiles = -(-m // tile.m) * -(-n // tile.units(problem.nest.section_count)) * batches
    symbol, finish = symbol_of(node), symbol_of(node, "finish")
    whole = f"Epilogue{{{', '.join(epilogue.members)}}}"
    launches = [GridLaunch(symbol, (tiles, splits, 1), (tile.threads, 1, 1))]
    if splits == 1:
        lines = [f"Contract<Problem, Tile>::run({operands}, {whole});"]
        return [kernel_text(symbol, signature, tile.threads, lines, tile.blocks)], launches
    element = C_TYPES[problem.nest.node.output.type.dtype]
    partial = f"const auto partial = reinterpret_cast<{element}*>(workspace);"
    part = "StorePartial<Problem>{partial}"
    first = [partial, f"Contract<Problem, Tile>::run({operands}, {part});"]
    second = [partial, f"finish_splits<Problem>(partial, {whole});"]
    blocks = -(-batches * m * n // FEW_THREADS)
    launches.append(GridLaunch(finish, (blocks, 1, 1), (FEW_THREADS, 1, 1)))
    kernels = [
        kernel_text(symbol, signature, tile.threads, first, tile.blocks),
        kernel_text(finish, signature, FEW_THREADS, second),
    ]
    return kernels, launches


@dataclass(frozen=True)
class _Epilogue:
    """The epilogue's functor: its program and text, the pointers of the kernel and those that are
    members of the functor."""

    program: Program
    pointers: dict[Value, str]
    members: tuple[str, ...]
    text: list[str]
    constants: list[str]


def _epilogue(body: Graph, problem: Problem, element: str) -> _Epilogue:
    nest, sections = problem.nest, sections_of_sums(body)
    output = nest.node.output
    kept = tuple(i for i in nest.kept if i != nest.sections)
    domain = Domain(tuple(nest.axes[i].extent for i in kept))
    places = tuple(
        Place(tuple(a.coefficients[i] for i in kept), a.offset) for a in nest.section_place
    )
    names = Names()
    pointers = names.pointers(body)
    walk = Walk(body, domain, pointers, names)
    if sections is None:
        walk.give(output, places, "sum")
    else:
        for i, here in enumerate(every_section(places, sections)):
            walk.give(output, here, f"sum[{i}]")
    shape = output.type.shape
    section = sections.shape(shape) if sections else shape
    wanted = [(v, p) for v in body.outputs for p in pieces(body, v, places, section, sections)]
    walk.store_all(wanted)
    program = walk.taken()
    kinds = [next(n for n, axes in enumerate(problem.kept) if i in axes) for i in kept]
    _, groups = merge_axes(domain, program.accesses, kinds)
    index = index_type(body)
    axes = [tuple(kept[d] for d in group) for group in groups]
    indices = [nest.axes[group[-1]].name for group in axes]
    merged = program.merged(groups)
    used = merged.used(indices)
    members = {
        name: f"{'const ' if v in body.inputs else ''}{C_TYPES[v.type.dtype]}* {name};"
        for v, name in pointers.items()
        if name in program.pointers
    }
    total = f"const {element}* sum" if sections else f"{element} sum"
    text = [
        "struct Epilogue {",
        *(f"  {member}" for member in members.values()),
        "",
        f"  GRAPHC_INLINE void operator()(int batch, int row, int column, {total}) const {{",
        *(
            f"    {_index(problem, group, name, index)}"
            for group, name in zip(axes, indices, strict=True)
            if name in used
        ),
        *(f"    {line}" for line in merged.lines(indices, "1")),
        "  }",
        "};",
    ]
    return _Epilogue(program, pointers, tuple(members), text, constant_arrays(program))


def _index(problem: Problem, group: tuple[int, ...], name: str, index: str) -> str:
    """The definition of the index of merged kept axes, from that of the batch, row or column."""
    nest = problem.nest
    for whole, axes in zip(("batch", "row", "column"), problem.kept, strict=True):
        if group[0] in axes:
            after = axes[axes.index(group[-1]) + 1 :]
            step, extent = nest.extents(after), nest.extents(group)
            text = f"{whole} / {step}" if step > 1 else whole
            first = step * extent == nest.extents(axes)
            return f"const {index} {name} = {text if first else f'{text} % {extent}'};"
    raise AssertionError(f"{name} is kept")


def _shape(problem: Problem, tile: Tile, splits: int) -> list[str]:
    batches, m, n, k = problem.sizes
    sections = problem.nest.section_count
    units, whole = tile.units(sections), n
    lines = ["  static constexpr int sections = 1;"]
    if sections > 1:
        whole = -(-n // units) * tile.n
        lines = [f"  static constexpr int sections = {sections}, section = {n}, units = {units};"]
    return [
        "struct Problem {",
        f"  static constexpr int M = {m}, N = {whole}, K = {k};",
        f"  static constexpr int batches = {batches}, splits = {splits};",
        *lines,
        f"  using Sum = {C_TYPES[problem.nest.node.output.type.dtype]};",
        "  using A = RowAccess;",
        "  using B = ColumnAccess;",
        "};",
        f"using Tile = {tile};",
    ]


def _column(tile: Tile, n: int, problem: Problem) -> tuple[str, ...]:
    """The column of the product that column i of the tiles is: `units` of each section in turn;
    what is left of a tile, and of the last one, repeats a column whose sums are not used."""
    sections = problem.nest.section_count
    if sections == 1:
        return ()
    units, vector = tile.units(sections), 1 if problem.b.along_k else problem.b.vector
    return (
        f"const int place = i % {tile.n}, section = smaller(place / {units}, {sections - 1});",
        f"const int unit = i / {tile.n} * {units} + place % {units};",
        f"i = section * {n} + smaller(unit, {n - vector});",
    )


def _comment(problem: Problem, axes: Sequence[int], what: str) -> str:
    def listed(group: Sequence[int]) -> str:
        return " ".join(f"{problem.nest.axes[i].name}={problem.nest.axes[i].extent}" for i in group)

    batch = f", batch {listed(problem.batch)}" if problem.batch else ""
    return f"{what} {listed(axes) or 'none'}, k {listed(problem.nest.summed)}{batch}"
