"""The tiles of tensor.cuh, which of all a contraction takes, and splits of k."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from graphc.kernels.cuda.contract.access import OperandAccess
from graphc.kernels.cuda.contract.contract import Problem
from graphc.kernels.cuda.contract.split_k import BY_LAUNCH, SplitKOptions
from graphc.kernels.cuda.contract.tiles.register_tiles import MOST_DRAWN, TILES, Tile
from graphc.kernels.cuda.contract.tiles.tile import PRODUCTS, RingTile, parts_of, tiles_of
from graphc.kernels.cuda.shared.gpu_model import GPU

FEW = 256
"""Sums that are left to one block: what follows in another one of a joined launch would make all
blocks wait for each other."""
LEAST_STEPS = 4
"""Steps of the pipeline that a split is worth."""
SPLITS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 264)
"""Parts of k that are tried, beside those whose blocks fill all multiprocessors."""

STEP = 100
"""Cycles of a step of the pipeline beside its instructions, where nothing else runs meanwhile: a
barrier, and the way from shared memory to registers."""
ISSUE = 2.0
"""Cycles of an instruction of a warp that runs alone: many wait for the one before."""
SUM = 0.2
"""Cycles of a multiprocessor for each sum that a block stores or hands to the epilogue: about 25
instructions, some of them accesses, in four warps at a time."""
CARVED = (8, 16, 32, 64, 100, 132, 164, 196, 228)
"""KiB of them that shared memory may take; a block takes one more than it asks for."""
USABLE = 0.75
"""The share of the rest that keeps what a tile reads again: a guess, as others read there too."""


@dataclass(frozen=True)
class Operand:
    """How one operand is copied to shared memory: `vector` elements of `size` bytes at once, along
    k or along rows or columns. A `matrix` TMA can copy."""

    size: int
    vector: int
    along_k: bool
    matrix: bool = False
    bordered: bool = False

    @staticmethod
    def of(access: OperandAccess) -> Operand:
        size = access.read.type.numpy_dtype.itemsize
        bordered = bool(access.borders)
        return Operand(size, access.vector, access.along_k, access.is_matrix, bordered)


@dataclass(frozen=True)
class TensorTile(RingTile):
    """Of tensor cores, whose sums are always of float32. So much of a step's k is `unrolled`, 0 for
    all."""

    unrolled: int = 0
    groups: ClassVar[int] = 1
    header: ClassVar[str] = "contract/tiles/tensor"
    size_name: ClassVar[str] = "shared_bytes"

    @property
    def threads(self) -> int:
        return 32 * (self.m // self.tm) * (self.n // self.tn)

    @property
    def draws(self) -> bool:
        return self.tm * self.tn <= 32 * MOST_DRAWN

    def instructions(self, size: int) -> float:
        """As of `Tile`, in machine code: of a fragment the load, its place, and the rounding of
        four registers if they are of four bytes; of a copy where it lies in an image."""
        products = self.tm * self.tn * self.k * size / (16 * 8 * 32)
        fragments = (self.tm + self.tn) / 16 * self.k * size / 32
        return products + fragments * (7 if size == 4 else 3) + self.copying(size, 20)

    def shared_bytes(self, size: int) -> int:
        """Of a block, with operands of `size` bytes."""
        return self.ring_bytes(size)

    def copies(self, a: Operand, b: Operand) -> bool:
        """Whether its threads can copy such operands: each keeps its place on a line, and what it
        knows of its lines fits registers."""
        for operand, outer in ((a, self.m), (b, self.n)):
            line, lines = (self.k, outer) if operand.along_k else (outer, self.k)
            per_line = line // operand.vector
            if self.threads % per_line:
                return False
            most = MOST_LINES // 2 if self.tm * self.tn >= 64 * 32 else MOST_LINES
            if operand.along_k and -(-lines * per_line // self.threads) > most:
                return False
        return True

    def units(self, sections: int) -> int:
        """As of `Tile`, a multiple of 8; sums of more than 128 columns leave their block in parts,
        so that no thread has those of all sections."""
        if sections == 1:
            return self.n
        return self.n // sections // 8 * 8 if self.n <= 128 else 0

    def dynamic_bytes(self, problem: Problem) -> int:
        return self.shared_bytes(problem.a.read.type.numpy_dtype.itemsize)

    def order(self, element: str, rows: int) -> str:
        """Tensor cores add the products of a fragment at once, whatever the tile; which operand
        gives the rows matters where a product is three."""
        return f"{self.unit}, {PRODUCTS[element]}, k ascending, rows of {rows}"

    @property
    def shape(self) -> str:
        return f"{self.m} x {self.n} x {self.k}"

    def __str__(self) -> str:
        numbers = (self.m, self.n, self.k, self.tm, self.tn, self.stages)
        unrolled = (self.unrolled,) if self.unrolled else ()
        return f"TensorCores<{', '.join(map(str, (*numbers, *unrolled)))}>"


@dataclass(frozen=True)
class GroupTile(TensorTile):
    """As `TensorTile`, of wgmma: a warp group computes 64 rows of the sums, 128 columns at a time,
    of operands of two bytes."""

    header: ClassVar[str] = "contract/tiles/wgmma"
    unit: ClassVar[str] = "wgmma"
    by: ClassVar[str] = "tensor cores by wgmma"

    @property
    def draws(self) -> bool:
        """Not tried."""
        return False

    def instructions(self, size: int) -> float:
        """As of `TensorTile`: products read shared memory by themselves."""
        return self.n / 128 * self.k / 16 * 6 + self.copying(size, 20)

    def __str__(self) -> str:
        return f"WarpGroups<{self.m}, {self.n}, {self.k}, {self.stages}>"


MOST_LINES = 16
"""Lines of a tile of which a thread copies a part: it holds an offset for each. Half as many where
its warp has the largest sums."""
SHORT_TILES = (
    TensorTile(128, 256, 32, 64, 64, 3, 1, 1.0),
    TensorTile(128, 128, 64, 64, 64, 3, 2, 1.0),
    TensorTile(128, 64, 64, 32, 32, 3, 2, 0.9),
    TensorTile(64, 128, 64, 32, 32, 3, 2, 0.9),
    TensorTile(64, 64, 64, 32, 32, 4, 3, 0.8),
    TensorTile(128, 32, 64, 32, 32, 3, 3, 0.75),
    TensorTile(64, 32, 64, 32, 16, 4, 4, 0.6),
    TensorTile(32, 64, 64, 16, 32, 4, 4, 0.6),
    TensorTile(32, 32, 64, 16, 16, 4, 6, 0.4),
)
"""Of operands of two bytes. Shared memory takes at most 96 KiB, which every GPU of compute
capability 8.0 or newer has. Speeds are guesses, from the ratio of multiply-adds to shared reads."""
LONG_TILES = (
    TensorTile(128, 128, 32, 64, 32, 3, 2, 1.0, 16),
    TensorTile(64, 192, 32, 64, 32, 3, 2, 0.95),
    TensorTile(32, 96, 32, 32, 32, 4, 3, 0.75),
    TensorTile(128, 32, 32, 32, 32, 4, 2, 0.72),
    *(replace(t, k=32) for t in SHORT_TILES[2:]),
)
"""Of float32 operands, which take twice the room, and more registers; rounding takes time that more
warps hide. Some of 96 and 192 columns are for whole taps of a weight gradient; of those of 128 x 32
one leaves more of L1, as fewer blocks have more stages."""
GROUP_TILES = (
    GroupTile(128, 256, 64, 16, 256, 4, 1, 1.4),
    GroupTile(128, 128, 64, 16, 128, 3, 2, 1.2),
)
"""Of operands of two bytes, with `GRAPHC_WGMMA`: on a GPU of compute capability 9.0 alone, whose
blocks may have 227 KiB. Speeds are guesses beside `SHORT_TILES`: wgmma is said to reach 80 % of the
peak where mma.sync reaches 62 %."""
SPEEDS = {"half": 12.0, "bfloat": 12.0, "tf32": 4.0, "as_bfloat": 4.0, "float": 2.0}
"""Multiply-adds of the best tile of tensor cores for each of the best of `TILES`, by element: from
an H200's data sheet at the share of its peak that mma.sync is said to reach; of tf32 what shared
memory gives fragments and takes from copies meanwhile."""
FULL = 512
"""Threads of a multiprocessor of which each has 128 registers at most."""
GeneralTile = Tile | TensorTile


def tensor_tiles(
    element: str,
    a: Operand,
    b: Operand,
    groups: bool = False,
    bulk: Sequence[GroupTile] = (),
) -> list[TensorTile]:
    """The tiles of tensor cores for such operands, also those of wgmma if warp `groups` may
    multiply, those in `bulk` before them; speeds are in units of the best of `TILES`."""
    tiles = SHORT_TILES if a.size == 2 else LONG_TILES
    if groups and a.size == b.size == 2:
        tiles = (*bulk, *GROUP_TILES, *tiles)
    if element == "float":  # fragments of both parts of larger tiles do not fit registers
        tiles = tuple(t for t in tiles if t.tm * t.tn <= 32 * 32)
        if a.bordered and not b.along_k:  # nor do, beside an image's borders, b's whole places
            tiles = tuple(
                replace(t, unrolled=t.k // 2) if t.threads * t.blocks >= FULL else t for t in tiles
            )
    if a.size == 4 and (a.bordered or b.bordered):
        tiles = tuple(
            replace(t, blocks=1, unrolled=0) if t.m * t.n >= 128 * 128 else t for t in tiles
        )
    return [replace(t, speed=t.speed * SPEEDS[element]) for t in tiles if t.copies(a, b)]


Share = Callable[[int, int], float]
"""The share of the steps that tiles of so many rows take, each so deep; infinite if none can be."""
Keeps = Callable[[GeneralTile], bool]
"""Whether the sums of a tile are in a wanted order."""
Choice = tuple[float, GeneralTile, int]
"""Cycles, a tile, and splits of k."""


Copied = Callable[[GeneralTile], float]
"""The bytes of a tile's step that come from the second-level cache."""


