"""The schedules by which a contraction may be computed: which tile, how often k is cut, with or
without taps, and what they are estimated to take."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from graphc.kernels.cuda.contract.contract import Problem
from graphc.kernels.cuda.contract.copies import Copies
from graphc.kernels.cuda.contract.options import ContractOptions
from graphc.kernels.cuda.contract.split_k import BY_LAUNCH, Partial, SplitK, SplitKOptions
from graphc.kernels.cuda.contract.taps import Taps
from graphc.kernels.cuda.contract.tiles.bulk_tiles import BULK_TILES
from graphc.kernels.cuda.contract.tiles.register_tiles import REGISTERS
from graphc.kernels.cuda.contract.tiles.tensor_tiles import (
    GeneralTile,
    Keeps,
    Operand,
    choices,
    every_step,
    several,
    tensor_tiles,
)
from graphc.kernels.cuda.contract.tiles.tile import parts_of
from graphc.kernels.cuda.convolution.staging import HaloFound, HaloTile
from graphc.kernels.cuda.recurrent.resident import (
    PersistentTile,
    RowTile,
    persistent_tile,
    row_tile,
)
from graphc.kernels.cuda.shared.gpu_model import GPU

MOST = 5
"""Schedules that are worth a measurement: what the model puts further behind is rarely the fastest,
and each is a kernel to compile."""
WORTH = 0.8
"""The share of its time that a contraction is to take without the steps that its tiles do not need:
finding them, and rows that are further apart, take time too."""
SHORT = ("half", "bfloat", "tf32", "as_bfloat")
"""The elements of operands that tensor cores multiply as exactly as registers do."""
ContractTile = GeneralTile | HaloTile | RowTile | PersistentTile
"""A tile of any kind."""


@dataclass(frozen=True)
class ContractSchedule:
    """`problem` in tiles, with k in so many `splits`, estimated to take `cycles`; `taps` say which
    steps a tile leaves out, if it does. `split_k` are what may add the parts."""

    cycles: float
    tile: ContractTile
    splits: int
    problem: Problem
    taps: Taps | None = None
    split_k: SplitKOptions = BY_LAUNCH

    @property
    def finish(self) -> SplitK | None:
        """Who adds the parts of k; None if there is one."""
        return None if self.splits == 1 else self.split_k.best(self.partial)[1]

    @property
    def partial(self) -> Partial:
        """The parts of k."""
        batches, m, n, _ = self.problem.sizes
        itemsize = self.problem.nest.node.output.type.numpy_dtype.itemsize
        tiles = self.tile.tiles(self.problem)
        return parts_of(self.tile, tiles, self.splits, batches * m * n, itemsize)


def schedules(
    problem: Problem,
    by_taps: Sequence[tuple[Problem, Taps]],
    options: ContractOptions,
    patches: Sequence[HaloFound] = (),
) -> list[ContractSchedule]:
    """The schedules that should be fastest, the best by the model first, at most `MOST`.
    `by_taps` are the problem with its rows ordered by taps, if it has them, and `patches` the tiles
    whose blocks hold the pixels that they read. In a loop each schedule whose blocks do not own
    their rows, or keep what they read in each iteration, takes a wait of all blocks more; joined
    launches know the second launch alone, so that adds the parts of k there."""
    if options.looped:
        options = replace(options, split_k=BY_LAUNCH)
    choose = partial(_schedules, options=options)
    found = choose(problem, None)
    others = [found for each in by_taps for found in choose(*each)]
    best = min(others, key=lambda each: each.cycles, default=found[0])
    first = best if best.cycles < WORTH * found[0].cycles else found[0]
    held = [ContractSchedule(cycles, tile, splits, p) for cycles, p, tile, splits in patches]
    held.sort(key=lambda each: each.cycles)
    if held:
        worth = held[0].tile.worth(first.taps is not None)
        first = held[0] if held[0].cycles < worth * first.cycles else first
    own = _resident(problem, options) if options.looped else None
    if own and own.cycles < first.cycles + GPU.grid_barrier:
        first = own
    rest = [each for each in found + others + held if each is not first]
    return [first, *sorted(rest, key=lambda each: each.cycles)][:MOST]


def _resident(problem: Problem, options: ContractOptions) -> ContractSchedule | None:
    """The schedule whose blocks own rows of the output in a loop, or else hold their columns'
    operand, if there is one: of elements that tensor cores multiply exactly, or of float32, without
    borders. Rows are owned where four elements are copied at a time, the rows' along k; weights are
    held of sums of one axis of rows and one of columns."""
    batches, m, n, k = problem.sizes
    a, b, sections = problem.a, problem.b, problem.nest.section_count
    elements = ("float", *SHORT) if options.tensor_cores else ("float",)
    plain = all(x.element in elements and not x.borders for x in (a, b))
    sums = problem.nest.node.output.type.dtype == "f32"
    if batches != 1 or problem.limits or not (plain and sums):
        return None
    found: tuple[float, RowTile | PersistentTile] | None = None
    first = tuple(int(i == 0) for i in range(len(problem.nest.axes)))
    places = [(index.coefficients, index.offset) for index in problem.nest.output[:1]]
    by_fours = a.vector % 4 == b.vector % 4 == 0 and a.along_k
    if by_fours and problem.rows == (0,) and places == [(first, 0)]:
        found = row_tile(m, n, k, sections, b.along_k)
    single = len(problem.rows) == len(problem.columns) == 1 and not problem.batch
    if found is None and single and a.element == b.element:
        found = persistent_tile(m, n, k, sections, a.element)
    return ContractSchedule(*found, 1, problem) if found else None


def _schedules(
    problem: Problem, taps: Taps | None, options: ContractOptions
) -> list[ContractSchedule]:
    element, lack = products(problem, options)
    a, b = problem.a, problem.b
    both = Operand.of(a), Operand.of(b)
    copied = BULK_TILES if options.bulk_copies and taps is None else ()
    tensor = [] if lack else tensor_tiles(element, *both, options.warp_groups, copied)
    narrow = min(x.read.type.numpy_dtype.itemsize for x in (a, b))
    itemsize = problem.nest.node.output.type.numpy_dtype.itemsize
    sections = problem.nest.section_count
    share = every_step if taps is None else taps.share
    keeps: Keeps | None = None
    if options.order:
        keeps = partial(_keeps, options.order, bool(tensor))
    (batches, m, n, k), moved = problem.sizes, Copies(problem)
    sizes, split_k = (batches * options.concurrent, m, n, k), options.split_k
    found = choices(*sizes, itemsize, sections, narrow, tensor, share, keeps, moved, split_k)
    return [ContractSchedule(*choice, problem, taps, split_k) for choice in several(found)]


def _keeps(order: str, tensor: bool, tile: GeneralTile) -> bool:
    """Whether a tile adds in the wanted order; where there are no `tensor` tiles for one of theirs,
    registers add one product after another."""
    if order.startswith("registers") or not tensor:
        wanted = order if order.startswith("registers") else REGISTERS
        return tile.unit == "registers" and tile.order("", 0) == wanted
    return tile.unit == ("wgmma" if order.startswith("wgmma") else "tensor cores")


def products(problem: Problem, options: ContractOptions) -> tuple[str, str]:
    """The element that both operands have for tensor cores, or what keeps them away."""
    if not options.tensor_cores:
        return "", "the device's tensor cores multiply halves alone"
    sums = problem.nest.node.output.type.dtype
    a, b = (x.element for x in (problem.a, problem.b))
    if sums != "f32":
        return "", f"its sums are of {sums}"
    if a != b:
        return "", f"its operands are of {a} and {b}"
    if a in SHORT or (options.splits_products and a == "float"):
        return a, ""
    return "", f"its operands are of {a}"
