"""Choose tiles for gradients of filters: of halo_gradient.cuh, whose blocks keep the sums of all
taps, or, for images of few channels, of im2col_gradient.cuh, whose rows are taps and channels."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

from graphc.base.cached import cached_property
from graphc.ir import ROW_MAJOR, Graph
from graphc.kernels.cuda.contract.contract import Problem, make_problem
from graphc.kernels.cuda.contract.split_k import Partial
from graphc.kernels.cuda.convolution.staging import (
    LEAST_TAPS,
    HaloFound,
    HaloTile,
    Limits,
    cheapest,
    image_of,
)
from graphc.kernels.cuda.shared.gpu_model import GPU
from graphc.kernels.program.nest import Nest

GRADIENTS = ("conv2d_wgrad",)
"""Ops whose operands are both images, the first read at the pixels of each tap."""
MOST_TAPS = 49
"""Taps of a filter at most: 7 x 7."""
WARPS = 8
"""Warps of a block."""
NARROW = 4
"""Channels of images so narrow that eight columns hold two taps."""
ALONE = 2.2
"""Cycles per instruction of a warp that runs alone."""
START, STEP = 2000, 150
"""Cycles until a block's first lines have arrived, and of waiting in each step."""
COPY, COPY_ALONE = 28, 10
"""Instructions to copy 16 bytes, with rounding in shared memory or without."""
SUM, RUN_SUM, LEAVING = 0.3, 0.1, 0.12
"""Cycles to store a sum of a block: alone, in a run of four, or added up from shares of warps."""
MOST_ROWS = 1024
"""Taps times channels at most."""
WASTE = 1.35
"""Rows of all blocks at most, as a multiple of those that exist, unless they are 16."""
PITCH = 20
"""Floats from one staged column of sums to the next."""