def every_step(rows: int, depth: int) -> float:
    """All steps."""
    return 1.0


def choices(
    batches: int,
    m: int,
    n: int,
    k: int,
    itemsize: int = 4,
    sections: int = 1,
    operand: int = 4,
    tensor: Sequence[TensorTile] = (),
    share: Share = every_step,
    keeps: Keeps | None = None,
    copied: Copied | None = None,
    split_k: SplitKOptions = BY_LAUNCH,
) -> list[Choice]:
    """The tiles and the numbers of splits of k that there are, with what they are estimated to
    take on a large device.
    With `sections` of `n` columns each, whose epilogue takes them together, k is not split;
    `operand` is the size of its operands' elements, `tensor` what tensor cores may take. Of those
    that one `keeps`, if given, those that do not split k. What is `copied` is all of a step's tiles
    if nothing else is said; `split_k` are who may add the parts."""
    found: list[Choice] = []
    few = keeps is None and batches * m * n <= FEW
    plain = [t for t in TILES if t.fits(itemsize) and not (few and t.m * t.n < FEW)]
    plain = [t for t in plain if sections == t.groups == 1 or t.exchanges(itemsize, operand)]
    whole: list[GeneralTile] = [*plain, *tensor]
    tried = [t for t in whole if keeps is None or keeps(t)]
    cut = sections == 1 and keeps is None
    for tile in (t for t in tried if t.units(sections)):
        tiles = tiles_of(tile, batches, m, n, sections)
        steps = -(-k // tile.k) * share(tile.m, tile.k)
        if steps == math.inf:
            continue
        columns = tile.n / tile.cluster
        moved = copied(tile) if copied else (tile.m + columns) * tile.k * operand
        for splits in _parts(tile, tiles) if cut else (1,):
            if splits > 1 and steps < splits * LEAST_STEPS:
                break
            cost = _cycles(tile, tiles * splits, math.ceil(steps / splits), operand)
            cost = max(cost, (tiles * steps * moved + batches * m * n * itemsize) / GPU.l2_rate)
            if splits > 1:
                partial = parts_of(tile, tiles, splits, batches * m * n, itemsize)
                cost += split_k.best(partial)[0]
            found.append((cost, tile, splits))
    assert found
    return found


def _parts(tile: GeneralTile, tiles: int) -> list[int]:
    """The parts of k that are tried with so many tiles."""
    full = (GPU.multiprocessors * blocks // tiles for blocks in range(1, tile.blocks + 1))
    return sorted({*SPLITS, *(splits for splits in full if splits)})


def room_in_l1(tile: GeneralTile, size: int) -> float:
    """Bytes of L1 for what a block's copies read again, with operands of `size` bytes."""
    shared = tile.blocks * (tile.ring_bytes(size) + 1024)
    taken = next((kib * 1024 for kib in CARVED if kib * 1024 >= shared), GPU.l1)
    return USABLE * (GPU.l1 - taken) / tile.blocks


def several(found: Sequence[Choice]) -> list[Choice]:
    """Of `choices` the cheapest of each tile, the cheapest first; right behind it its tile with the
    next best number of splits."""
    ordered = sorted(found, key=lambda choice: choice[0])
    each: dict[GeneralTile, Choice] = {}
    for choice in ordered:
        each.setdefault(choice[1], choice)
    first, *others = each.values()
    again = [c for c in ordered if c[1] == first[1] and c is not first][:1]
    return [first, *again, *others]


def _cycles(tile: GeneralTile, blocks: int, steps: float, operand: int) -> float:
    """What so many blocks of so many steps take: the rounds in which they run, each as long as
    the arithmetic of its blocks, or as one block takes alone."""
    step = tile.m * tile.n * tile.k / (GPU.multiply_adds * tile.speed)
    alone = max(step, ISSUE * tile.instructions(operand)) + STEP
    rounds = GPU.rounds(blocks, tile.blocks)
    sums = tile.m * tile.n * SUM * (1 + (tile.groups > 1) * tile.groups / 4)
    times = (n * (max(b * step, alone) * steps + b * sums) for n, b in rounds)
    return sum(times)
