"""Tiles of halo.cuh, whose blocks hold the pixels that they read."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from graphc.kernels.cuda.contract.contract import Problem
from graphc.kernels.cuda.contract.tiles.tile import PRODUCTS, TileAnswers
from graphc.ops.base import Array

WORTH, SKIPPING_WORTH = 0.85, 0.9
"""The share of its time that a convolution is to take with tiles that hold the pixels that they
read, where other tiles take all steps or leave some out."""
STAGES = 4
"""Of the ring of columns, if a step is a tap; one less if it is all taps of a line."""


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
class Halo:
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
class HaloTile(TileAnswers):
    """`lines` lines of output of each of `images` images and `n` columns per block of so many
    `warps`; `k` channels per tap, a part of all, of which each block has one of so many `splits`,
    and so many `taps` per step; `met` is the share of the fragments' taps that exist, which are
    left out if it `skips`."""

    patch: Halo
    images: int
    lines: int
    n: int
    k: int
    warps: int
    taps: int
    splits: int
    blocks: int
    grid: int
    met: float
    groups: ClassVar[int] = 1
    header: ClassVar[str] = "convolution/halo"
    template: ClassVar[str] = "HaloProduct<Problem, Halo, Tile>"
    size_name: ClassVar[str] = "bytes"

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

    @property
    def stages(self) -> int:
        """Of the ring of columns."""
        return STAGES if self.taps == 1 else STAGES - 1

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

    @property
    def parts(self) -> int:
        """Of a pixel's channels, that a block goes through."""
        return math.ceil(self.patch.channels / self.k) // self.splits

    def shared_bytes(self, along_k: bool) -> int:
        """As HaloProduct::bytes."""
        size = self.patch.size
        pixel = self.k * size + 16
        image = self.held_lines * self.patch.columns.extent * pixel + self.gap
        deep = self.k * self.taps
        line, lines = (deep, self.n) if along_k else (self.n, deep)
        quad = 16 // size
        pitch = line if line // quad % 2 else line + quad
        if not along_k and size == 4:
            pitch = line if line % 16 else line + 8
        ring = self.stages * lines * pitch * size
        whole = min(self.parts, 2) * self.images * image + self.k * size + ring
        return max(whole, 16 * self.warps * (self.n + 8) * 4)

    def tiles(self, problem: Problem) -> int:
        return self.grid

    def dynamic_bytes(self, problem: Problem) -> int:
        return self.shared_bytes(problem.b.along_k)

    def call(self, operands: Sequence[str], maps: Sequence[str]) -> str:
        return f"{self.template}::run_in(block, dynamic_shared, {', '.join(operands)}"

    def partials(self, rows: int, strips: int) -> int:
        return self.grid // strips

    def worth(self, skipping: bool) -> float:
        return SKIPPING_WORTH if skipping else WORTH

    def multiplied(self, element: str) -> tuple[str, str, str] | None:
        patches = f"patches of {self.images} x {self.lines} lines"
        return "tensor cores", PRODUCTS[element], patches

    def describe(self, cut: str) -> str:
        return (
            f"blocks that hold what {self.lines} lines of {self.images} images read, "
            f"{self.m} x {self.n} sums, {self.k * self.taps} of k per step{cut}"
        )

    def __str__(self) -> str:
        numbers = (self.images, self.lines, self.n, self.k, self.warps, self.stages, self.taps)
        return f"HaloTile<{', '.join(map(str, numbers))}>"

    def text(self) -> list[str]:
        """The lines of struct Halo of halo.cuh."""
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
            "struct Halo {",
            *(f"  static constexpr int {each};" for each in numbers),
            f"  static constexpr bool skips = {str(self.skips).lower()};",
            "};",
        ]
