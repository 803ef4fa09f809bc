"""The text of a contraction's kernels: accesses, the epilogue, and one launch or two."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from graphc.ir.sections import sections_of_sums
from graphc.kernels.cuda.contract.access import OperandAccess
from graphc.kernels.cuda.contract.column_sums import (
    ACROSS,
    LINES,
    ColumnSums,
    FusedReduction,
    fused_reduction_of,
)
from graphc.kernels.cuda.contract.contract import Problem, in_parts, make_problem
from graphc.kernels.cuda.contract.describe import describe
from graphc.kernels.cuda.contract.epilogue import (
    epilogue_space,
    functor,
    runs_of_sums,
)
from graphc.kernels.cuda.contract.options import ContractOptions
from graphc.kernels.cuda.contract.schedules import (
    ContractSchedule,
    ContractTile,
    products,
    schedules,
)
from graphc.kernels.cuda.contract.split_k import SplitK
from graphc.kernels.cuda.contract.split_k_text import (
    in_order,
    partial_sums,
    places_of_sums,
    second_launch,
)
from graphc.kernels.cuda.contract.taps import problems_by_taps
from graphc.kernels.cuda.convolution.halo import halo_tiles, single_channel_tiles
from graphc.kernels.cuda.convolution.halo_gradient import halo_gradient_tiles, im2col_tiles
from graphc.kernels.cuda.convolution.staging import HaloFound
from graphc.kernels.cuda.reduce.launches import add_reduction
from graphc.kernels.cuda.shared.kernel_source import FEW_THREADS, RESIDENT, THREADS, constant_arrays
from graphc.kernels.cuda.shared.launches import Launches, LaunchMode
from graphc.kernels.program.body.statement import joined
from graphc.kernels.program.counts import check_counts
from graphc.kernels.program.epilogue import Epilogue, epilogue_of
from graphc.kernels.program.kernel import Kernel
from graphc.kernels.program.nest import contraction_nest, sectioned_nest
from graphc.ops.fused import KernelNode
from graphc.ops.pointwise.logic import C_TYPES

DEFAULTS = ContractOptions()


def lower_contract(node: KernelNode, options: ContractOptions = DEFAULTS) -> Kernel:
    """The kernel of a fused node with a contraction; every value is row-major."""
    return next(contract_candidates(node, options))


def contract_candidates(node: KernelNode, options: ContractOptions = DEFAULTS) -> Iterator[Kernel]:
    """The kernels that may compute it, by the model's `schedules`, the best first."""
    found, flops, behind = _schedules(node, options)
    for rank, schedule in enumerate(found, 1):
        yield _kernel(node, flops, schedule, options, rank, behind)


def contract_cycles(node: KernelNode) -> float:
    """The cycles that a fused contraction is estimated to take alone."""
    found, _, _ = _schedules(node, DEFAULTS)
    return found[0].cycles


def _schedules(
    node: KernelNode, options: ContractOptions
) -> tuple[list[ContractSchedule], int, FusedReduction | None]:
    """The schedules of a contraction, its FLOP, and what it does with the output besides."""
    order, looped, split_k = options.order, options.looped, options.split_k
    behind = fused_reduction_of(node.body, split_k.tickets and not looped)
    body = behind.before if behind else node.body
    nest, cut = contraction_nest(body, lanes=False), sections_of_sums(body)
    whole, first = in_parts(sectioned_nest(nest, cut) if cut else nest)
    problem = make_problem(whole, body, first=first)
    taps = [] if order else problems_by_taps(nest, body)
    if behind is not None:  # whose sums of columns are those of whole blocks
        _, m, n, _ = problem.sizes
        adds = behind.of_rows and behind.adding(behind.text(None, 0), m, n, 2) is not None
        options = replace(options, split_k=replace(split_k, clusters=False, behind=adds))
    element, _ = products(problem, replace(options, splits_products=False))
    held: list[HaloFound] = []
    if not (order or looped):
        held = halo_tiles(nest, body, element, options.concurrent)
    if not (order or looped or behind):
        held += halo_gradient_tiles(nest, body, element, options.concurrent)
        held += single_channel_tiles(nest, body, element)
        held += im2col_tiles(nest, body, element, options.concurrent)
    return schedules(problem, taps, options, held), nest.flops, behind


