"""Tiles of halo_gradient.cuh, whose blocks keep the sums of all taps of a filter's gradient."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

from graphc.ir import ROW_MAJOR, Graph
from graphc.kernels.cuda.contract.contract import Problem, make_problem
from graphc.kernels.cuda.contract.split_k import Partial
from graphc.kernels.cuda.contract.tiles.tile import PRODUCTS, TileAnswers
from graphc.kernels.cuda.convolution.halo import TAPS, image_of
from graphc.kernels.cuda.convolution.halo_tile import Halo
from graphc.kernels.cuda.shared.gpu_model import GPU
from graphc.kernels.program.nest import Nest

GRADIENTS = ("conv2d_wgrad",)
"""Ops whose first operand is images, read at pixels of taps, and whose second is images as well."""
MOST_TAPS = 49
"""Of a filter: 7 x 7."""
MOST_SUMS = 144
"""Of a thread."""
WARPS = 8
"""Of a block."""
NARROW = 4
"""Channels of images so narrow that eight columns are those of two taps."""
ALONE = 2.2
"""Cycles of an instruction of a warp that runs alone."""
START, STEP = 2000, 150
"""Cycles until a block's first lines are there, and in which it waits in a step."""
COPY = 28
"""Instructions that copy 16 bytes and round them."""
SUM, RUN_SUM = 0.3, 0.1
"""Cycles for each sum that leaves a block, alone or in a run of four."""
WORTH = 0.95
"""The share of its time that a gradient of filters is to take with such tiles."""


