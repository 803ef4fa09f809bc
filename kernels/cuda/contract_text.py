"""The text of a contraction's kernels: accesses, the epilogue, and one launch or two."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from graphc.kernels.cuda.access import OperandAccess
from graphc.kernels.cuda.bulk_tiles import BulkTile
from graphc.kernels.cuda.column_sums import ACROSS, LINES, Behind, ColumnSums, behind_of
from graphc.kernels.cuda.contract import Problem, in_parts, make_problem
from graphc.kernels.cuda.contract_epilogue import (
    epilogue_space,
    functor,
    runs_of_sums,
)
from graphc.kernels.cuda.contract_notes import PRODUCTS, LoopedTile, told
from graphc.kernels.cuda.contract_ways import PatchFound, Way, order_of, products, ways
from graphc.kernels.cuda.finishing import BY_LAUNCH, Finish, Finishes
from graphc.kernels.cuda.flat_gradient import flat_tiles
from graphc.kernels.cuda.own import owned
from graphc.kernels.cuda.patch import patch_tiles
from graphc.kernels.cuda.patch_gradient import GradientTile, gradient_tiles
from graphc.kernels.cuda.patch_tile import PatchTile
from graphc.kernels.cuda.persistent_text import launch_persistent
from graphc.kernels.cuda.persistent_tile import PAIRED, PersistentTile
from graphc.kernels.cuda.plane import plane_tiles
from graphc.kernels.cuda.reduce_launches import add_reduction
from graphc.kernels.cuda.register_tiles import Tile
from graphc.kernels.cuda.row_tile import RowTile
from graphc.kernels.cuda.shell import (
    FEW_THREADS,
    RESIDENT,
    THREADS,
    Launches,
    Played,
    constant_arrays,
    wrapped,
)
from graphc.kernels.cuda.split_text import (
    in_order,
    partial_sums,
    places_of_sums,
    second_launch,
)
from graphc.kernels.cuda.taps import problems_by_taps
from graphc.kernels.cuda.tiles import GroupTile, TensorTile, tiles_of
from graphc.kernels.program.counts import check_counts
from graphc.kernels.program.epilogue import Epilogue, epilogue_of
from graphc.kernels.program.kernel import Kernel, TensorMap
from graphc.kernels.program.nest import contraction_nest, sectioned_nest
from graphc.kernels.program.statement import joined
from graphc.ops.fused import KernelNode
from graphc.ops.logic import C_TYPES
from graphc.passes.fuse.sections import sections_of_sums


def lower_contract(
    node: KernelNode,
    splits_products: bool = False,
    groups: bool = False,
    order: str = "",
    looped: bool = False,
    bulk: bool = False,
    finishes: Finishes = BY_LAUNCH,
    beside: int = 1,
) -> Kernel:
    """The kernel of a fused node with a contraction; every value is row-major. With
    `splits_products` tensor cores may make a product of float32 of three, with `groups` warp
    groups may multiply (wgmma), in `bulk` of what TMA copies; `finishes` are who may add parts of
    k. A given `order` is that of another
    kernel, and what tiles are chosen among keeps to it. `looped` is what iterations of a loop
    compute, whose blocks had better own their rows. A device computes so many like it `beside`
    each other."""
    more = groups, order, looped, bulk, finishes, beside
    return next(contract_candidates(node, splits_products, *more))


def contract_candidates(
    node: KernelNode,
    splits_products: bool = False,
    groups: bool = False,
    order: str = "",
    looped: bool = False,
    bulk: bool = False,
    finishes: Finishes = BY_LAUNCH,
    beside: int = 1,
) -> Iterator[Kernel]:
    """The kernels that may compute it, by the model's `ways`, the best first; the best where so
    many like it are computed `beside` each other."""
    settings = splits_products, groups, order, looped, bulk, finishes, beside
    found, flops, behind = _found(node, *settings)
    for rank, way in enumerate(found, 1):
        yield _kernel(node, flops, way, splits_products, rank, behind)


def contract_cycles(node: KernelNode) -> float:
    """The cycles that a fused contraction is estimated to take alone."""
    found, _, _ = _found(node, False, False, "", False, False, BY_LAUNCH, 1)
    return found[0].cycles


def _found(
    node: KernelNode,
    splits_products: bool,
    groups: bool,
    order: str,
    looped: bool,
    bulk: bool,
    finishes: Finishes,
    beside: int,
) -> tuple[list[Way], int, Behind | None]:
    """The ways of a contraction, its FLOP, and what it does with the output besides."""
    behind = behind_of(node.body, finishes.tickets and not looped)
    body = behind.before if behind else node.body
    nest, cut = contraction_nest(body, lanes=False), sections_of_sums(body)
    whole, first = in_parts(sectioned_nest(nest, cut) if cut else nest)
    problem = make_problem(whole, body, first=first)
    taps = [] if order else problems_by_taps(nest, body)
    if behind is not None:  # whose sums of columns are those of whole blocks
        _, m, n, _ = problem.sizes
        adds = behind.of_rows and behind.adding(behind.text(None, 0), m, n, 2) is not None
        finishes = replace(finishes, clusters=False, behind=adds)
    element, _ = products(problem, False)
    held: list[PatchFound] = []
    if not (order or looped):
        found = patch_tiles(nest, body, element)
        held = [(cycles * beside, p, tile, tile.splits) for cycles, p, tile in found]
    if not (order or looped or behind):
        held += gradient_tiles(nest, body, element, beside)
        held += [(*each, 1) for each in plane_tiles(nest, body, element)]
        held += flat_tiles(nest, body, element, beside)
    settings = splits_products, order, groups, looped, bulk, finishes, held, beside
    return ways(problem, taps, *settings), nest.flops, behind


def _kernel(
    node: KernelNode,
    flops: int,
    way: Way,
    splits_products: bool,
    rank: int,
    behind: Behind | None,
) -> Kernel:
    """The kernel of a way; `behind` is what it does with the output besides."""
    body, problem, taps, tile, splits = node.body, way.problem, way.taps, way.tile, way.splits
    body = behind.before if behind else body
    batches, m, n, k = problem.sizes
    count, number = batches * m * n, problem.nest.section_count
    itemsize = problem.nest.node.output.type.numpy_dtype.itemsize
    check_counts(node, batches=batches, rows=m, columns=n * number, terms_per_sum=k)
    element, lack = products(problem, splits_products)
    columns = replace(problem.b, outer_index=_column(tile, n, problem))
    finish, workspace = way.finish, 0
    if finish is Finish.BLOCK:
        workspace = way.partial.workspace
    elif finish is Finish.LAUNCH:
        workspace = splits * count * itemsize
    if isinstance(tile, PersistentTile):
        workspace = tile.workspace(m)
    sums, text = None, None
    if behind is None:
        epilogue = epilogue_of(body, problem.nest, *epilogue_space(problem))
    else:
        epilogue = behind.epilogue(problem.nest, *epilogue_space(problem))
        runs = runs_of_sums(problem, epilogue) is not None and batches == 1
        assert not isinstance(tile, GradientTile), "it adds up no columns"
        launched = splits if finish is Finish.LAUNCH else 1
        sums = ColumnSums.of(behind, problem, tile, launched, workspace) if runs else None
        text = behind.text(sums, workspace)
        adds = runs and sums is None and finish is Finish.LAUNCH and in_order(problem)
        if adds and itemsize == 4 and (adding := behind.adding(text, m, n, splits)):
            begins = f"add_parts<Problem>(rows, partial, {_values(epilogue)});"
            text = replace(adding, begins=(partial_sums(problem), begins))
    launches = Launches(
        node, epilogue.pointers, max(workspace, text.workspace if text else 0), epilogue.inplace
    )
    _launch(launches, way, epilogue, sums, bool(text and text.begins))
    if text is not None:
        add_reduction(text, launches, "rows_{}")
    sections = (
        constant_arrays(joined((epilogue.program, text.rows.whole)) if text else epilogue.program),
        *(text.types if text else ()),
        tile.text()
        if isinstance(tile, PatchTile | GradientTile)
        else problem.a.text("RowAccess", _comment(problem, problem.rows, "row")),
        columns.text("ColumnAccess", _comment(problem, problem.columns, "column")),
        _shape(way),
        functor(body, problem, epilogue, sums, isinstance(tile, PersistentTile | RowTile)),
    )
    choice, note = told(problem, tile, splits, element, lack, rank, finish)
    clustered = finish is Finish.CLUSTER
    headers = [tile.header, *(["reduce"] if text else []), "memory"]
    headers += ["cluster_sums"] if clustered else []
    block = f"ClusterBlock<{splits}>" if clustered else "WholeBlock"
    kernel = launches.kernel(headers, sections, flops, choice, note, block)
    if isinstance(tile, PersistentTile):
        held = _held(problem) * (2 if problem.b.element in PAIRED else 4)
        return replace(kernel, held=held, turns=tile.parts > 1)
    if isinstance(tile, RowTile) and tile.holds:
        size = problem.b.read.type.numpy_dtype.itemsize
        kernel = replace(kernel, held=_held(problem) * size)
    whole = splits == 1 and taps is None and behind is None
    return replace(kernel, order=_order(problem, tile, element)) if whole else kernel


def _order(problem: Problem, tile: LoopedTile, element: str) -> str:
    """The order of sums whose k is not split. Tensor cores add the products of a fragment at once,
    whatever the tile; which operand gives the rows matters where a product is three."""
    if isinstance(tile, Tile):
        return order_of(tile)
    if isinstance(tile, PatchTile | GradientTile | RowTile | PersistentTile):
        return ""
    by = "wgmma" if isinstance(tile, GroupTile) else "tensor cores"
    return f"{by}, {PRODUCTS[element]}, k ascending, rows of {problem.a.read.input}"


def _launch(
    launches: Launches,
    way: Way,
    epilogue: Epilogue,
    sums: ColumnSums | None,
    added: bool,
) -> None:
    """Add the kernel, or that of the parts and the one that adds them, by runs of sums, or the one
    whose parts the last block of a tile or a cluster adds. All but the last add up `sums` of
    columns. In a joined launch no block draws a ticket: a second part adds those of the first, in
    the order in which the last block does."""
    problem, tile, splits = way.problem, way.tile, way.splits
    batches, m, n, _ = problem.sizes
    names = list(epilogue.pointers.values())
    operands = ", ".join(_pointer(x, names[x.read.input]) for x in (problem.a, problem.b))
    partial = sums.values(launches) if sums else []
    whole = _values(epilogue, partial)
    if isinstance(tile, PersistentTile):
        return launch_persistent(launches, problem, tile, epilogue, operands.split(", "), whole)
    number = problem.nest.section_count
    plain = PatchTile | GradientTile | RowTile
    if isinstance(tile, plain):
        tiles = -(-m // tile.m) * -(-n // tile.units(number)) * batches
    else:
        tiles = tiles_of(tile, batches, m, n, number)
    shared, call = 0, f"{tile.template}::run(block, {operands}"
    maps: dict[str, TensorMap] = {}
    if isinstance(tile, TensorTile):
        shared = tile.shared_bytes(problem.a.read.type.numpy_dtype.itemsize)
        call = f"{tile.template}::run_in(block, dynamic_shared, {operands}"
    if isinstance(tile, PatchTile):
        tiles, shared = tile.grid, tile.shared_bytes(problem.b.along_k)
        call = f"{tile.template}::run_in(block, dynamic_shared, {operands}"
    if isinstance(tile, GradientTile):
        tiles, shared = tile.grid, tile.shared_bytes
        call = f"{tile.template}::run_in(block, dynamic_shared, {operands}"
    if isinstance(tile, BulkTile):
        maps = {f"map_{x}": access.map_of() for x, access in (("a", problem.a), ("b", problem.b))}
        call = f"{tile.template}::run(block, dynamic_shared, {', '.join(maps)}"
    cluster = 1 if isinstance(tile, plain) else tile.cluster
    more = tile.threads, tile.blocks, shared
    if splits == 1:
        rows = isinstance(tile, RowTile)
        own = owned(launches.node.body, tiles, problem.nest.node.output) if rows else ()
        launches.add([f"{call}, {whole});"], tiles, "kernel", 1, *more, own, maps, cluster)
        if isinstance(tile, RowTile) and tile.holds:
            held, weights = tile.template, operands.split(", ")[1]
            launches.hold([f"{held}::hold(held, block, {weights});"], f"{held}::Weights")
        return
    if way.finish is Finish.CLUSTER:
        launches.add([f"{call}, {whole});"], tiles * splits, "kernel", 1, *more, (), maps, splits)
        return
    played, draws = Played.EITHER, way.finish is Finish.BLOCK
    if draws:
        played = Played.EITHER if sums else Played.ALONE  # no other launch sums columns as tiles do
        counters = launches.counters(tiles, played)
        drawing = f"const DrawingBlock own{{block, workspace, {counters}}};"
        lines = [drawing, f"{call.replace('(block', '(own', 1)}, {whole});"]
        launches.add(lines, tiles, "kernel", splits, *more, played=played)
        if sums:
            return
        played = Played.JOINED
    store = partial_sums(problem)
    part = "StorePartial<Problem>{partial, block.y()}"
    first = [store, f"{call}, {part});"]
    launches.add(first, tiles, "kernel", splits, *more, (), maps, cluster, played)
    if added:
        return
    if sums is not None:
        settings = f"Problem, {ACROSS}, {LINES}, {sums.each}"
        second = [store, f"finish_columns<{settings}>(block, partial, {whole});"]
        resident = RESIDENT * THREADS // FEW_THREADS
        launches.add(second, sums.across, "finish", sums.parts, FEW_THREADS, resident)
        return
    lines, blocks, part = second_launch(problem, splits, whole, ascending=draws)
    launches.add(lines, blocks, part, threads=FEW_THREADS, played=played)


def _values(epilogue: Epilogue, partial: Sequence[str] = ()) -> str:
    """The epilogue as a value of its arrays."""
    return f"Epilogue{{{', '.join((*epilogue.used, *partial))}}}"


def _pointer(access: OperandAccess, name: str) -> str:
    return f"reinterpret_cast<const {access.element}*>({name})" if access.read.rounded else name


def _held(problem: Problem) -> int:
    """How many elements of the columns' operand all blocks together read."""
    _, _, n, k = problem.sizes
    return n * problem.nest.section_count * k