@dataclass(frozen=True)
class HaloGradientTile(HaloTile):
    """A tile of halo_gradient.cuh: `n` input and `m` output channels of the filter. A step is
    `lines` lines of output.

    Attributes:
        y: elements from one image, line and pixel of dy to the next.
        outputs: channels of dy.
        columns: columns of a tap, the channels of x with their padding.
        rows: rows of all blocks.
        concurrent: how many gradients like it the device computes at once.
    """

    y: tuple[int, int, int]
    outputs: int
    columns: int
    rows: int
    concurrent: int
    m: int = 64
    k: ClassVar[int] = 8
    header: ClassVar[str] = "convolution/halo_gradient"
    template: ClassVar[str] = "HaloGradient<Problem, Halo, Tile>"
    limits: ClassVar[Limits] = Limits(144, 2)
    worths: ClassVar[tuple[float, float]] = (0.95, 0.95)
    tried_parts: ClassVar[tuple[int, ...]] = (1, 2, 4)
    """Numbers of parts of k to try, besides those that fill a large device."""

    @property
    def narrow(self) -> bool:
        return self.n == NARROW

    @property
    def across(self) -> int:
        """Warps next to each other, each with eight columns."""
        taps = self.image.columns.taps
        most = next(count for count in (8, 4, 2, 1) if count == 1 or taps > count)
        return most if self.narrow else self.n // 8

    @property
    def held(self) -> int:
        """Columns of a warp, in eights."""
        return self.image.rows.taps if self.narrow else self.image.taps

    @property
    def fragments(self) -> int:
        """Rows of a warp, in sixteens."""
        return self.m * self.across // (16 * self.warps)

    @property
    def together(self) -> int:
        """Lines of output that a product takes together."""
        y, x = self.image.rows, self.image.columns
        return 2 if x.outputs % 8 == 4 and y.outputs % 2 == 0 else 1

    @property
    def products(self) -> int:
        """Products of eight pixels for each line, or pair of lines."""
        return -(-self.image.columns.outputs * self.together // 8)

    @property
    def grid(self) -> int:
        return -(-self.columns // self.n) * -(-self.rows // self.m)

    @property
    def bands(self) -> int:
        """Steps of an image."""
        return -(-self.image.rows.outputs // self.lines)

    @property
    def steps(self) -> int:
        """Steps of all images."""
        return self.bands * self.image.images

    def window(self, step: int) -> tuple[int, int]:
        """The range of lines of x that a step reads, numbered through all images."""
        y, p = self.image.rows, step % self.bands * self.lines
        last = min(p + self.lines, y.outputs) - 1
        low = max(0, p * y.step + y.first)
        high = min(y.extent, last * y.step + (y.taps - 1) * y.tap + y.first + 1)
        before = step // self.bands * y.extent
        return before + low, before + max(low, high)

    @cached_property
    def slots(self) -> int:
        """Lines of the ring: those of x that two successive steps read."""
        windows = [self.window(i) for i in range(min(2 * self.bands, self.steps))]
        pairs = itertools.pairwise(windows)
        return max(windows[0][1] - windows[0][0], *(b[1] - a[0] for a, b in pairs), 1)

    @property
    def kept(self) -> int:
        return self.held * self.fragments * 4

    @property
    def registers(self) -> int:
        return self.kept + self.fragments * 4 + self.together * self.image.rows.taps + 60

    @cached_property
    def shared_bytes(self) -> int:
        x = self.image.columns
        wide = 8 * self.across
        pixel = self.n if self.narrow else self.n + (8 if x.step % 2 else 4)
        paired = self.together > 1
        filled = x.outputs if paired else 8 * self.products
        reach = wide if self.narrow else ((x.taps - 1) * x.tap + 1) * pixel
        read = ((filled - 1) * x.step + x.first) * pixel + reach
        beside = max(0, -x.first) * pixel
        line = max(x.extent * pixel + beside, read)
        lines = beside + self.slots * line + (line + beside) * paired
        whole = lines + 2 * self.lines * filled * (self.m + 8)
        return 4 * max(whole, 16 * self.warps // self.across * (wide + 8) + 4)

    @property
    def shape(self) -> str:
        return f"{self.m} x {self.n} channels of all taps"

    @property
    def staged(self) -> str:
        return f"{self.lines} lines of dy and all taps read, {self.m} x {self.n} channels"

    def parts_of_k(self) -> Iterable[int]:
        tiles = self.grid * self.concurrent
        full = [GPU.multiprocessors * blocks // tiles for blocks in range(1, self.blocks + 1)]
        return [n for n in sorted({*self.tried_parts, *full}) if 1 <= n <= self.steps]

    def __str__(self) -> str:
        return f"HaloGradientTile<{self.m}, {self.n}, {self.lines}, {self.slots}>"

    def text(self) -> list[str]:
        image, line, pixel = self.y
        of_y = f"y_image = {image}, y_line = {line}, y_pixel = {pixel}"
        return self.image.text(
            f"int outputs = {self.outputs}, {of_y}", f"int columns = {self.columns}"
        )

    def cycles(self, problem: Problem, splits: int) -> float:
        x, y, mine = self.image.columns, self.image.rows, math.ceil(self.steps / splits)
        lines = min(mine * self.lines, mine * y.outputs / self.bands)
        count, reads = self.held * self.fragments, self.held * 2 + self.fragments * 4
        issued = count + self.held * 2 + self.fragments * 2 + 6
        copied = lines * (x.extent * y.step * self.n + x.outputs * self.m) / 4 / self.threads
        leaving = self.m * self.across * 8 * self.held * (RUN_SUM if splits > 1 else SUM)
        moved = self.concurrent * self.grid * splits * copied * 16 * self.threads
        products = lines * self.products / self.together
        fragment = count, reads, issued
        return self._time(problem, splits, fragment, products, copied * COPY, leaving, moved)

    def _time(
        self,
        problem: Problem,
        splits: int,
        fragment: tuple[int, int, float],
        products: float,
        copying: float,
        leaving: float,
        moved: float,
    ) -> float:
        """The estimated cycles. `fragment` are the products, reads of shared memory and
        instructions of a warp for eight pixels, which a block computes so many times; `copying` are
        instructions of copies, `leaving` cycles to store the sums, `moved` bytes of all blocks."""
        count, reads, issued = fragment
        product = max(count * GPU.fragment, reads, issued * GPU.issue) * self.warps
        alone = max(issued * ALONE + 40, product)
        busy = products * product + copying * GPU.issue * self.warps + leaving
        wait = products * alone + copying * ALONE
        wait += math.ceil(self.steps / splits) * STEP + leaving + START
        time = GPU.cycles(self.grid * splits * self.concurrent, self.blocks, busy, wait)
        sums = self.concurrent * math.prod(problem.sizes[1:3])
        parts = Partial(splits, sums, 4, 1, 1, False, False)
        time = max(time, moved / GPU.l2_rate + parts.moved)
        return time + parts.second_launch() if splits > 1 else time


def halo_gradient_tiles(
    nest: Nest, body: Graph, element: str, concurrent: int = 1
) -> list[HaloFound]:
    """The cheapest tiles for a gradient of filters in tf32 of which the device computes so many at
    once, the best first; none if such tiles cannot compute it."""
    made = bare_gradient(nest, body, element, concurrent)
    if made is None or made[0].b.vector != 4:
        return []
    return cheapest((made[0], tile) for tile in _tiles(made[1]))


def bare_gradient(
    nest: Nest, body: Graph, element: str, concurrent: int, planes: bool = False
) -> tuple[Problem, HaloGradientTile] | None:
    """A gradient of filters in tf32, and a tile of its images of arbitrary size; `planes` allows
    images of one channel. None if such tiles cannot compute it."""
    x = image_of(nest, GRADIENTS, nest.summed, nest.kept, planes)
    if x is None or not LEAST_TAPS <= x.taps <= MOST_TAPS or element != "tf32":
        return None
    problem = make_problem(nest, body)
    dy = problem.a.read
    if dy.input != nest.b.input or problem.b.read.input != nest.a.input or dy.input == nest.a.input:
        return None
    kind = dy.type
    if kind.layout == ROW_MAJOR or kind.strides[1] != 1 or nest.b.borders:
        return None
    if dy.quotients or dy.offset:
        return None
    names = [axis.name for axis in nest.axes]
    ordered = [
        [problem.nest.axes[i].name for i in axes if problem.nest.axes[i].extent > 1]
        for axes in (problem.rows, problem.columns)
    ]
    batches, rows, wide, k = problem.sizes
    flat = [each for each in "rsc" if each in ordered[1]]
    if names != [*"kcrsnpq"] or ordered != [["k"], flat] or batches != 1:
        return None
    image, line, pixel = (
        dy.strides[i] for n in "npq" for i in problem.depth if problem.nest.axes[i].name == n
    )
    if line != x.columns.outputs * pixel:  # some pixels of longer lines
        return None
    whole = x.images * x.rows.outputs * x.columns.outputs
    if k != whole or kind.size >= 2**30 or problem.a.vector != 4:
        return None
    y, outputs, columns = (image, line, pixel), kind.shape[1], wide // x.taps
    return problem, HaloGradientTile(x, 1, 64, WARPS, 1, y, outputs, columns, rows, concurrent)


def _tiles(bare: HaloGradientTile) -> Iterator[HaloGradientTile]:
    """The tiles to try, whether they fit or not, those with the most rows first."""
    x, outputs = bare.image.columns, bare.image.rows.outputs
    narrow = bare.columns == NARROW
    if (narrow and (x.tap != 1 or x.taps > 16)) or (not narrow and bare.columns < 16):
        return
    lines = sorted(each for each in {1, 2, 4, 7, 8, 14, outputs} if each <= outputs)
    widths = (NARROW,) if narrow else (16, 32, 64)
    for m, n, each in itertools.product((128, 64, 32, 16), widths, lines):
        tile = replace(bare, m=m, n=n, lines=each)
        whole = each % tile.together == 0 and m * tile.across % (16 * tile.warps) == 0
        if whole and m < 2 * bare.rows and n < 2 * bare.columns:
            yield tile


@dataclass(frozen=True)
class Im2colTile(HaloGradientTile):
    """A tile of im2col_gradient.cuh: `n` taps and channels of x, and all `m` channels of dy.
    `down` warps have all of them; with several such groups each has a share of the lines."""

    down: int = 1
    header: ClassVar[str] = "convolution/im2col_gradient"
    template: ClassVar[str] = "Im2colGradient<Problem, Halo, Tile>"
    limits: ClassVar[Limits] = Limits(112, 4)
    tried_parts: ClassVar[tuple[int, ...]] = (1, 2, 4, 8, 16, 33, 66)

    @property
    def taps(self) -> int:
        """Rows of the products: taps and channels."""
        return self.image.taps * self.columns

    @property
    def across(self) -> int:
        """Columns of dy, in eights."""
        return -(-self.m // 8)

    @property
    def fragments(self) -> int:
        return self.n // (16 * self.down)

    @property
    def together(self) -> int:
        return 2 if self.image.columns.outputs % 8 else 1

    @property
    def grid(self) -> int:
        return -(-self.taps // self.n)

    @property
    def reach(self) -> int:
        """Lines of x that a step reads."""
        return self.image.rows.reach(self.lines)

    @property
    def chunks(self) -> tuple[int, int]:
        """Copies of 16 bytes that a step makes of x, and of dy."""
        x = self.image.columns
        of_y = self.lines * x.outputs * -(-self.outputs // 4)
        return self.reach * x.extent * self.columns // 4, of_y

    @property
    def kept(self) -> int:
        return self.fragments * self.across * 4

    @property
    def registers(self) -> int:
        return self.kept + self.across * 2 + self.fragments * 2 + 60

    @property
    def shared_bytes(self) -> int:
        x, single = self.image.columns, self.columns == 1
        pixel = self.columns if single or self.columns % 8 else self.columns + 4
        chunks = -(-self.outputs // 4)
        of_y = self.lines * x.outputs * (chunks * 4 if chunks % 2 else chunks * 4 + 4)
        buffers = 2 * (self.reach * x.staged_line(pixel, 4) + of_y)
        return 4 * max(buffers, self.warps * self.across * 8 * PITCH)

    @property
    def staged(self) -> str:
        return f"{self.lines} lines of dy and all taps read, {self.n} taps and channels"

    def __str__(self) -> str:
        return f"Im2colTile<{self.n}, {self.lines}, {self.down}>"

    def cycles(self, problem: Problem, splits: int) -> float:
        mine, shares = math.ceil(self.steps / splits), self.warps // self.down
        count, reads = self.fragments * self.across, self.fragments * 4 + self.across * 2
        issued: float = count + reads + self.across * 2 * (self.down == 1)
        issued += (self.fragments * 2 + 6) / self.products
        products = mine * math.ceil(self.lines / self.together / shares) * self.products
        of_x, of_y = (each / self.threads for each in self.chunks)
        copying = mine * (of_x * COPY + of_y * (COPY if self.down > 1 else COPY_ALONE))
        leaving = self.n * shares * self.across * 8 * LEAVING
        moved = self.concurrent * self.grid * self.steps * sum(self.chunks) * 16
        fragment = count, reads, issued
        return self._time(problem, splits, fragment, products, copying, leaving, moved)


def im2col_tiles(nest: Nest, body: Graph, element: str, concurrent: int = 1) -> list[HaloFound]:
    """The cheapest tiles for a gradient of filters in tf32 of which the device computes so many at
    once, the best first; none if such tiles cannot compute it."""
    found = bare_gradient(nest, body, element, concurrent, planes=True)
    if found is None:
        return []
    problem, bare = found
    x, columns = bare.image, bare.columns
    whole = x.columns.extent % 4 == 0 if columns == 1 else columns % 4 == 0
    dense = x.strides[2] == columns == x.channels
    if not whole or not dense or x.columns.outputs % 4 or x.taps * columns > MOST_ROWS:
        return []
    return cheapest((problem, tile) for tile in _im2col_tiles(bare))


def _im2col_tiles(bare: HaloGradientTile) -> Iterator[Im2colTile]:
    """The tiles to try, whether they fit or not."""
    outputs, rows = bare.image.rows.outputs, bare.image.taps * bare.columns
    several = sorted(n for n in {1, 2, 4, 6, 7, 8, 12, 14, outputs} if outputs % n == 0)
    for down, fragments, lines in itertools.product((1, 2, 4, 8), (1, 2, 3, 4), several):
        n = 16 * down * fragments
        sizes = bare.image, lines, n, WARPS, 1, bare.y, bare.outputs, bare.columns, bare.rows
        tile = Im2colTile(*sizes, bare.concurrent, bare.rows, down)
        if -(-rows // n) * n <= max(WASTE * rows, 16) and lines % tile.together == 0:
            yield tile