@dataclass(frozen=True)
class HaloGradientTile(TileAnswers):
    """`n` of the filter's input channels and `m` of its output channels per block, which goes
    through `lines` lines of output per step; `y` are the elements of an image, a line and a pixel
    of dy, and `columns` the channels that a tap has columns for."""

    x: Halo
    y: tuple[int, int, int]
    outputs: int
    columns: int
    rows: int
    m: int
    n: int
    lines: int
    blocks: int = 1
    k: ClassVar[int] = 8
    groups: ClassVar[int] = 1
    header: ClassVar[str] = "convolution/halo_gradient"
    template: ClassVar[str] = "HaloGradient<Problem, Halo, Tile>"
    size_name: ClassVar[str] = "bytes"

    @property
    def threads(self) -> int:
        return 32 * WARPS

    def units(self, sections: int) -> int:
        return self.n

    @property
    def narrow(self) -> bool:
        return self.n == NARROW

    @property
    def across(self) -> int:
        """Warps side by side, each with eight columns."""
        taps = self.x.columns.taps
        most = next(count for count in (8, 4, 2, 1) if count == 1 or taps > count)
        return most if self.narrow else self.n // 8

    @property
    def held(self) -> int:
        """Times eight, a warp's columns."""
        return self.x.rows.taps if self.narrow else self.x.taps

    @property
    def fragments(self) -> int:
        """Times 16, a warp's rows."""
        return self.m * self.across // (16 * WARPS)

    @property
    def paired(self) -> bool:
        """Whether products take two lines together."""
        q = self.x.columns.outputs
        return q % 8 == 4 and self.x.rows.outputs % 2 == 0

    @property
    def products(self) -> int:
        """Of eight pixels, for each line or pair of lines."""
        q = self.x.columns.outputs
        return -(-q // 4) if self.paired else -(-q // 8)

    @property
    def grid(self) -> int:
        return -(-self.columns // self.n) * -(-self.rows // self.m)

    @property
    def bands(self) -> int:
        """Steps of an image."""
        return -(-self.x.rows.outputs // self.lines)

    def window(self, step: int) -> tuple[int, int]:
        """The first line of x that a step reads, of all images, and the one behind the last."""
        y, p = self.x.rows, step % self.bands * self.lines
        last = min(p + self.lines, y.outputs) - 1
        low = max(0, p * y.step + y.first)
        high = min(y.extent, last * y.step + (y.taps - 1) * y.tap + y.first + 1)
        before = step // self.bands * y.extent
        return before + low, before + max(low, high)

    @cached_property
    def slots(self) -> int:
        """Lines of x that a step and the next one read."""
        count = min(2 * self.bands, self.bands * self.x.images)
        windows = [self.window(i) for i in range(count)]
        pairs = itertools.pairwise(windows)
        return max(windows[0][1] - windows[0][0], *(b[1] - a[0] for a, b in pairs), 1)

    @cached_property
    def shared_bytes(self) -> int:
        """As HaloGradient::bytes."""
        x = self.x.columns
        wide = 8 * self.across
        pixel = self.n if self.narrow else self.n + (8 if x.step % 2 else 4)
        filled = x.outputs if self.paired else 8 * self.products
        reach = wide if self.narrow else ((x.taps - 1) * x.tap + 1) * pixel
        read = ((filled - 1) * x.step + x.first) * pixel + reach
        beside = max(0, -x.first) * pixel
        line = max(x.extent * pixel + beside, read)
        lines = beside + self.slots * line + (line + beside) * self.paired
        whole = lines + 2 * self.lines * filled * (self.m + 8)
        return 4 * max(whole, 16 * WARPS // self.across * (wide + 8) + 4)

    @property
    def held_by_block(self) -> str:
        """What is said of it."""
        return f"{self.lines} lines of dy and all taps read, {self.m} x {self.n} channels"

    def tiles(self, problem: Problem) -> int:
        return self.grid

    def dynamic_bytes(self, problem: Problem) -> int:
        return self.shared_bytes

    def call(self, operands: Sequence[str], maps: Sequence[str]) -> str:
        return f"{self.template}::run_in(block, dynamic_shared, {', '.join(operands)}"

    def worth(self, skipping: bool) -> float:
        return WORTH

    def multiplied(self, element: str) -> tuple[str, str, str] | None:
        return "tensor cores", PRODUCTS[element], f"{self.m} x {self.n} channels of all taps"

    def describe(self, cut: str) -> str:
        return f"blocks that hold what {self.held_by_block}{cut}"

    def __str__(self) -> str:
        return f"HaloGradientTile<{self.m}, {self.n}, {self.lines}, {self.slots}>"

    def text(self) -> list[str]:
        """The lines of struct Halo of halo_gradient.cuh."""
        y, x = self.x.rows, self.x.columns
        names = "image", "line", "pixel"
        of_x = ", ".join(f"{name} = {n}" for name, n in zip(names, self.x.strides, strict=True))
        of_y = ", ".join(f"y_{name} = {n}" for name, n in zip(names, self.y, strict=True))
        numbers = [
            f"images = {self.x.images}, P = {y.outputs}, Q = {x.outputs}",
            f"H = {y.extent}, W = {x.extent}, R = {y.taps}, S = {x.taps}",
            f"down = {y.step}, tap_down = {y.tap}, top = {y.first}",
            f"across = {x.step}, tap_across = {x.tap}, left = {x.first}",
            f"channels = {self.x.channels}, {of_x}",
            f"outputs = {self.outputs}, {of_y}",
            f"columns = {self.columns}",
        ]
        return ["struct Halo {", *(f"  static constexpr int {each};" for each in numbers), "};"]


Found = tuple[float, Problem, HaloGradientTile, int]
"""Cycles, the problem, the tile, and parts of k."""


def halo_gradient_tiles(nest: Nest, body: Graph, element: str, beside: int = 1) -> list[Found]:
    """The tiles of halo_gradient.cuh that the gradient of filters may take, a few of the best, the
    best first; none if it is no such gradient of operands that are read as tf32. Cycles are those
    of so many alike `beside` each other."""
    made = bare_gradient(nest, body, element)
    if made is None or made[0].b.vector != 4:
        return []
    problem, bare = made
    found = [(c, problem, t, n) for t in _tiles(bare) for c, n in _splits(t, problem, beside)]
    return sorted(found, key=lambda each: (each[0], -each[2].m))[:2]


def bare_gradient(
    nest: Nest, body: Graph, element: str, planes: bool = False
) -> tuple[Problem, HaloGradientTile] | None:
    """The gradient of filters of operands that are read as tf32, and a tile of its images, whatever
    its sizes; of images of one channel too, if `planes` are wanted. None if it is no such one."""
    x = image_of(nest, GRADIENTS, nest.summed, nest.kept, planes)
    if x is None or x.taps < TAPS.start or x.taps > MOST_TAPS or element != "tf32":
        return None
    problem = make_problem(nest, body)
    dy = problem.a.read
    if dy.input != nest.b.input or problem.b.read.input != nest.a.input or dy.input == nest.a.input:
        return None
    kind = dy.type
    if (
        kind.layout == ROW_MAJOR
        or kind.strides[1] != 1
        or nest.b.borders
        or dy.quotients
        or dy.offset
    ):
        return None
    names = [nest.axes[i].name for i in range(len(nest.axes))]
    ordered = [
        [problem.nest.axes[i].name for i in axes if problem.nest.axes[i].extent > 1]
        for axes in (problem.rows, problem.columns)
    ]
    batches, rows, wide, k = problem.sizes
    y, z = x.rows, x.columns
    flat = [each for each in "rsc" if each in (*ordered[1],)]
    if names != [*"kcrsnpq"] or ordered != [["k"], flat] or batches != 1:
        return None
    steps = [dy.strides[i] for n in "npq" for i in problem.depth if problem.nest.axes[i].name == n]
    whole = x.images * y.outputs * z.outputs
    image, line, pixel = steps
    if line != z.outputs * pixel:  # some pixels of longer lines
        return None
    if k != whole or kind.size >= 2**30 or problem.a.vector != 4:
        return None
    outputs, columns = kind.shape[1], wide // x.taps
    return problem, HaloGradientTile(x, (image, line, pixel), outputs, columns, rows, 64, 64, 1)


def _tiles(bare: HaloGradientTile) -> Iterator[HaloGradientTile]:
    """The tiles that fit registers and shared memory."""
    x = bare.x.columns
    narrow = bare.columns == NARROW
    if (narrow and (x.tap != 1 or x.taps > 16)) or (not narrow and bare.columns < 16):
        return
    lines = sorted({1, 2, 4, 7, 8, 14, bare.x.rows.outputs})
    widths = (NARROW,) if narrow else (16, 32, 64)
    for m, n, each in itertools.product((16, 32, 64, 128), widths, lines):
        tile = replace(bare, m=m, n=n, lines=each)
        if each > bare.x.rows.outputs or (tile.paired and each % 2):
            continue
        if m * tile.across % (16 * WARPS) or m >= 2 * bare.rows or n >= 2 * bare.columns:
            continue
        fitted = _fitted(tile)
        if fitted is not None:
            yield fitted


def _fitted(tile: HaloGradientTile) -> HaloGradientTile | None:
    """The tile with the blocks that a multiprocessor holds; None if it does not fit."""
    sums = tile.held * tile.fragments * 4
    registers = sums + tile.fragments * 4 + (1 + tile.paired) * tile.x.rows.taps + 60
    if sums > MOST_SUMS or tile.shared_bytes > GPU.block_shared:
        return None
    resident = GPU.resident(registers, tile.threads, tile.shared_bytes)
    return replace(tile, blocks=min(resident, 2)) if resident else None


def _splits(tile: HaloGradientTile, problem: Problem, beside: int) -> Iterator[tuple[float, int]]:
    """Estimated cycles on a large device by parts of k that fill it."""
    steps, tiles = tile.bands * tile.x.images, tile.grid * beside
    full = [GPU.multiprocessors * blocks // tiles for blocks in range(1, tile.blocks + 1)]
    for splits in sorted({1, 2, 4, *full}):
        if 1 <= splits <= steps:
            yield _cycles(tile, problem, steps, splits, beside), splits


def _cycles(
    tile: HaloGradientTile, problem: Problem, steps: int, splits: int, beside: int
) -> float:
    """What products, instructions or reads of shared memory take, or what a block waits for, and no
    less than bytes take."""
    x, y = tile.x.columns, tile.x.rows
    mine = math.ceil(steps / splits)
    lines = min(mine * tile.lines, mine * y.outputs / tile.bands)
    count = tile.held * tile.fragments
    reads = tile.held * 2 + tile.fragments * 4
    issued = count + tile.held * 2 + tile.fragments * 2 + 6
    product = max(count * GPU.fragment, reads, issued * GPU.issue) * WARPS
    alone = max(issued * ALONE + 40, product)
    copied = lines * (x.extent * y.step * tile.n + x.outputs * tile.m) / 4 / tile.threads
    leaving = tile.m * tile.across * 8 * tile.held * (RUN_SUM if splits > 1 else SUM)
    products = lines * tile.products / (1 + tile.paired)
    busy = products * product + copied * COPY * GPU.issue * WARPS + leaving
    wait = products * alone + copied * COPY * ALONE + mine * STEP + leaving + START
    time = GPU.cycles(tile.grid * splits * beside, tile.blocks, busy, wait)
    parts = Partial(splits, beside * math.prod(problem.sizes[1:3]), 4, 1, 1, False, False)
    bytes_copied = beside * tile.grid * splits * copied * 16 * tile.threads
    time = max(time, bytes_copied / GPU.l2_rate + parts.moved)
    return time + parts.second_launch() if splits > 1 else time
