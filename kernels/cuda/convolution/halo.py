"""Choose tiles of halo.cuh for a convolution, with an estimate of their time."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np

from graphc.ir import ROW_MAJOR, Graph
from graphc.kernels.cuda.contract.contract import Problem, make_problem
from graphc.kernels.cuda.contract.split_k import Partial
from graphc.kernels.cuda.convolution.halo_tile import Axle, Halo, HaloTile
from graphc.kernels.cuda.shared.gpu_model import GPU
from graphc.kernels.program.nest import Axis, Nest, cut_axis
from graphc.ops.base import Contraction

CONVOLUTIONS = ("conv2d", "conv2d_dgrad")
"""Ops whose first operand is images, read at pixels of taps."""
FRAGMENT = 32
"""Bytes of k of a product of tensor cores."""
PARTS = (64, 128, 256)
"""Bytes of a pixel's channels that a patch has."""
TAPS = range(4, 32)
"""Taps that are worth a patch; their bits are one word."""
MOST_SHARED = 96 * 1024
"""Bytes of shared memory of a block, which every GPU of compute capability 8.0 or newer has."""
MOST_SUMS = 112
"""Of a thread: with places of rows and fragments of columns they fit registers."""
MOST_REGISTERS = 248
"""Of a thread, as they are estimated."""
WAIT = 2.6
"""Cycles of an instruction of a warp that runs alone, with what it waits for others."""
START = 2000
"""Cycles until a block's first patch is there: memory's latency twice, with places of rows."""


Found = tuple[float, Problem, HaloTile]
"""Cycles, the problem with its k in parts of a patch, and the tile."""


def halo_tiles(nest: Nest, body: Graph, element: str) -> list[Found]:
    """The tiles of halo.cuh that a convolution of operands of `element` may take, a few of the
    best, the best first; none if it is no such convolution."""
    patch = image_of(nest, CONVOLUTIONS, nest.kept, nest.summed)
    if patch is None or patch.taps not in TAPS or element not in ("tf32", "half", "bfloat"):
        return []
    found: list[Found] = []
    for depth in _depths(patch):
        problem = _in_parts(nest, body, patch, depth)
        if problem is not None:
            operands = (problem.a.read.input, problem.b.read.input)
            others = [v for i, v in enumerate(body.inputs) if i not in operands]
            read = sum(v.type.nbytes for v in others)
            found += [(c, problem, t) for c, t in _tiles(patch, problem, depth, read)]
    return sorted(found, key=lambda each: each[0])[:2]


def image_of(
    nest: Nest,
    ops: Sequence[str],
    pixels: Sequence[int],
    taps: Sequence[int],
    planes: bool = False,
) -> Halo | None:
    """The image that a contraction, one of `ops`, reads first, as it lies, at taps of output
    pixels, which are among these axes; of one channel too, if `planes` are wanted. None if it is
    none, or a part of what lies in memory, which has more behind its borders."""
    op, read = nest.node.op, nest.a
    if op.name not in ops or nest.sections is not None or read.type.rank != 4 or read.quotients:
        return None
    if nest.node.inputs[0].type.shape != read.type.shape:
        return None
    plane = planes and read.type.layout == ROW_MAJOR and read.type.shape[1] == 1
    if read.type.layout == ROW_MAJOR and not plane:
        return None
    assert isinstance(op, Contraction)
    operand = op.iteration(*(v.type for v in nest.node.inputs)).a
    image, channel, *places = operand.index
    steps = read.type.strides
    if operand.divisors != (1, 1, 1, 1) or image.offset or channel.offset:
        return None
    if steps[1] != 1 and not plane:
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
    patch = Halo(images, axles[0], axles[1], channels, outer, size)
    return None if grouped or read.type.size >= 2**30 else patch