def _kernel(
    node: KernelNode,
    flops: int,
    schedule: ContractSchedule,
    options: ContractOptions,
    rank: int,
    behind: FusedReduction | None,
) -> Kernel:
    """The kernel of a schedule; `behind` is what it does with the output besides."""
    body, problem, taps = node.body, schedule.problem, schedule.taps
    tile, splits, finish = schedule.tile, schedule.splits, schedule.finish
    body = behind.before if behind else body
    batches, m, n, k = problem.sizes
    count, number = batches * m * n, problem.nest.section_count
    itemsize = problem.nest.node.output.type.numpy_dtype.itemsize
    check_counts(node, batches=batches, rows=m, columns=n * number, terms_per_sum=k)
    element, lack = products(problem, options)
    columns = replace(problem.b, outer_index=_column(tile, n, problem))
    workspace = tile.workspace(m)
    if finish is SplitK.BLOCK:
        workspace = schedule.partial.workspace
    elif finish is SplitK.LAUNCH:
        workspace = splits * count * itemsize
    sums, text = None, None
    if behind is None:
        epilogue = epilogue_of(body, problem.nest, *epilogue_space(problem))
    else:
        epilogue = behind.epilogue(problem.nest, *epilogue_space(problem))
        runs = runs_of_sums(problem, epilogue) is not None and batches == 1
        launched = splits if finish is SplitK.LAUNCH else 1
        sums = ColumnSums.of(behind, problem, tile, launched, workspace) if runs else None
        text = behind.text(sums, workspace)
        adds = runs and sums is None and finish is SplitK.LAUNCH and in_order(problem)
        if adds and itemsize == 4 and (adding := behind.adding(text, m, n, splits)):
            begins = f"add_parts<Problem>(rows, partial, {_values(epilogue)});"
            text = replace(adding, prologue=(partial_sums(problem), begins))
    launches = Launches(
        node, epilogue.pointers, max(workspace, text.workspace if text else 0), epilogue.inplace
    )
    _launch(launches, schedule, epilogue, sums, bool(text and text.prologue))
    if text is not None:
        add_reduction(text, launches, "rows_{}")
    sections = (
        constant_arrays(
            joined((epilogue.program, text.rows.program)) if text else epilogue.program
        ),
        *(text.types if text else ()),
        tile.text() or problem.a.text("RowAccess", _comment(problem, problem.rows, "row")),
        columns.text("ColumnAccess", _comment(problem, problem.columns, "column")),
        _shape(schedule),
        functor(body, problem, epilogue, sums, tile.looped),
    )
    choice, note = describe(schedule, element, lack, rank)
    clustered = finish is SplitK.CLUSTER
    headers = [tile.header, *(["reduce/reduce"] if text else []), "shared/memory"]
    headers += ["contract/cluster_sums"] if clustered else []
    block = f"ClusterBlock<{splits}>" if clustered else "WholeBlock"
    kernel = launches.kernel(headers, sections, flops, choice, note, block)
    whole = splits == 1 and taps is None and behind is None
    order = tile.order(element, problem.a.read.input) if whole else ""
    return replace(
        kernel,
        resident_bytes=tile.kept_bytes(problem),
        double_buffered=tile.double_buffered,
        summation_order=order,
    )


