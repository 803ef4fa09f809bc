"""The text of a contraction's kernels: accesses, the epilogue, and one launch or two."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from graphc.ir import Graph
from graphc.kernels.cuda.access import OperandAccess
from graphc.kernels.cuda.contract import Problem, make_problem
from graphc.kernels.cuda.shell import (
    FEW_THREADS,
    Launches,
    constant_arrays,
    index_type,
)
from graphc.kernels.cuda.tiles import AnyTile, Operand, TensorTile, choose_tile, tensor_tiles
from graphc.kernels.program.access import Domain, Place
from graphc.kernels.program.counts import check_counts
from graphc.kernels.program.epilogue import Epilogue, epilogue_of
from graphc.kernels.program.kernel import Kernel
from graphc.kernels.program.nest import Nest, contraction_nest, sectioned_nest
from graphc.ops.fused import KernelNode
from graphc.ops.logic import C_TYPES
from graphc.passes.fuse.sections import sections_of_sums


def lower_contract(node: KernelNode, splits_products: bool = False) -> Kernel:
    """The kernel of a fused node with a contraction; every value is row-major. With
    `splits_products` tensor cores may make a product of float32 of three."""
    body = node.body
    nest, cut = contraction_nest(body), sections_of_sums(body)
    problem = make_problem(sectioned_nest(nest, cut) if cut else nest)
    batches, m, n, k = problem.sizes
    count, number = batches * m * n, problem.nest.section_count
    itemsize = problem.nest.node.output.type.numpy_dtype.itemsize
    check_counts(node, batches=batches, rows=m, columns=n * number, terms_per_sum=k)
    narrow = min(x.read.type.numpy_dtype.itemsize for x in (problem.a, problem.b))
    element, lack = _products(problem, splits_products)
    tensor = [] if lack else tensor_tiles(element, Operand.of(problem.a), Operand.of(problem.b))
    tile, splits = choose_tile(batches, m, n, k, itemsize, number, narrow, tensor)
    epilogue = epilogue_of(body, problem.nest, *_space(problem.nest))
    columns = replace(problem.b, outer_index=_column(tile, n, problem))
    workspace = splits * count * itemsize if splits > 1 else 0
    launches = Launches(node, epilogue.pointers, workspace, epilogue.inplace)
    _launch(launches, problem, tile, splits, epilogue)
    sections = (
        constant_arrays(epilogue.program),
        problem.a.text("RowAccess", _comment(problem, problem.rows, "row")),
        columns.text("ColumnAccess", _comment(problem, problem.columns, "column")),
        _shape(problem, tile, splits),
        _functor(body, problem, epilogue),
    )
    header = "tensor" if isinstance(tile, TensorTile) else "contract"
    choice, note = _told(problem, tile, splits, element, lack)
    return launches.kernel((header, "memory"), sections, problem.nest.flops, choice, note)


SHORT = ("half", "bfloat", "tf32")
"""The elements of operands that tensor cores multiply as exactly as registers do."""


PRODUCTS = {"half": "f16", "bfloat": "bf16", "tf32": "tf32", "float": "f32 in three of tf32"}
"""What notes call them."""


def _products(problem: Problem, splits: bool) -> tuple[str, str]:
    """The element that both operands have for tensor cores, or what keeps them away."""
    sums = problem.nest.node.output.type.dtype
    a, b = (x.element for x in (problem.a, problem.b))
    if sums != "f32":
        return "", f"its sums are of {sums}"
    if a != b:
        return "", f"its operands are of {a} and {b}"
    if a in SHORT or (splits and a == "float"):
        return a, ""
    return "", f"its operands are of {a}"


def _told(problem: Problem, tile: AnyTile, splits: int, element: str, lack: str) -> tuple[str, str]:
    """What is said of the tile, and what the plan notes of a contraction of reduced precision."""
    batches, m, n, k = problem.sizes
    cut = f", k in {splits} parts added in order" if splits > 1 else ""
    of = f"a {tile.m} x {tile.n} tile of sums per block, {tile.k} of k per step{cut}"
    product = f"{batches} x " * (batches > 1) + f"{m} x {n} sums of {k} products"
    narrow = any(x.element in SHORT for x in (problem.a, problem.b))
    if isinstance(tile, TensorTile):
        return f"tensor cores, {of}: of those tried the cheapest for {product}", (
            f"tensor cores, products of {PRODUCTS[element]}, {tile.m} x {tile.n} x {tile.k}"
        )
    why = lack or "for sums so few they are estimated to be slower"
    return f"registers, {of}: of those tried the cheapest for {product}", (
        f"no tensor cores: {why}" if narrow else ""
    )


def _launch(
    launches: Launches, problem: Problem, tile: AnyTile, splits: int, epilogue: Epilogue
) -> None:
    """Add the kernel, or that of the parts and the one that adds them."""
    batches, m, n, _ = problem.sizes
    tiles = -(-m // tile.m) * -(-n // tile.units(problem.nest.section_count)) * batches
    names = list(epilogue.pointers.values())
    operands = ", ".join(_pointer(x, names[x.read.input]) for x in (problem.a, problem.b))
    shared, call = 0, f"run({operands}"
    if isinstance(tile, TensorTile):
        shared = tile.shared_bytes(problem.a.read.type.numpy_dtype.itemsize)
        call = f"run_in(dynamic_shared, {operands}"
    whole = f"Epilogue{{{', '.join(epilogue.used)}}}"
    if splits == 1:
        lines = [f"Contract<Problem, Tile>::{call}, {whole});"]
        launches.add(lines, tiles, "kernel", 1, tile.threads, tile.blocks, shared)
        return
    element = C_TYPES[problem.nest.node.output.type.dtype]
    partial = f"const auto partial = reinterpret_cast<{element}*>(workspace);"
    part = "StorePartial<Problem>{partial}"
    first = [partial, f"Contract<Problem, Tile>::{call}, {part});"]
    launches.add(first, tiles, "kernel", splits, tile.threads, tile.blocks, shared)
    second = [partial, f"finish_splits<Problem>(partial, {whole});"]
    launches.add(second, -(-batches * m * n // FEW_THREADS), "finish", threads=FEW_THREADS)


def _pointer(access: OperandAccess, name: str) -> str:
    return f"reinterpret_cast<const {access.element}*>({name})" if access.read.rounded else name


def _kept(nest: Nest) -> tuple[int, ...]:
    """The axes of the epilogue's domain."""
    return tuple(i for i in nest.kept if i != nest.sections)


