"""Tiles of patch.cuh, whose blocks hold the pixels that they read, and who may take them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from graphc.ir import ROW_MAJOR, Graph
from graphc.kernels.cuda.contract import Problem, make_problem
from graphc.kernels.cuda.figures import BYTES, MULTIPROCESSORS
from graphc.kernels.program.nest import Axis, Nest, cut_axis
from graphc.ops.base import Array, Contraction

CONVOLUTIONS = ("conv2d", "conv2d_dgrad")
"""Ops whose first operand is images, read at pixels of taps."""
FRAGMENT = 32
"""Bytes of k of a product of tensor cores."""
PARTS = (128, 256)
"""Bytes of a pixel's channels that a patch has."""
TAPS = range(4, 32)
"""Taps that are worth a patch; their bits are one word."""
STAGES = 4
"""Of the ring of columns."""
MOST_SHARED = 96 * 1024
"""Bytes of shared memory of a block, which every GPU of compute capability 8.0 or newer has."""
SHARED = 227 * 1024
"""Of an H100's multiprocessor."""
MOST_SUMS = 112
"""Of a thread: with places of rows and fragments of columns they fit registers."""
MOST_REGISTERS = 248
"""Of a thread, as they are estimated."""
REGISTERS = 64 * 1024
"""Of a multiprocessor."""
PRODUCT = 1.8
"""Cycles of a multiprocessor for a fragment's product: at its peak 1.1, of which `mma.sync` reaches
0.62."""
ISSUE = 0.28
"""Cycles of a multiprocessor for an instruction of a warp."""
WAIT = 2.2
"""Cycles of an instruction of a warp that runs alone."""
STEP = 60
"""Cycles that a block waits in a step: a barrier, and the way of columns from shared memory."""
SHARED_WAIT = 33
"""Cycles of that way for each fragment of pixels, of which the next may be left out."""
START = 2000
"""Cycles until a block's first patch is there: memory's latency twice, with places of rows."""
PART = 1000
"""Cycles that a block waits for a part of the channels, whose pixels are rounded first: so that
those of 256 channels keep the tiles that the model of an H200 says are faster."""


@dataclass(frozen=True)
class Axle:
    """Along one axis of an image: output pixel i reads at tap t pixel i * step + t * tap + first of
    `extent`."""

    outputs: int
    taps: int
    step: int
    tap: int
    first: int
    extent: int

    @property
    def lowest(self) -> int:
        """The lowest of the taps' own part."""
        return min(0, self.tap * (self.taps - 1))

    def reach(self, outputs: int) -> int:
        """Pixels from the first to the last that so many neighbouring outputs read."""
        return (outputs - 1) * self.step + abs(self.tap) * (self.taps - 1) + 1

    def met(self) -> Array:
        """Whether each output's taps are pixels: [outputs, taps]."""
        at = np.arange(self.outputs)[:, None] * self.step + np.arange(self.taps) * self.tap
        inside: Array = (at + self.first >= 0) & (at + self.first < self.extent)
        return inside


@dataclass(frozen=True)
class Patch:
    """The image of a convolution: `rows` and `columns` of pixels, `channels` that exist, elements
    of `size` bytes from one image, line and pixel to the next."""

    images: int
    rows: Axle
    columns: Axle
    channels: int
    strides: tuple[int, int, int]
    size: int

    @property
    def taps(self) -> int:
        return self.rows.taps * self.columns.taps


