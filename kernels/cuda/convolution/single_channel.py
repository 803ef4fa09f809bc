"""Tiles of single_channel.cuh: convolutions of images of one channel, whose taps are k."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace

from graphc.ir import Graph
from graphc.kernels.cuda.contract.access import OperandAccess
from graphc.kernels.cuda.contract.contract import make_problem
from graphc.kernels.cuda.convolution.halo import (
    TAPS,
    WAIT,
    Found,
    image_of,
)
from graphc.kernels.cuda.convolution.halo_tile import Halo, HaloTile
from graphc.kernels.cuda.shared.gpu_model import GPU
from graphc.kernels.program.nest import Nest

WARPS = (3, 4, 6)
"""Of a block."""
TURN = 32
"""Rows of a warp at a time."""
MOST_FILTERS = 42
"""Registers of a thread that hold filters."""
START = 1500
"""Cycles until a block's lines and filters are there."""
RUN, TURNED = 18, 40
"""Instructions of a warp for runs of four sums, and of each turn besides."""


@dataclass(frozen=True)
class SingleChannelTile(HaloTile):
    """As `HaloTile`, of one image of one channel, and all `n` columns."""

    header = "convolution/single_channel"
    template = "SingleChannelProduct<Problem, Halo, Tile>"

    @property
    def across(self) -> int:
        """Times eight, the columns."""
        return -(-self.n // 8)

    @property
    def quads(self) -> int:
        """Times four, the taps."""
        return -(-self.patch.taps // 4)

    def shared_bytes(self, along_k: bool) -> int:
        """As SingleChannelProduct::bytes."""
        x = self.patch.columns
        vector = 1 if x.extent % 4 or self.patch.strides[0] % 4 else 4
        beside = -(-max(0, -x.first) // vector) * vector
        last = (x.outputs - 1) * x.step + (x.taps - 1) * x.tap + x.first
        line = beside + max(x.extent, last + 1)
        while line % 4 or not 12 <= line % 32 <= 20:
            line += 1
        pitch = self.across * 8 + (16 if self.across % 2 else 8)
        filters = -(-self.n * self.patch.taps // 4) * 4
        return (self.reach * line + filters + self.warps * TURN * pitch) * 4

    def __str__(self) -> str:
        return f"SingleChannelTile<{self.lines}, {self.warps}>"


def single_channel_tiles(nest: Nest, body: Graph, element: str) -> list[Found]:
    """The tiles of single_channel.cuh that a convolution may take, a few of the best, the best
    first; none if it is no convolution of images of one channel that are read as tf32."""
    patch = image_of(nest, ("conv2d",), nest.kept, nest.summed, planes=True)
    if patch is None or patch.channels != 1 or element != "tf32" or patch.taps < TAPS.start:
        return []
    problem = make_problem(nest, body)
    batches, m, n, k = problem.sizes
    y, x = patch.rows, patch.columns
    rows = [nest.axes[i].name for i in problem.rows if problem.nest.axes[i].extent > 1]
    order = [name for name in "npq" if name in rows]
    if problem.a.read.input != nest.a.input or problem.b.read.input == nest.a.input:
        return []
    if batches != 1 or (m, k) != (patch.images * y.outputs * x.outputs, patch.taps):
        return []
    if rows != order or problem.nest.axes != nest.axes or x.tap < 0 or y.tap < 0:
        return []
    if patch.strides[1] != x.extent or not _is_dense(problem.b, patch.taps):
        return []
    operands = (problem.a.read.input, problem.b.read.input)
    others = [v for i, v in enumerate(body.inputs) if i not in operands]
    read = sum(v.type.nbytes for v in others)
    found: list[Found] = [(_cycles(t, m * n * 4 + read), problem, t) for t in _tiles(patch, n)]
    return sorted(found, key=lambda each: each[0])[:2]


def _is_dense(filters: OperandAccess, taps: int) -> bool:
    """Whether they lie one after another, a tap after the other."""
    steps = [
        [f.stride for f in factors if f.extent > 1] for factors in (filters.outer, filters.depth)
    ]
    plain = not (filters.borders or filters.read.quotients or filters.read.offset)
    return plain and steps == [[taps], [1]]


def _tiles(patch: Halo, n: int) -> Iterator[SingleChannelTile]:
    """The tiles that fit registers and shared memory."""
    y = patch.rows
    divisors = [each for each in range(1, y.outputs + 1) if y.outputs % each == 0]
    for lines, warps in itertools.product(divisors, WARPS):
        grid = patch.images * (y.outputs // lines)
        tile = SingleChannelTile(patch, 1, lines, n, 1, warps, patch.taps, 1, 1, grid, 1.0)
        filters = tile.across * tile.quads
        registers = filters + tile.across * 8 + tile.quads + 64
        shared = tile.shared_bytes(True)
        if filters > MOST_FILTERS or shared > GPU.block_shared or tile.m < TURN:
            continue
        resident = GPU.resident(registers, tile.threads, shared)
        yield replace(tile, blocks=min(resident, 8))


def _cycles(tile: SingleChannelTile, moved: int) -> float:
    """What the tile is estimated to take on a large device: tensor cores, instructions, accesses,
    or what a block alone waits for, and no less than its bytes take."""
    most, turns = -(-tile.m // (TURN * tile.warps)), -(-tile.m // TURN)
    products = tile.across * tile.quads  # of halves of a fragment, of two fragments
    runs = -(-tile.n // 4)
    issued = tile.quads * 4 + products + tile.across * 4 + runs * RUN + TURNED
    accesses = tile.quads * 4 + tile.across * 8 + runs * 7
    copied = tile.reach * tile.patch.columns.extent / 4 / tile.threads * 30
    before = copied + products * 6 + 60
    once = tile.warps * before
    busy = max((once + turns * issued) * GPU.issue, turns * products * GPU.fragment)
    busy = max(busy, once / 2 + turns * accesses)
    alone = START + (before + most * issued) * WAIT
    time = GPU.cycles(tile.grid, tile.blocks, busy, alone)
    read = tile.grid * tile.reach * tile.patch.columns.extent * 4
    return max(time, (moved + read) / GPU.l2_rate)
