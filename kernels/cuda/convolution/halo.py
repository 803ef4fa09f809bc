"""Choose tiles for convolutions: of halo.cuh, where k is the channels of each tap, or, for images
of one channel, of single_channel.cuh, where k is the taps."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

from graphc.ir import Graph
from graphc.kernels.cuda.contract.access import OperandAccess
from graphc.kernels.cuda.contract.contract import Problem, make_problem
from graphc.kernels.cuda.contract.split_k import Partial
from graphc.kernels.cuda.contract.taps import MOST_TAPS
from graphc.kernels.cuda.convolution.staging import (
    LEAST_TAPS,
    HaloFound,
    HaloTile,
    Image,
    Limits,
    cheapest,
    image_of,
    met_share,
)
from graphc.kernels.cuda.shared.gpu_model import GPU
from graphc.kernels.program.nest import Axis, Nest, cut_axis

CONVOLUTIONS = ("conv2d", "conv2d_dgrad")
"""Ops whose first operand is an image, read at the pixels of each tap."""
LEAST_ROWS = 64
"""Rows of a block at least."""
FRAGMENT = 32
"""Bytes of k that a product of tensor cores takes."""
PARTS = (64, 128, 256)
"""Bytes of each pixel that a patch may hold."""
STAGES = 4
"""Stages of the ring of filters, if a step is one tap; one less if it is a line of taps."""
WARPS = (3, 4, 6)
"""Warps of a block for a single channel."""
TURN = 32
"""Rows that a warp of such a block computes at a time."""
RUN, TURNED = 18, 40
"""Instructions of a warp for each run of four sums, and for the rest of a turn."""
WAIT = 2.6
"""Cycles per instruction of a warp that runs alone, waits included."""
START, SINGLE_START = 2000, 1500
"""Cycles until a block's first patch has arrived, twice the latency of memory; or, for a single
channel, its lines and filters."""


@dataclass(frozen=True)
class HaloProductTile(HaloTile):
    """A tile of halo.cuh.

    Attributes:
        columns: columns of all blocks.
        k: channels of each pixel that a patch holds.
        taps: taps of a step.
        images: images of which a block computes the same `lines`.
        splits: parts of the channels, each of which other blocks sum.
        along_k: whether filters are contiguous along k, else along columns.
        read: bytes that the epilogue reads.
    """

    columns: int
    k: int
    taps: int
    images: int = 1
    splits: int = 1
    along_k: bool = True
    read: int = 0
    header: ClassVar[str] = "convolution/halo"
    template: ClassVar[str] = "HaloProduct<Problem, Halo, Tile>"
    worths: ClassVar[tuple[float, float]] = (0.85, 0.9)
    # Sums with places of rows and fragments of columns fit registers, and every GPU of compute
    # capability 8.0 or newer has so much shared memory.
    limits: ClassVar[Limits] = Limits(112, 8, 32, 96 * 1024, 248)

    @property
    def m(self) -> int:
        """Rows of a block."""
        return self.images * self.lines * self.image.columns.outputs

    @property
    def held(self) -> int:
        """Fragments of 16 rows that a warp holds."""
        return -(-self.m // (16 * self.warps))

    @property
    def grid(self) -> int:
        bands = -(-self.image.rows.outputs // self.lines)
        return -(-self.image.images // self.images) * bands * -(-self.columns // self.n)

    @property
    def met(self) -> float:
        """The share of its fragments' taps that meet a pixel."""
        return met_share(self.image, self.images, self.lines, self.held * self.warps)

    @property
    def skips(self) -> bool:
        """Whether it skips taps of fragments that meet no pixel."""
        return self.met < 0.95

    @property
    def stages(self) -> int:
        """Stages of the ring of filters."""
        return STAGES if self.taps == 1 else STAGES - 1

    @property
    def reach(self) -> int:
        """Lines of input that its lines read."""
        return self.image.rows.reach(self.lines)

    @property
    def held_lines(self) -> int:
        """Lines of each image that a patch holds."""
        rows = self.image.rows
        return rows.extent if self.lines == rows.outputs else min(self.reach, rows.extent)

    @property
    def held_pixels(self) -> int:
        """Pixels of a patch."""
        return self.images * self.held_lines * self.image.columns.extent

    @property
    def gap(self) -> int:
        """Bytes between images, which keep the 8 rows of a fragment in different banks."""
        pixel = self.k * self.image.size // 16 + 1
        chunks = self.held_lines * self.image.columns.extent * pixel
        wanted = max(1, 8 // self.images) * pixel % 8
        return (wanted - chunks) % 8 * 16 if self.images > 1 else 0

    @property
    def parts(self) -> int:
        """Parts of a pixel's channels that a block goes through."""
        return math.ceil(self.image.channels / self.k) // self.splits

    @property
    def shared_bytes(self) -> int:
        size = self.image.size
        patch = self.held_pixels * (self.k * size + 16) + self.images * self.gap
        deep = self.k * self.taps
        line, lines = (deep, self.n) if self.along_k else (self.n, deep)
        quad = 16 // size
        pitch = line if line // quad % 2 else line + quad
        if not self.along_k and size == 4:
            pitch = line if line % 16 else line + 8
        ring = self.stages * lines * pitch * size
        whole = min(self.parts, 2) * patch + self.k * size + ring
        return max(whole, 16 * self.warps * (self.n + 8) * 4)

    @property
    def kept(self) -> int:
        return self.held * self.n // 2

    @property
    def registers(self) -> int:
        """Registers for sums, addresses of rows and copies, fragments of filters and pixels, and
        the loop itself."""
        across, inner = self.n // 8, self.k * self.image.size // FRAGMENT
        most = max(1, 24 // across)
        together = max(i for i in range(1, most + 1) if inner % i == 0)
        fragments = min(together * (4 * -(-across // 2) + 4), 40)  # more are loaded later
        copies = -(-self.k * self.taps * self.n * self.image.size // (16 * self.threads))
        return -(-(self.held * (across * 4 + 3) + fragments + 2 * copies + 60) // 8) * 8

    @property
    def staged(self) -> str:
        sums = f"{self.m} x {self.n} sums, {self.k * self.taps} of k per step"
        return f"{self.lines} lines of {self.images} images read, {sums}"

    @property
    def shape(self) -> str:
        return f"patches of {self.images} x {self.lines} lines"

    def parts_of_k(self) -> Iterable[int]:
        return (self.splits,)

    def partials(self, rows: int, strips: int) -> int:
        return self.grid // strips

    def __str__(self) -> str:
        numbers = (self.images, self.lines, self.n, self.k, self.warps, self.stages, self.taps)
        return f"HaloTile<{', '.join(map(str, numbers))}>"

    def text(self) -> list[str]:
        lines = f"int lines = {self.held_lines}, gap = {self.gap}"
        return self.image.text(lines, f"bool skips = {str(self.skips).lower()}")

    def cycles(self, problem: Problem, splits: int) -> float:
        image, across = self.image, self.n // 8
        taps, inner = image.taps * self.parts, self.k * image.size // FRAGMENT
        live = self.held * (self.met if self.skips else 1.0)
        columns = across * ((2.5 if self.along_k else 4) if image.size == 4 else 0.5)
        copied = taps * self.k * self.n * image.size / 16 / self.threads
        filled = self.parts * self.held_pixels * self.k * image.size / 16 / self.threads
        runs = self.held * across
        products = live * inner * across * taps * GPU.fragment
        issued = taps * (inner * (live * (across + 1.2) + columns) + self.held * 4 + 10)
        issued += taps / self.taps * 60 + copied * 5 + filled * 22 + runs * 60 + 600
        accesses = taps * inner * (live * 4 + across * 2) + copied * 4 + filled * 11 + runs * 11
        busy = self.warps * max(products, issued * GPU.issue, accesses)
        time = GPU.cycles(self.grid * splits, self.blocks, busy, START + issued * WAIT)
        _, m, n, k = problem.sizes
        channels = min(image.channels, k // image.taps)
        block = self.held_pixels * channels * image.size + k * self.n * image.size
        moved = self.grid * block + splits * m * n * 4  # of all parts of k
        if splits == 1:
            return max(time, (moved + self.read) / GPU.l2_rate)
        parts = Partial(splits, m * n, 4, 1, 1, False, False)
        return max(time, moved / GPU.l2_rate) + parts.by_launch()


def halo_tiles(nest: Nest, body: Graph, element: str, concurrent: int = 1) -> list[HaloFound]:
    """The cheapest tiles for a convolution of operands of type `element`, the best first; none if
    such tiles cannot compute it."""
    image = image_of(nest, CONVOLUTIONS, nest.kept, nest.summed)
    if image is None or not LEAST_TAPS <= image.taps <= MOST_TAPS:
        return []
    if element not in ("tf32", "half", "bfloat"):
        return []
    found = cheapest(
        (problem, tile)
        for depth in _depths(image)
        for problem in _in_parts(nest, body, image, depth)
        for tile in _tiles(image, problem, depth, read_behind(problem, body))
    )
    return [(cycles * concurrent, p, t, splits) for cycles, p, t, splits in found]


def _depths(image: Image) -> list[int]:
    """The numbers of channels that a patch may hold: all, or parts that divide them."""
    whole = FRAGMENT // image.size
    every = -(-image.channels // whole) * whole
    found = [n for n in (b // image.size for b in PARTS) if n < every and image.channels % n == 0]
    return [*found, every] if every * image.size <= PARTS[-1] else found


def read_behind(problem: Problem, body: Graph) -> int:
    """Bytes that the epilogue reads."""
    operands = (problem.a.read.input, problem.b.read.input)
    return sum(v.type.nbytes for i, v in enumerate(body.inputs) if i not in operands)


def _in_parts(nest: Nest, body: Graph, image: Image, depth: int) -> Iterator[Problem]:
    """The convolution with k in the order part, tap, channel, if it can be ordered so."""
    (channel,) = (i for i in nest.summed if nest.a.strides[i] == 1)
    first: tuple[int, ...] = ()
    if depth < image.channels:
        name = nest.axes[channel].name
        cut = (Axis(f"{name}_part", image.channels // depth, False), Axis(name, depth, False))
        nest, first, channel = cut_axis(nest, channel, cut), (channel,), channel + 1
    problem = make_problem(nest, body, first=first, fragment=FRAGMENT)
    k, axes, strides, b = problem.sizes[3], problem.nest.axes, problem.a.read.strides, problem.b
    if not _rows_are_pixels(nest, problem, image):
        return
    if k % (depth * image.taps) or b.read.quotients or b.vector * image.size != 16:
        return
    steps = [abs(strides[i]) for i in problem.rows if axes[i].extent > 1]
    order = [i for i in problem.depth if axes[i].extent > 1]
    taps = [i for i in order if i not in first and i != channel]
    down = [i for i in taps if strides[i] == image.rows.tap * image.strides[1]]
    if steps != sorted(steps, reverse=True) or order != [*first, *taps, channel]:
        return
    if image.rows.taps > 1 and taps[:1] != down[:1]:
        return
    if all({*border.axes} & {channel, *problem.columns} for border in b.read.borders):
        yield problem


def _rows_are_pixels(nest: Nest, problem: Problem, image: Image) -> bool:
    """Whether the rows are all output pixels, read from the images, and the columns filters."""
    batches, m, _, _ = problem.sizes
    first = problem.a.read.input == nest.a.input != problem.b.read.input
    return first and batches == 1 and m == image.images * image.rows.outputs * image.columns.outputs


def _tiles(image: Image, problem: Problem, depth: int, read: int) -> Iterator[HaloProductTile]:
    """The tiles to try, whether they fit or not."""
    n, lines = problem.sizes[2], image.rows.outputs
    widths = {-(-n // 8) * 8} if n <= 64 else {64, 32}
    widths |= {32} if n >= 64 and n % 32 == 0 else set()
    blocks = [(1, each) for each in range(1, lines + 1)]
    blocks += [(images, lines) for images in (2, 4, 8, 16) if images <= image.images]
    parts = -(-image.channels // depth)
    for (images, few), width, warps in itertools.product(blocks, sorted(widths), (4, 8)):
        sizes = image, few, width, warps, 1, n, depth, 1, images, 1
        whole = HaloProductTile(*sizes, problem.b.along_k, read)
        if whole.m < LEAST_ROWS:
            continue
        most = (
            2 * GPU.multiprocessors // whole.grid
        )  # of parts of k: large devices are filled twice
        splits = [i for i in range(1, parts + 1) if parts % i == 0 and (i == 1 or i <= most)]
        for taps, cut in itertools.product(sorted({1, image.columns.taps}), splits):
            yield replace(whole, taps=taps, splits=cut)


@dataclass(frozen=True)
class SingleChannelTile(HaloProductTile):
    """A tile of single_channel.cuh: all columns of lines of one image. A thread keeps its filters
    in registers."""

    header: ClassVar[str] = "convolution/single_channel"
    template: ClassVar[str] = "SingleChannelProduct<Problem, Halo, Tile>"
    limits: ClassVar[Limits] = Limits(42, 8)
    met: ClassVar[float] = 1.0

    @property
    def across(self) -> int:
        """Columns, in eights."""
        return -(-self.n // 8)

    @property
    def quads(self) -> int:
        """Taps, in fours."""
        return -(-self.image.taps // 4)

    @property
    def kept(self) -> int:
        return self.across * self.quads

    @property
    def registers(self) -> int:
        return self.kept + self.across * 8 + self.quads + 64

    @property
    def shared_bytes(self) -> int:
        x = self.image.columns
        vector = 1 if x.extent % 4 or self.image.strides[0] % 4 else 4
        pitch = self.across * 8 + (16 if self.across % 2 else 8)
        filters = -(-self.n * self.image.taps // 4) * 4
        pixels = self.reach * x.staged_line(1, vector)
        return (pixels + filters + self.warps * TURN * pitch) * 4

    def __str__(self) -> str:
        return f"SingleChannelTile<{self.lines}, {self.warps}>"

    def cycles(self, problem: Problem, splits: int) -> float:
        most, turns = -(-self.m // (TURN * self.warps)), -(-self.m // TURN)
        products = self.across * self.quads  # of halves of a fragment, of two fragments
        runs = -(-self.n // 4)
        issued = self.quads * 4 + products + self.across * 4 + runs * RUN + TURNED
        accesses = self.quads * 4 + self.across * 8 + runs * 7
        copied = self.reach * self.image.columns.extent / 4 / self.threads * 30
        before = copied + products * 6 + 60
        once = self.warps * before
        busy = max((once + turns * issued) * GPU.issue, turns * products * GPU.fragment)
        busy = max(busy, once / 2 + turns * accesses)
        alone = SINGLE_START + (before + most * issued) * WAIT
        time = GPU.cycles(self.grid, self.blocks, busy, alone)
        _, m, n, _ = problem.sizes
        moved = m * n * 4 + self.read + self.grid * self.reach * self.image.columns.extent * 4
        return max(time, moved / GPU.l2_rate)


def single_channel_tiles(nest: Nest, body: Graph, element: str) -> list[HaloFound]:
    """The cheapest tiles for a convolution of images of one channel in tf32, the best first; none
    if such tiles cannot compute it."""
    image = image_of(nest, ("conv2d",), nest.kept, nest.summed, planes=True)
    if image is None or image.channels != 1 or element != "tf32" or image.taps < LEAST_TAPS:
        return []
    problem = make_problem(nest, body)
    y, x = image.rows, image.columns
    rows = [nest.axes[i].name for i in problem.rows if problem.nest.axes[i].extent > 1]
    order = [name for name in "npq" if name in rows]
    if not _rows_are_pixels(nest, problem, image) or problem.sizes[3] != image.taps:
        return []
    if rows != order or problem.nest.axes != nest.axes or x.tap < 0 or y.tap < 0:
        return []
    if image.strides[1] != x.extent or not _is_dense(problem.b, image.taps):
        return []
    read = read_behind(problem, body)
    return cheapest((problem, t) for t in _single_tiles(image, problem.sizes[2], read))


def _is_dense(filters: OperandAccess, taps: int) -> bool:
    """Whether filters are contiguous, and the taps of each too."""
    steps = [
        [f.stride for f in factors if f.extent > 1] for factors in (filters.outer, filters.depth)
    ]
    plain = not (filters.borders or filters.read.quotients or filters.read.offset)
    return plain and steps == [[taps], [1]]


def _single_tiles(image: Image, n: int, read: int) -> Iterator[SingleChannelTile]:
    """The tiles to try, whether they fit or not."""
    outputs = image.rows.outputs
    divisors = [each for each in range(1, outputs + 1) if outputs % each == 0]
    for lines, warps in itertools.product(divisors, WARPS):
        tile = SingleChannelTile(image, lines, n, warps, 1, n, 1, image.taps, read=read)
        if tile.m >= TURN:
            yield tile