@dataclass(frozen=True)
class PatchTile:
    """`lines` lines of output of each of `images` images and `n` columns per block of so many
    `warps`; `k` channels per tap, a part of all; `met` is the share of the fragments' taps that
    exist, which are left out if it `skips`."""

    patch: Patch
    images: int
    lines: int
    n: int
    k: int
    warps: int
    blocks: int
    grid: int
    met: float
    groups: ClassVar[int] = 1
    header: ClassVar[str] = "patch"
    template: ClassVar[str] = "PatchProduct<Problem, Patch, Tile>"

    @property
    def threads(self) -> int:
        return 32 * self.warps

    @property
    def m(self) -> int:
        """Rows of a block."""
        return self.images * self.lines * self.patch.columns.outputs

    @property
    def skips(self) -> bool:
        return self.met < 0.95

    def units(self, sections: int) -> int:
        return self.n

    @property
    def held_lines(self) -> int:
        """Lines of input of an image in a patch."""
        rows = self.patch.rows
        return rows.extent if self.lines == rows.outputs else min(self.reach, rows.extent)

    @property
    def reach(self) -> int:
        return self.patch.rows.reach(self.lines)

    @property
    def gap(self) -> int:
        """Bytes between images: 8 rows of a fragment are pixels of as many images, or of fewer."""
        pixel = self.k * self.patch.size // 16 + 1
        chunks = self.held_lines * self.patch.columns.extent * pixel
        if self.images == 1:
            return 0
        wanted = max(1, 8 // self.images) * pixel % 8
        return (wanted - chunks) % 8 * 16

    def shared_bytes(self, parts: int, along_k: bool) -> int:
        """As PatchProduct::bytes."""
        size = self.patch.size
        pixel = self.k * size + 16
        image = self.held_lines * self.patch.columns.extent * pixel + self.gap
        line, lines = (self.k, self.n) if along_k else (self.n, self.k)
        quad = 16 // size
        pitch = line if line // quad % 2 else line + quad
        if not along_k and size == 4:
            pitch = line if line % 16 else line + 8
        ring = STAGES * lines * pitch * size
        whole = min(parts, 2) * self.images * image + self.k * size + ring
        return max(whole, 16 * self.warps * (self.n + 8) * 4)

    def __str__(self) -> str:
        numbers = (self.images, self.lines, self.n, self.k, self.warps, STAGES)
        return f"PatchTile<{', '.join(map(str, numbers))}>"

    def text(self) -> list[str]:
        """The lines of struct Patch of patch.cuh."""
        patch, (image, line, pixel) = self.patch, self.patch.strides
        y, x = patch.rows, patch.columns
        whole = self.held_lines == y.extent
        numbers = [
            f"images = {patch.images}, P = {y.outputs}, Q = {x.outputs}",
            f"H = {y.extent}, W = {x.extent}, R = {y.taps}, S = {x.taps}",
            f"down = {y.step}, tap_down = {y.tap}, top = {y.first}, lowest = {y.lowest}",
            f"across = {x.step}, tap_across = {x.tap}, left = {x.first}",
            f"channels = {patch.channels}, image = {image}, line = {line}, pixel = {pixel}",
            f"lines = {y.extent if whole else self.held_lines}, gap = {self.gap}",
        ]
        return [
            "struct Patch {",
            *(f"  static constexpr int {each};" for each in numbers),
            f"  static constexpr bool skips = {str(self.skips).lower()};",
            "};",
        ]


Found = tuple[float, Problem, PatchTile]
"""Cycles, the problem with its k in parts of a patch, and the tile."""


def patch_tiles(nest: Nest, body: Graph, element: str) -> list[Found]:
    """The tiles of patch.cuh that a convolution of operands of `element` may take, a few of the
    best, the best first; none if it is no such convolution."""
    patch = image_of(nest, CONVOLUTIONS, nest.kept, nest.summed)
    if patch is None or patch.taps not in TAPS or element not in ("tf32", "half", "bfloat"):
        return []
    found: list[Found] = []
    for depth in _depths(patch):
        problem = _in_parts(nest, body, patch, depth)
        if problem is not None:
            parts = -(-patch.channels // depth)
            found += [(c, problem, t) for c, t in _tiles(patch, problem, depth, parts)]
    return sorted(found, key=lambda each: each[0])[:2]


def image_of(
    nest: Nest, ops: Sequence[str], pixels: Sequence[int], taps: Sequence[int]
) -> Patch | None:
    """The image that a contraction, one of `ops`, reads first, as it lies, at taps of output
    pixels, which are among these axes; None if it is none."""
    op, read = nest.node.op, nest.a
    if op.name not in ops or nest.sections is not None:
        return None
    if read.type.layout == ROW_MAJOR or read.type.rank != 4 or read.quotients:
        return None
    assert isinstance(op, Contraction)
    operand = op.iteration(*(v.type for v in nest.node.inputs)).a
    image, channel, *places = operand.index
    steps = read.type.strides
    if operand.divisors != (1, 1, 1, 1) or image.offset or channel.offset or steps[1] != 1:
        return None
    offset = sum(s * p.offset for s, p in zip(steps, operand.index, strict=True))
    strides = tuple(
        sum(s * p.coefficients[i] for s, p in zip(steps, operand.index, strict=True))
        for i in range(len(nest.axes))
    )
    if (strides, offset) != (read.strides, read.offset):
        return None
    axles = []
    for place, extent in zip(places, read.type.shape[2:], strict=True):
        (output,) = (i for i in pixels if place.coefficients[i])
        (tap,) = (i for i in taps if place.coefficients[i])
        extents = nest.axes[output].extent, nest.axes[tap].extent
        factors = place.coefficients[output], place.coefficients[tap]
        axles.append(Axle(*extents, *factors, place.offset, extent))
    images, channels = read.type.shape[:2]
    size = read.type.numpy_dtype.itemsize
    outer = (steps[0], steps[2], steps[3])
    grouped = sum(map(bool, channel.coefficients)) > 1
    patch = Patch(images, axles[0], axles[1], channels, outer, size)
    return None if grouped or read.type.size >= 2**30 else patch


def _depths(patch: Patch) -> list[int]:
    """Channels of a part: all, whole fragments of them, or some that divide them."""
    whole = FRAGMENT // patch.size
    every = -(-patch.channels // whole) * whole
    found = [n for n in (b // patch.size for b in PARTS) if n < every and patch.channels % n == 0]
    return [*found, every] if every * patch.size <= PARTS[-1] else found


def _in_parts(nest: Nest, body: Graph, patch: Patch, depth: int) -> Problem | None:
    """The convolution with k in the order part, tap, channel; None if it cannot be."""
    (channel,) = (i for i in nest.summed if nest.a.strides[i] == 1)
    first: tuple[int, ...] = ()
    if depth < patch.channels:
        name = nest.axes[channel].name
        cut = (Axis(f"{name}_part", patch.channels // depth, False), Axis(name, depth, False))
        nest, first, channel = cut_axis(nest, channel, cut), (channel,), channel + 1
    problem = make_problem(nest, body, first=first, fragment=FRAGMENT)
    batches, m, _, k = problem.sizes
    y, x, b = patch.rows, patch.columns, problem.b
    if problem.a.read.input != nest.a.input or problem.b.read.input == nest.a.input:
        return None
    if batches != 1 or m != patch.images * y.outputs * x.outputs:
        return None
    if k % (depth * patch.taps) or b.read.quotients or b.vector * patch.size != 16:
        return None
    steps = [
        abs(problem.a.read.strides[i]) for i in problem.rows if problem.nest.axes[i].extent > 1
    ]
    order = [i for i in problem.depth if problem.nest.axes[i].extent > 1]
    taps = [i for i in order if i not in first and i != channel]
    down = [i for i in taps if problem.a.read.strides[i] == y.tap * patch.strides[1]]
    if steps != sorted(steps, reverse=True) or order != [*first, *taps, channel]:
        return None
    if y.taps > 1 and taps[:1] != down[:1]:
        return None
    plain = all({*border.axes} & {channel, *problem.columns} for border in b.read.borders)
    return problem if plain else None


def _tiles(
    patch: Patch, problem: Problem, depth: int, parts: int
) -> Iterator[tuple[float, PatchTile]]:
    """Tiles with the cycles that they are estimated to take."""
    n, lines = problem.sizes[2], patch.rows.outputs
    widths = {-(-n // 8) * 8} if n <= 64 else {64, 32}
    widths |= {32} if n >= 64 and n % 32 == 0 else set()
    blocks = [(1, each) for each in range(1, lines + 1)]
    blocks += [(images, lines) for images in (2, 4, 8, 16)]
    for (images, few), width, warps in itertools.product(blocks, sorted(widths), (4, 8)):
        rows = images * few * patch.columns.outputs
        held = -(-rows // (16 * warps))
        sums = held * width // 2
        if images > patch.images or rows < 64 or sums > MOST_SUMS:
            continue
        bands = -(-lines // few)
        grid = -(-patch.images // images) * bands * -(-n // width)
        met = _met(patch, images, few, held * warps)
        bare = PatchTile(patch, images, few, width, depth, warps, 1, grid, met)
        shared = bare.shared_bytes(parts, problem.b.along_k)
        if shared > MOST_SHARED:
            continue
        taken = _registers(bare, held)
        resident = min(
            SHARED // (shared + 1024), REGISTERS // (taken * bare.threads), 16 // warps * 2
        )
        if resident < 2 or taken > MOST_REGISTERS:  # one computes while another waits
            continue
        tile = PatchTile(patch, images, few, width, depth, warps, resident, grid, met)
        yield _cycles(tile, problem, parts, held), tile


def _registers(tile: PatchTile, held: int) -> int:
    """Of a thread, about: sums, places of rows, fragments of columns and pixels, places of copies,
    and what else a loop needs."""
    across, inner = tile.n // 8, tile.k * tile.patch.size // FRAGMENT
    most = max(1, 24 // across)
    together = max(i for i in range(1, most + 1) if inner % i == 0)
    fragments = min(together * (4 * -(-across // 2) + 4), 40)  # more are loaded later
    copies = -(-tile.k * tile.n * tile.patch.size // (16 * tile.threads))
    return -(-(held * (across * 4 + 3) + fragments + 2 * copies + 60) // 8) * 8


def _met(patch: Patch, images: int, lines: int, fragments: int) -> float:
    """The share of the pairs of one of a block's fragments and a tap of which a row is in the
    image."""
    down, across = patch.rows.met(), patch.columns.met()
    both = down[:, None, :, None] & across[None, :, None, :]
    bands = -(-len(down) // lines)
    whole = np.zeros((bands * lines, *both.shape[1:]), bool)
    whole[: len(down)] = both
    pixels = whole.reshape(bands, -1, patch.taps)
    rows = np.repeat(pixels, images, axis=1)
    padded = np.zeros((bands, fragments * 16, patch.taps), bool)
    padded[:, : rows.shape[1]] = rows
    return float(padded.reshape(bands, fragments, 16, -1).any(axis=2).mean())


def _cycles(tile: PatchTile, problem: Problem, parts: int, held: int) -> float:
    """What the tile is estimated to take on a large device: tensor cores, instructions, or what a
    block alone waits for, and no less than its bytes take."""
    patch, across, along_k = tile.patch, tile.n // 8, problem.b.along_k
    steps, inner = patch.taps * parts, tile.k * patch.size // FRAGMENT
    live = held * (tile.met if tile.skips else 1.0)
    columns = across * ((2.5 if along_k else 4) if patch.size == 4 else 0.5)
    copied = tile.k * tile.n * patch.size / 16 / tile.threads
    pixels = tile.images * tile.held_lines * patch.columns.extent
    filled = parts * pixels * tile.k * patch.size / 16 / tile.threads
    runs = held * across / 4
    products = live * inner * across * steps * PRODUCT
    of_step = inner * (live * (across + 1.5) + columns) + held * 5 + copied * 5 + 30
    issues = (of_step * steps + filled * 40 + runs * 200) * ISSUE
    shared = inner * (live * 4 + across * 2) + copied * 4
    accesses = shared * steps + filled * 11 + runs * 44
    busy = tile.warps * max(products, issues, accesses)
    alone = steps * (of_step * WAIT + STEP + SHARED_WAIT * held) + filled * 120 + runs * 700
    alone += START + parts * PART
    whole, rest = divmod(-(-tile.grid // MULTIPROCESSORS), tile.blocks)
    rounds = [(whole, tile.blocks)] * bool(whole) + [(1, rest)] * bool(rest)
    time = sum(n * max(blocks * busy, alone) for n, blocks in rounds)
    return max(time, moved_bytes(tile, problem) / BYTES)


def moved_bytes(tile: PatchTile, problem: Problem) -> float:
    """Bytes that move between the second-level cache and multiprocessors."""
    patch, (_, m, n, k) = tile.patch, problem.sizes
    channels = min(patch.channels, k // patch.taps)
    pixels = tile.images * tile.held_lines * patch.columns.extent
    block = pixels * channels * patch.size + k * tile.n * patch.size
    return tile.grid * block + m * n * 4


def parts_of(tile: PatchTile) -> int:
    """Parts of a pixel's channels."""
    return math.ceil(tile.patch.channels / tile.k)