def _space(nest: Nest) -> tuple[Domain, tuple[Place, ...]]:
    """The epilogue's domain, and where the output, or a section of it, lies there."""
    kept = _kept(nest)
    places = (Place(tuple(a.coefficients[i] for i in kept), a.offset) for a in nest.section_place)
    return Domain(tuple(nest.axes[i].extent for i in kept)), tuple(places)


def _functor(body: Graph, problem: Problem, epilogue: Epilogue) -> list[str]:
    """The struct `Epilogue` of the arrays, with what is done to a sum, or to those of sections."""
    nest, kept, index = problem.nest, _kept(problem.nest), index_type(body)
    kinds = [next(n for n, axes in enumerate(problem.kept) if i in axes) for i in kept]
    merged, groups = epilogue.merged(kinds)
    axes = [tuple(kept[d] for d in group) for group in groups]
    indices = [nest.axes[group[-1]].name for group in axes]
    used = merged.program.used(indices)
    element = C_TYPES[nest.node.output.type.dtype]
    total = f"{element} sum" if nest.sections is None else f"const {element}* sum"
    return [
        "struct Epilogue {",
        *(
            f"  {'const ' if v in body.inputs else ''}{C_TYPES[v.type.dtype]}* {name};"
            for name, v in epilogue.used.items()
        ),
        "",
        f"  GRAPHC_INLINE void operator()(int batch, int row, int column, {total}) const {{",
        *(
            f"    {_index(problem, group, name, index)}"
            for group, name in zip(axes, indices, strict=True)
            if name in used
        ),
        *(f"    {line}" for line in merged.program.lines(indices, "1")),
        "  }",
        "};",
    ]


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


def _shape(problem: Problem, tile: AnyTile, splits: int) -> list[str]:
    batches, m, n, k = problem.sizes
    sections = problem.nest.section_count
    units, whole = tile.units(sections), n
    lines = ["  static constexpr int sections = 1;"]
    if sections > 1:
        whole = -(-n // units) * tile.n
        lines = [f"  static constexpr int sections = {sections}, section = {n}, units = {units};"]
    checked = []
    if isinstance(tile, TensorTile):
        shared = tile.shared_bytes(problem.a.read.type.numpy_dtype.itemsize)
        checked = [f"static_assert(Contract<Problem, Tile>::shared_bytes == {shared});"]
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
        *checked,
    ]


def _column(tile: AnyTile, n: int, problem: Problem) -> tuple[str, ...]:
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