def _shape(way: Way) -> list[str]:
    problem, tile, splits, taps = way.problem, way.tile, way.splits, way.taps
    batches, m, n, k = problem.sizes
    sections = problem.nest.section_count
    units, whole = tile.units(sections), n
    lines = ["  static constexpr int sections = 1;"]
    if sections > 1:
        whole = -(-n // units) * tile.n
        lines = [f"  static constexpr int sections = {sections}, section = {n}, units = {units};"]
    launched = way.finish in (Finish.LAUNCH, Finish.BLOCK)
    cut = places_of_sums(problem, splits) if launched else []
    table, met = [], ["  static constexpr int taps = 0;"]
    if taps is not None:
        bits = [f"{b:#x}" for b in taps.tiles(tile.m)]
        table = wrapped("__device__ const unsigned taps_of_tiles[] = {", bits, "};")
        met = [
            f"  static constexpr int taps = {taps.count};",
            "  GRAPHC_INLINE static unsigned live_taps(int i) { return taps_of_tiles[i]; }",
        ]
    checked = []
    if isinstance(tile, PatchTile):
        shared = tile.shared_bytes(problem.b.along_k)
        checked = [f"static_assert({tile.template}::bytes == {shared});"]
    if isinstance(tile, GradientTile):
        checked = [f"static_assert({tile.template}::bytes == {tile.shared_bytes});"]
    if isinstance(tile, TensorTile):
        shared = tile.shared_bytes(problem.a.read.type.numpy_dtype.itemsize)
        checked = [f"static_assert({tile.template}::shared_bytes == {shared});"]
    return [
        *table,
        "struct Problem {",
        f"  static constexpr int M = {m}, N = {whole}, K = {k};",
        f"  static constexpr int batches = {batches}, splits = {splits};",
        *lines,
        *met,
        *cut,
        f"  using Sum = {C_TYPES[problem.nest.node.output.type.dtype]};",
        *(() if isinstance(tile, PatchTile | GradientTile) else ("  using A = RowAccess;",)),
        "  using B = ColumnAccess;",
        "};",
        *([] if isinstance(tile, PersistentTile) else [f"using Tile = {tile};"]),
        *checked,
    ]


def _column(tile: LoopedTile, n: int, problem: Problem) -> tuple[str, ...]:
    """The column of the product that column i of the tiles is: `units` of each section in turn;
    what is left of a tile, and of the last one, repeats a column whose sums are not used."""
    sections = problem.nest.section_count
    if sections == 1 or isinstance(tile, PatchTile | GradientTile | RowTile | PersistentTile):
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
    return f"{what} {listed(axes) or 'none'}, k {listed(problem.depth)}{batch}"
