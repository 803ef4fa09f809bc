"""The ways in which a contraction may be computed: which tile, how often k is cut, with or without
taps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from graphc.kernels.cuda.bulk_tiles import BULK_TILES
from graphc.kernels.cuda.contract import Problem
from graphc.kernels.cuda.copies import Copies
from graphc.kernels.cuda.finishing import BY_LAUNCH, Finish, Finishes, Partial
from graphc.kernels.cuda.patch_gradient import GradientTile
from graphc.kernels.cuda.patch_tile import PatchTile
from graphc.kernels.cuda.persistent_tile import PersistentTile, persistent_tile
from graphc.kernels.cuda.register_tiles import Tile
from graphc.kernels.cuda.row_tile import WAITED, RowTile, row_tile
from graphc.kernels.cuda.taps import Taps
from graphc.kernels.cuda.tiles import (
    AnyTile,
    GroupTile,
    Keeps,
    Operand,
    TensorTile,
    choices,
    every_step,
    several,
    tensor_tiles,
    tiles_of,
)

MOST = 5
"""Ways that are worth a measurement: what the model puts further behind is rarely the fastest, and
each is a kernel to compile."""
WORTH = 0.8
"""The share of its time that a contraction is to take without the steps that its tiles do not need:
finding them, and rows that are further apart, take time too."""
PATCH_WORTH, SKIPPING_WORTH, GRADIENT_WORTH = 0.85, 0.9, 0.95
"""The same share for a block that holds the pixels that it reads, of a convolution or a data
gradient, where tiles take all steps or leave some out, and of a gradient of filters."""
SHORT = ("half", "bfloat", "tf32", "as_bfloat")
"""The elements of operands that tensor cores multiply as exactly as registers do."""
REGISTERS = "registers, k ascending"
"""The order of tiles of registers: one multiply-add after another."""


@dataclass(frozen=True)
class Way:
    """`problem` in tiles, with k in so many `splits`, estimated to take `cycles`; `taps` say which
    steps a tile leaves out, if it does. `finishes` are who may add the parts."""

    cycles: float
    tile: AnyTile | PatchTile | GradientTile | RowTile | PersistentTile
    splits: int
    problem: Problem
    taps: Taps | None = None
    finishes: Finishes = BY_LAUNCH

    @property
    def finish(self) -> Finish | None:
        """Who adds the parts of k; None if there is one."""
        if self.splits == 1:
            return None
        if isinstance(self.tile, PatchTile | GradientTile):
            return Finish.LAUNCH
        return self.finishes.best(self.partial)[1]

    @property
    def partial(self) -> Partial:
        """The parts of k."""
        held = PatchTile | GradientTile | RowTile | PersistentTile
        assert not isinstance(self.tile, held), "no block of theirs adds parts"
        batches, m, n, _ = self.problem.sizes
        itemsize = self.problem.nest.node.output.type.numpy_dtype.itemsize
        tiles = tiles_of(self.tile, batches, m, n, self.problem.nest.section_count)
        return Partial.of(self.tile, tiles, self.splits, batches * m * n, itemsize)


PatchFound = tuple[float, Problem, PatchTile | GradientTile, int]
"""Cycles, the problem, a tile whose blocks hold the pixels that they read, and parts of k."""


def ways(
    problem: Problem,
    by_taps: Sequence[tuple[Problem, Taps]],
    splits_products: bool,
    order: str = "",
    groups: bool = False,
    looped: bool = False,
    bulk: bool = False,
    finishes: Finishes = BY_LAUNCH,
    patches: Sequence[PatchFound] = (),
    beside: int = 1,
) -> list[Way]:
    """The ways that should be fastest, the best by the model first, at most `MOST`; of one `order`,
    if it is given; by wgmma too if warp `groups` may multiply, in `bulk` of what TMA copies.
    `by_taps` are the problem with its rows ordered by taps, if it has them, and `patches` the tiles
    whose blocks hold the pixels that they read. Of a `looped` one each way whose blocks do not own
    their rows, or hold what they read in each iteration, takes a wait of all blocks more. Costs are
    those of so many alike `beside` each other. `finishes` are who may add parts of k; joined
    launches know the second launch alone, so it is that of what is looped."""
    choose = partial(
        _ways,
        splits=splits_products,
        order=order,
        groups=groups,
        bulk=bulk,
        finishes=BY_LAUNCH if looped else finishes,
        beside=beside,
    )
    found = choose(problem, None)
    others = [way for each in by_taps for way in choose(*each)]
    best = min(others, key=lambda way: way.cycles, default=found[0])
    first = best if best.cycles < WORTH * found[0].cycles else found[0]
    held = [Way(cycles, tile, splits, whole) for cycles, whole, tile, splits in patches]
    held.sort(key=lambda way: way.cycles)
    if held:
        worth = SKIPPING_WORTH if first.taps else PATCH_WORTH
        worth = GRADIENT_WORTH if isinstance(held[0].tile, GradientTile) else worth
        first = held[0] if held[0].cycles < worth * first.cycles else first
    own = _by_rows(problem) or _persistent(problem) if looped else None
    if own and own.cycles < first.cycles + WAITED:
        first = own
    rest = [way for way in found + others + held if way is not first]
    return [first, *sorted(rest, key=lambda way: way.cycles)][:MOST]


def _by_rows(problem: Problem) -> Way | None:
    """The way in which blocks own rows of the output, if there is one: of float32, or what becomes
    float32 where it is read, without borders, of which four are copied at a time, the rows' along
    k."""
    batches, m, n, k = problem.sizes
    a, b = problem.a, problem.b
    plain = all(
        x.element in ("float", *SHORT) and x.vector % 4 == 0 and not x.borders for x in (a, b)
    )
    sums = problem.nest.node.output.type.dtype == "f32"
    if batches != 1 or problem.limits or not (plain and sums and a.along_k):
        return None
    first = tuple(int(i == 0) for i in range(len(problem.nest.axes)))
    places = [(a.coefficients, a.offset) for a in problem.nest.output[:1]]
    if problem.rows != (0,) or places != [(first, 0)]:
        return None
    found = row_tile(m, n, k, problem.nest.section_count, b.along_k)
    return Way(*found, 1, problem) if found else None


def _persistent(problem: Problem) -> Way | None:
    """The way in which blocks hold the columns' operand, if there is one: of float32, or an element
    that tensor cores multiply exactly, without borders, whose sums are of one axis of rows and one
    of columns."""
    batches, m, n, k = problem.sizes
    element = problem.a.element
    plain = element == problem.b.element in ("float", *SHORT)
    plain = plain and not (problem.a.borders or problem.b.borders)
    sums = problem.nest.node.output.type.dtype == "f32"
    if batches != 1 or problem.limits or problem.batch or not (plain and sums):
        return None
    if len(problem.rows) != 1 or len(problem.columns) != 1:
        return None
    found = persistent_tile(m, n, k, problem.nest.section_count, element)
    return Way(*found, 1, problem) if found else None


def _ways(
    problem: Problem,
    taps: Taps | None,
    splits: bool,
    order: str,
    groups: bool,
    bulk: bool,
    finishes: Finishes,
    beside: int,
) -> list[Way]:
    element, lack = products(problem, splits)
    a, b = problem.a, problem.b
    both = Operand.of(a), Operand.of(b)
    copied = BULK_TILES if bulk and taps is None else ()
    tensor = [] if lack else tensor_tiles(element, *both, groups, copied)
    narrow = min(x.read.type.numpy_dtype.itemsize for x in (a, b))
    itemsize = problem.nest.node.output.type.numpy_dtype.itemsize
    sections = problem.nest.section_count
    share = every_step if taps is None else taps.share
    keeps: Keeps | None = None
    if order:
        registers = order.startswith("registers")
        wanted = partial(_adds_in, order if registers else REGISTERS)
        of_groups = partial(_is_tensor, order.startswith("wgmma"))
        keeps = wanted if registers or not tensor else of_groups
    (batches, m, n, k), moved = problem.sizes, Copies(problem)
    sizes = batches * beside, m, n, k
    found = choices(*sizes, itemsize, sections, narrow, tensor, share, keeps, moved, finishes)
    return [Way(*choice, problem, taps, finishes) for choice in several(found)]


def order_of(tile: Tile) -> str:
    """The order in which a tile of registers adds, the same for all tiles that share steps alike:
    one multiply-add after another, in each group of threads."""
    if tile.groups == 1:
        return REGISTERS
    return f"registers, k ascending in {tile.groups} shares of every {tile.k}"


def _adds_in(order: str, tile: AnyTile) -> bool:
    return isinstance(tile, Tile) and order_of(tile) == order


def _is_tensor(of_groups: bool, tile: AnyTile) -> bool:
    return isinstance(tile, TensorTile) and isinstance(tile, GroupTile) == of_groups


def products(problem: Problem, splits: bool) -> tuple[str, str]:
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
