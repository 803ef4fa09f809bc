"""Tiles of im2col_gradient.cuh, whose rows are taps and channels together: gradients of filters of
images of few channels."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from graphc.ir import Graph
from graphc.kernels.cuda.contract.contract import Problem
from graphc.kernels.cuda.contract.split_k import Partial
from graphc.kernels.cuda.convolution.halo import MOST_SUMS
from graphc.kernels.cuda.convolution.halo_gradient import (
    ALONE,
    START,
    STEP,
    WARPS,
    Found,
    HaloGradientTile,
    bare_gradient,
)
from graphc.kernels.cuda.shared.gpu_model import GPU
from graphc.kernels.program.nest import Nest

MOST_ROWS = 1024
"""Taps and channels together."""
WASTE = 1.35
"""Times the rows that there are, those of all blocks at most, where they are not 16."""
PITCH = 20
"""Floats from one column of sums to the next as they leave."""
ROUNDED, COPIED = 28, 10
"""Instructions that copy 16 bytes, and round them where they lie or not."""
LEAVING = 0.12
"""Cycles for each sum of a warp that leaves a block."""


@dataclass(frozen=True)
class Im2colTile(HaloGradientTile):
    """As `HaloGradientTile`, of `n` taps and channels of x, and all `m` channels of dy, where
    `down` warps below each other have them all, and those beside each other a share of the lines
    each."""

    down: int = 1
    header = "convolution/im2col_gradient"
    template = "Im2colGradient<Problem, Halo, Tile>"

    @property
    def taps(self) -> int:
        """Rows of the products: taps and channels."""
        return self.x.taps * self.columns

    @property
    def across(self) -> int:
        """Times eight, the columns of dy."""
        return -(-self.m // 8)

    @property
    def fragments(self) -> int:
        return self.n // (16 * self.down)

    @property
    def together(self) -> int:
        """Lines of whose pixels a product has four, or one of which it has eight."""
        return 2 if self.x.columns.outputs % 8 else 1

    @property
    def products(self) -> int:
        """Of a line, or of lines together."""
        return self.x.columns.outputs * self.together // 8

    @property
    def grid(self) -> int:
        return -(-self.taps // self.n)

    @property
    def reach(self) -> int:
        """Lines of x that a step has."""
        y = self.x.rows
        return (self.lines - 1) * y.step + (y.taps - 1) * y.tap + 1

    @property
    def chunks(self) -> tuple[int, int]:
        """Of 16 bytes, of x and of dy, that a step copies."""
        x = self.x.columns
        of_y = self.lines * x.outputs * -(-self.outputs // 4)
        return self.reach * x.extent * self.columns // 4, of_y

    @property
    def shared_bytes(self) -> int:
        """As Im2colGradient::bytes."""
        x, single = self.x.columns, self.columns == 1
        pixel = self.columns if single or self.columns % 8 else self.columns + 4
        outside = max(0, -x.first)
        beside = -(-outside // 4) * 4 if single else outside * pixel
        last = (x.outputs - 1) * x.step + (x.taps - 1) * x.tap + x.first
        line = beside + max(x.extent, last + 1) * pixel
        while single and (line % 4 or not 12 <= line % 32 <= 20):
            line += 1
        chunks = -(-self.outputs // 4)
        of_y = self.lines * x.outputs * (chunks * 4 if chunks % 2 else chunks * 4 + 4)
        buffers = 2 * (self.reach * line + of_y)
        return 4 * max(buffers, WARPS * self.across * 8 * PITCH)

    @property
    def held_by_block(self) -> str:
        return f"{self.lines} lines of dy and all taps read, {self.n} taps and channels"

    def __str__(self) -> str:
        return f"Im2colTile<{self.n}, {self.lines}, {self.down}>"


def im2col_tiles(nest: Nest, body: Graph, element: str, beside: int = 1) -> Sequence[Found]:
    """The tiles of im2col_gradient.cuh that the gradient of filters may take, a few of the best,
    the best first; none if it is no such gradient of operands that are read as tf32. Cycles are
    those of so many alike `beside` each other."""
    found = bare_gradient(nest, body, element, planes=True)
    if found is None:
        return []
    problem, bare = found
    x = bare.x.columns
    whole = x.extent % 4 == 0 if bare.columns == 1 else bare.columns % 4 == 0
    dense = bare.x.strides[2] == bare.columns == bare.x.channels
    if not whole or not dense or x.outputs % 4 or bare.x.taps * bare.columns > MOST_ROWS:
        return []
    made: list[Found] = [
        (c, problem, t, n) for t in _tiles(bare) for c, n in _splits(t, problem, beside)
    ]
    return sorted(made, key=lambda each: each[0])[:2]


def _tiles(bare: HaloGradientTile) -> Iterator[Im2colTile]:
    """The tiles that fit registers and shared memory."""
    y = bare.x.rows
    rows = bare.x.taps * bare.columns
    several = [n for n in (1, 2, 4, 6, 7, 8, 12, 14, y.outputs) if y.outputs % n == 0]
    for down, fragments, lines in itertools.product((1, 2, 4, 8), (1, 2, 3, 4), sorted({*several})):
        n = 16 * down * fragments
        if -(-rows // n) * n > max(WASTE * rows, 16):
            continue
        tile = Im2colTile(
            bare.x, bare.y, bare.outputs, bare.columns, bare.rows, bare.rows, n, lines, 1, down
        )
        if lines % tile.together == 0:
            yield from _fitted(tile)


def _fitted(tile: Im2colTile) -> Iterator[Im2colTile]:
    """The tile with the blocks that a multiprocessor holds, if it fits."""
    sums = tile.fragments * tile.across * 4
    registers = sums + tile.across * 2 + tile.fragments * 2 + 60
    if sums > MOST_SUMS or tile.shared_bytes > GPU.block_shared:
        return
    resident = min(GPU.resident(registers, tile.threads, tile.shared_bytes), 4)
    if resident:
        yield replace(tile, blocks=resident)


def _splits(tile: Im2colTile, problem: Problem, beside: int) -> Iterator[tuple[float, int]]:
    """Estimated cycles on a large device by parts of k that fill it."""
    steps, tiles = tile.bands * tile.x.images, tile.grid * beside
    full = [GPU.multiprocessors * blocks // tiles for blocks in range(1, tile.blocks + 1)]
    for splits in sorted({1, 2, 4, 8, 16, 33, 66, *full}):
        if 1 <= splits <= steps:
            yield _cycles(tile, problem, steps, splits, beside), splits


def _cycles(tile: Im2colTile, problem: Problem, steps: int, splits: int, beside: int) -> float:
    """What products, instructions or reads of shared memory take, or what a block waits for, and no
    less than bytes take."""
    mine, shares = math.ceil(steps / splits), WARPS // tile.down
    count = tile.fragments * tile.across
    reads = tile.fragments * 4 + tile.across * 2
    issued: float = count + reads + tile.across * 2 * (tile.down == 1)
    issued += (tile.fragments * 2 + 6) / tile.products
    product = max(count * GPU.fragment, reads, issued * GPU.issue) * WARPS
    alone = max(issued * ALONE + 40, product)
    products = mine * math.ceil(tile.lines / tile.together / shares) * tile.products
    of_x, of_y = (each / tile.threads for each in tile.chunks)
    copied = mine * (of_x * ROUNDED + of_y * (ROUNDED if tile.down > 1 else COPIED))
    leaving = tile.n * shares * tile.across * 8 * LEAVING
    busy = products * product + copied * GPU.issue * WARPS + leaving
    wait = products * alone + copied * ALONE + mine * STEP + leaving + START
    time = GPU.cycles(tile.grid * splits * beside, tile.blocks, busy, wait)
    parts = Partial(splits, beside * math.prod(problem.sizes[1:3]), 4, 1, 1, False, False)
    time = max(time, beside * tile.grid * steps * sum(tile.chunks) * 16 / GPU.l2_rate + parts.moved)
    return time + parts.second_launch() if splits > 1 else time