def _launch(
    launches: Launches,
    schedule: ContractSchedule,
    epilogue: Epilogue,
    sums: ColumnSums | None,
    added: bool,
) -> None:
    """Add the kernel, or that of the parts and the one that adds them, by runs of sums, or the one
    whose parts the last block of a tile or a cluster adds. All but the last add up `sums` of
    columns. In a joined launch no block draws a ticket: a second part adds those of the first, in
    the order in which the last block does."""
    problem, tile, splits = schedule.problem, schedule.tile, schedule.splits
    names = list(epilogue.pointers.values())
    operands = [_pointer(x, names[x.read.input]) for x in (problem.a, problem.b)]
    partial = sums.values(launches) if sums else []
    whole = _values(epilogue, partial)
    if tile.add_launches(launches, problem, epilogue, operands, whole):
        return
    tiles, maps = tile.tiles(problem), tile.maps(problem)
    call = tile.call(operands, list(maps))
    more = tile.threads, tile.blocks, tile.dynamic_bytes(problem)
    if splits == 1:
        own = tile.owned(launches.node.body, problem, epilogue, tiles)
        launches.add([f"{call}, {whole});"], tiles, "kernel", 1, *more, own, maps, tile.cluster)
        if tile.keeps:
            held, (_, weights) = tile.template, operands
            launches.add_resident_loader(
                [f"{held}::hold(held, block, {weights});"], f"{held}::Weights"
            )
        return
    if schedule.finish is SplitK.CLUSTER:
        launches.add([f"{call}, {whole});"], tiles * splits, "kernel", 1, *more, (), maps, splits)
        return
    played, draws = LaunchMode.EITHER, schedule.finish is SplitK.BLOCK
    if draws:
        played = (
            LaunchMode.EITHER if sums else LaunchMode.ALONE
        )  # no other launch sums columns as tiles do
        counters = launches.counters(tiles, played)
        drawing = f"const DrawingBlock own{{block, workspace, {counters}}};"
        lines = [drawing, f"{call.replace('(block', '(own', 1)}, {whole});"]
        launches.add(lines, tiles, "kernel", splits, *more, mode=played)
        if sums:
            return
        played = LaunchMode.JOINED
    store = partial_sums(problem)
    part = "StorePartial<Problem>{partial, block.y()}"
    first = [store, f"{call}, {part});"]
    launches.add(first, tiles, "kernel", splits, *more, (), maps, tile.cluster, played)
    if added:
        return
    if sums is not None:
        settings = f"Problem, {ACROSS}, {LINES}, {sums.each}"
        second = [store, f"finish_columns<{settings}>(block, partial, {whole});"]
        resident = RESIDENT * THREADS // FEW_THREADS
        launches.add(second, sums.across, "finish", sums.parts, FEW_THREADS, resident)
        return
    lines, blocks, part = second_launch(problem, splits, whole, ascending=draws)
    launches.add(lines, blocks, part, threads=FEW_THREADS, mode=played)


def _values(epilogue: Epilogue, partial: Sequence[str] = ()) -> str:
    """The epilogue as a value of its arrays."""
    return f"Epilogue{{{', '.join((*epilogue.used, *partial))}}}"


def _pointer(access: OperandAccess, name: str) -> str:
    return f"reinterpret_cast<const {access.element}*>({name})" if access.read.rounded else name


def _shape(schedule: ContractSchedule) -> list[str]:
    problem, tile, splits, taps = (
        schedule.problem,
        schedule.tile,
        schedule.splits,
        schedule.taps,
    )
    batches, m, n, k = problem.sizes
    sections = problem.nest.section_count
    units, whole = tile.units(sections), n
    lines = ["  static constexpr int sections = 1;"]
    if sections > 1:
        whole = -(-n // units) * tile.n
        lines = [f"  static constexpr int sections = {sections}, section = {n}, units = {units};"]
    launched = schedule.finish in (SplitK.LAUNCH, SplitK.BLOCK)
    cut = places_of_sums(problem, splits) if launched else []
    table, met = [], ["  static constexpr int taps = 0;"]
    if taps is not None:
        bits = [f"{b:#x}" for b in taps.tiles(tile.m)]
        table = [f"__device__ const unsigned taps_of_tiles[] = {{{', '.join(bits)}}};"]
        met = [
            f"  static constexpr int taps = {taps.count};",
            "  GRAPHC_INLINE static unsigned live_taps(int i) { return taps_of_tiles[i]; }",
        ]
    name, size = tile.size_name, tile.dynamic_bytes(problem)
    checked = [f"static_assert({tile.template}::{name} == {size});"] if name else []
    return [
        *table,
        "struct Problem {",
        f"  static constexpr int M = {m}, N = {whole}, K = {k};",
        f"  static constexpr int batches = {batches}, splits = {splits};",
        *lines,
        *met,
        *cut,
        f"  using Sum = {C_TYPES[problem.nest.node.output.type.dtype]};",
        *(() if tile.text() else ("  using A = RowAccess;",)),
        "  using B = ColumnAccess;",
        "};",
        *tile.declaration(),
        *checked,
    ]


def _column(tile: ContractTile, n: int, problem: Problem) -> tuple[str, ...]:
    """The column of the product that column i of the tiles is: `units` of each section in turn;
    what is left of a tile, and of the last one, repeats a column whose sums are not used."""
    sections = problem.nest.section_count
    if sections == 1 or not tile.interleaved:
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
