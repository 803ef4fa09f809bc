"""The base of tiles whose blocks stage lines of an image in shared memory (staging.cuh), the record
of such an image, and the choice of the cheapest tile."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import ClassVar, Self

import numpy as np

from graphc.ir import ROW_MAJOR
from graphc.kernels.cuda.contract.contract import Problem
from graphc.kernels.cuda.contract.tiles.tile import TileAnswers
from graphc.kernels.cuda.shared.gpu_model import GPU
from graphc.kernels.program.nest import Nest
from graphc.ops.base import Array, Contraction

LEAST_TAPS = 4
"""Taps of a filter at least: with fewer, staging an image does not pay."""


@dataclass(frozen=True)
class ImageAxis:
    """One axis of a convolved image. Output i reads pixel i * step + t * tap + first at tap t; the
    image has `extent` pixels."""

    outputs: int
    taps: int
    step: int
    tap: int
    first: int
    extent: int

    def reach(self, outputs: int) -> int:
        """Pixels in the range that so many neighbouring outputs read."""
        return (outputs - 1) * self.step + abs(self.tap) * (self.taps - 1) + 1

    def staged_line(self, pixel: int, vector: int) -> int:
        """The length of a staged line in floats, as StagedLine::line, of pixels of so many floats
        and copies of `vector` floats."""
        beside = -(-max(0, -self.first) * pixel // vector) * vector
        last = (self.outputs - 1) * self.step + (self.taps - 1) * self.tap + self.first
        line = beside + max(self.extent, last + 1) * pixel
        while pixel == 1 and (line % 4 or not 12 <= line % 32 <= 20):
            line += 1
        return line


@dataclass(frozen=True)
class Image:
    """A batch of images that a convolution reads. `strides` are the elements from one image, line
    and pixel to the next, `size` the bytes of an element."""

    images: int
    rows: ImageAxis
    columns: ImageAxis
    channels: int
    strides: tuple[int, int, int]
    size: int

    @property
    def taps(self) -> int:
        """Taps of a filter."""
        return self.rows.taps * self.columns.taps

    def text(self, *more: str) -> list[str]:
        """The C++ struct Halo of staging.cuh, with `more` constants."""
        y, x, (image, line, pixel) = self.rows, self.columns, self.strides
        constants = [
            f"int images = {self.images}, P = {y.outputs}, Q = {x.outputs}",
            f"int H = {y.extent}, W = {x.extent}, R = {y.taps}, S = {x.taps}",
            f"int down = {y.step}, tap_down = {y.tap}, top = {y.first}",
            f"int across = {x.step}, tap_across = {x.tap}, left = {x.first}",
            f"int channels = {self.channels}, image = {image}, line = {line}, pixel = {pixel}",
        ]
        return ["struct Halo {", *(f"  static constexpr {c};" for c in (*constants, *more)), "};"]


@dataclass(frozen=True)
class Limits:
    """The resources that a tile may use at most.

    Attributes:
        kept: registers of a thread for sums, or for filters in their place.
        blocks, warps: of a multiprocessor.
        shared: bytes of shared memory of a block.
        registers: all registers of a thread, as estimated.
    """

    kept: int
    blocks: int
    warps: int = 64
    shared: int = GPU.block_shared
    registers: float = math.inf


@dataclass(frozen=True)
class HaloTile(TileAnswers):
    """The base of tiles whose blocks stage the pixels that `lines` lines of output read. A block
    computes `m` x `n` sums with so many `warps`; a multiprocessor holds so many `blocks`."""

    image: Image
    lines: int
    n: int
    warps: int
    blocks: int
    groups: ClassVar[int] = 1
    size_name: ClassVar[str] = "bytes"
    limits: ClassVar[Limits]
    worths: ClassVar[tuple[float, float]]
    """`worth` beside tiles that take all steps, and beside tiles that skip some."""

    @property
    def m(self) -> int:
        """Rows of a block."""
        raise NotImplementedError

    @property
    def grid(self) -> int:
        """Blocks, for one part of k."""
        raise NotImplementedError

    @property
    def kept(self) -> int:
        """Registers of a thread for sums, or for filters in their place."""
        raise NotImplementedError

    @property
    def registers(self) -> int:
        """Registers of a thread, as estimated."""
        raise NotImplementedError

    @property
    def shared_bytes(self) -> int:
        """Bytes of shared memory, as `bytes` of the template."""
        raise NotImplementedError

    @property
    def staged(self) -> str:
        """A description of what a block stages and computes."""
        raise NotImplementedError

    def parts_of_k(self) -> Iterable[int]:
        """The numbers of parts of k to try."""
        return (1,)

    def cycles(self, problem: Problem, splits: int) -> float:
        """The estimated cycles on a large device, with so many parts of k: the largest of products,
        instructions, accesses to shared memory, latency, and memory traffic."""
        raise NotImplementedError

    def fitted(self) -> Iterator[Self]:
        """The tile with `blocks` set, if it fits."""
        limits, shared = self.limits, self.shared_bytes
        if self.kept > limits.kept or self.registers > limits.registers or shared > limits.shared:
            return
        resident = GPU.resident(self.registers, self.threads, shared)
        if resident:
            yield replace(self, blocks=min(resident, limits.blocks, limits.warps // self.warps))

    @property
    def threads(self) -> int:
        return 32 * self.warps

    def units(self, sections: int) -> int:
        return self.n

    def tiles(self, problem: Problem) -> int:
        return self.grid

    def dynamic_bytes(self, problem: Problem) -> int:
        return self.shared_bytes

    def worth(self, skipping: bool) -> float:
        return self.worths[skipping]

    def describe(self, cut: str) -> str:
        return f"blocks that hold what {self.staged}{cut}"


HaloFound = tuple[float, Problem, HaloTile, int]
"""Cycles, the problem, the tile, and parts of k."""


def cheapest(tried: Iterable[tuple[Problem, HaloTile]]) -> list[HaloFound]:
    """The two cheapest of the tiles that fit, the best first."""
    found = [
        (tile.cycles(problem, splits), problem, tile, splits)
        for problem, bare in tried
        for tile in bare.fitted()
        for splits in tile.parts_of_k()
    ]
    return sorted(found, key=lambda each: each[0])[:2]


def image_of(
    nest: Nest,
    ops: Sequence[str],
    pixels: Sequence[int],
    taps: Sequence[int],
    planes: bool = False,
) -> Image | None:
    """The images that a contraction of one of `ops` reads, with output pixels and taps along these
    axes. None unless they are whole images with channels last; `planes` also allows images of one
    channel."""
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
    if (strides, offset) != (read.strides, read.offset):  # a part of what lies in memory
        return None
    axes = []
    for place, extent in zip(places, read.type.shape[2:], strict=True):
        (output,) = (i for i in pixels if place.coefficients[i])
        (tap,) = (i for i in taps if place.coefficients[i])
        extents = nest.axes[output].extent, nest.axes[tap].extent
        factors = place.coefficients[output], place.coefficients[tap]
        axes.append(ImageAxis(*extents, *factors, place.offset, extent))
    images, channels = read.type.shape[:2]
    size = read.type.numpy_dtype.itemsize
    outer = (steps[0], steps[2], steps[3])
    grouped = sum(map(bool, channel.coefficients)) > 1
    found = Image(images, axes[0], axes[1], channels, outer, size)
    return None if grouped or read.type.size >= 2**30 else found


@lru_cache
def met_share(image: Image, images: int, lines: int, fragments: int) -> float:
    """The share of pairs of a fragment and a tap that meet a pixel, where a block has so many lines
    of so many images, in so many fragments of 16 rows."""
    down, across = _met(image.rows), _met(image.columns)
    both = down[:, None, :, None] & across[None, :, None, :]
    bands = -(-len(down) // lines)
    whole = np.zeros((bands * lines, *both.shape[1:]), bool)
    whole[: len(down)] = both
    pixels = whole.reshape(bands, -1, image.taps)
    rows = np.repeat(pixels, images, axis=1)
    padded = np.zeros((bands, fragments * 16, image.taps), bool)
    padded[:, : rows.shape[1]] = rows
    return float(padded.reshape(bands, fragments, 16, -1).any(axis=2).mean())


def _met(axis: ImageAxis) -> Array:
    """Whether each output meets a pixel at each tap: bool[outputs, taps]."""
    at = np.arange(axis.outputs)[:, None] * axis.step + np.arange(axis.taps) * axis.tap
    inside: Array = (at + axis.first >= 0) & (at + axis.first < axis.extent)
    return inside