def _depths(patch: Halo) -> list[int]:
    """Channels of a part: all, whole fragments of them, or some that divide them."""
    whole = FRAGMENT // patch.size
    every = -(-patch.channels // whole) * whole
    found = [n for n in (b // patch.size for b in PARTS) if n < every and patch.channels % n == 0]
    return [*found, every] if every * patch.size <= PARTS[-1] else found


def _in_parts(nest: Nest, body: Graph, patch: Halo, depth: int) -> Problem | None:
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
    patch: Halo, problem: Problem, depth: int, read: int
) -> Iterator[tuple[float, HaloTile]]:
    """Tiles with the cycles that they are estimated to take, where the epilogue reads so many
    bytes."""
    n, lines = problem.sizes[2], patch.rows.outputs
    widths = {-(-n // 8) * 8} if n <= 64 else {64, 32}
    widths |= {32} if n >= 64 and n % 32 == 0 else set()
    blocks = [(1, each) for each in range(1, lines + 1)]
    blocks += [(images, lines) for images in (2, 4, 8, 16)]
    for (images, few), width, warps in itertools.product(blocks, sorted(widths), (4, 8)):
        rows = images * few * patch.columns.outputs
        held = -(-rows // (16 * warps))
        if images > patch.images or rows < 64 or held * width // 2 > MOST_SUMS:
            continue
        grid = -(-patch.images // images) * -(-lines // few) * -(-n // width)
        met = _met(patch, images, few, held * warps)
        for taps, splits in itertools.product(*_cuts(patch, depth, grid)):
            bare = HaloTile(patch, images, few, width, depth, warps, taps, splits, 1, grid, met)
            resident = _resident(bare, held, problem.b.along_k)
            if resident:
                tile = replace(bare, blocks=resident)
                yield _cycles(tile, problem, held, read), tile


def _cuts(patch: Halo, depth: int, grid: int) -> tuple[list[int], list[int]]:
    """The taps of a step, and parts of k whose blocks fill a large device at most twice."""
    parts = -(-patch.channels // depth)
    most = 2 * GPU.multiprocessors // grid
    return sorted({1, patch.columns.taps}), [
        i for i in range(1, parts + 1) if parts % i == 0 and (i == 1 or i <= most)
    ]


def _resident(tile: HaloTile, held: int, along_k: bool) -> int:
    """The blocks that a multiprocessor holds; 0 if none fits."""
    shared, taken = tile.shared_bytes(along_k), _registers(tile, held)
    if shared > MOST_SHARED or taken > MOST_REGISTERS:
        return 0
    fit = GPU.resident(taken, tile.threads, shared)
    return min(fit, 16 // tile.warps * 2)


def _registers(tile: HaloTile, held: int) -> int:
    """Of a thread, about: sums, places of rows, fragments of columns and pixels, places of copies,
    and what else a loop needs."""
    across, inner = tile.n // 8, tile.k * tile.patch.size // FRAGMENT
    most = max(1, 24 // across)
    together = max(i for i in range(1, most + 1) if inner % i == 0)
    fragments = min(together * (4 * -(-across // 2) + 4), 40)  # more are loaded later
    copies = -(-tile.k * tile.taps * tile.n * tile.patch.size // (16 * tile.threads))
    return -(-(held * (across * 4 + 3) + fragments + 2 * copies + 60) // 8) * 8


@lru_cache
def _met(patch: Halo, images: int, lines: int, fragments: int) -> float:
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


def _cycles(tile: HaloTile, problem: Problem, held: int, read: int) -> float:
    """What the tile is estimated to take on a large device: tensor cores, instructions, accesses,
    or what a block alone waits for, and no less than its bytes take; and a launch that adds parts
    of k."""
    patch, across, along_k = tile.patch, tile.n // 8, problem.b.along_k
    taps, inner = patch.taps * tile.parts, tile.k * patch.size // FRAGMENT
    live = held * (tile.met if tile.skips else 1.0)
    columns = across * ((2.5 if along_k else 4) if patch.size == 4 else 0.5)
    copied = taps * tile.k * tile.n * patch.size / 16 / tile.threads
    pixels = tile.images * tile.held_lines * patch.columns.extent
    filled = tile.parts * pixels * tile.k * patch.size / 16 / tile.threads
    runs = held * across
    products = live * inner * across * taps * GPU.fragment
    issued = taps * (inner * (live * (across + 1.2) + columns) + held * 4 + 10)
    issued += taps / tile.taps * 60 + copied * 5 + filled * 22 + runs * 60 + 600
    accesses = taps * inner * (live * 4 + across * 2) + copied * 4 + filled * 11 + runs * 11
    busy = tile.warps * max(products, issued * GPU.issue, accesses)
    alone = START + issued * WAIT
    time = GPU.cycles(tile.grid * tile.splits, tile.blocks, busy, alone)
    moved = moved_bytes(tile, problem)
    if tile.splits == 1:
        return max(time, (moved + read) / GPU.l2_rate)
    sums = math.prod(problem.sizes[1:3])
    partial = Partial(tile.splits, sums, 4, 1, 1, False, False)
    return max(time, moved / GPU.l2_rate) + partial.by_launch()


def moved_bytes(tile: HaloTile, problem: Problem) -> float:
    """Bytes that move between the second-level cache and multiprocessors, for all parts of k."""
    patch, (_, m, n, k) = tile.patch, problem.sizes
    channels = min(patch.channels, k // patch.taps)
    pixels = tile.images * tile.held_lines * patch.columns.extent
    block = pixels * channels * patch.size + k * tile.n * patch.size
    return tile.grid * block + tile.splits * m * n * 4
