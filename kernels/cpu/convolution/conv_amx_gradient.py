"""Lower weight gradients of bf16 convolutions to AMX tile registers.

The sum runs over pixels, 32 per instruction. dy is gathered and transposed, x is gathered into
planes where a tap is an offset. What is gathered for a block of pixels serves all taps and channels
of a chunk.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from graphc.base.target import Target
from graphc.kernels.cpu.contract.index_text import integers, longs
from graphc.kernels.cpu.contract.tile import FEWEST_CHUNKS, STACK_BYTES, TILE
from graphc.kernels.cpu.contract.tile_cost import chunk_target
from graphc.kernels.cpu.convolution.conv_amx import Line, line
from graphc.kernels.cpu.convolution.conv_channels import products_per_step
from graphc.kernels.cpu.convolution.conv_channels_gradient import C, K, N, P, Q, R, S
from graphc.kernels.cpu.shared.kernel_source import balanced, chunk_count, entry, make_kernel, share
from graphc.kernels.program.kernel import Kernel
from graphc.kernels.program.nest import Nest
from graphc.ops.fused import KernelNode

PIXELS = 2 * TILE
"""Pixels whose products one instruction adds."""

TURN_CYCLES = 150
"""Estimated cycles to gather and transpose 32 pixels of a register of dy: 16 loads of two, 16
permutations and 64 shuffles."""


@dataclass(frozen=True)
class _Block:
    """A block: `vectors` registers of dy's channels and `channels` of x's, over `rows` rows of
    `images`."""

    vectors: int
    channels: int
    images: int
    rows: int


def lower_amx_gradient(node: KernelNode, nest: Nest, target: Target) -> Kernel | None:
    """The kernel of a weight gradient with channels in the lanes of both operands.

    None if they are not bf16, if there is no image, or if no block of pixels fits the stack.
    """
    if not target.multiplies_tiles or products_per_step(nest, target) != 2 or nest.a.lanes != C:
        return None
    rows, columns = line(nest, P, R), line(nest, Q, S)
    if rows is None or columns is None or not all(axis.extent for axis in nest.axes):
        return None
    if rows.tap < 0 or columns.tap < 0:
        return None
    loops = _AmxGradientLoops(nest, rows, columns)
    if loops.best is None:
        return None
    x, dy = (f"(const bfloat*)arguments[{read.input}]" for read in (nest.a, nest.b))
    out, workspace = (f"(float*)arguments[{len(node.inputs) + i}]" for i in (0, 1))
    finish = share(loops.units, loops.finish_chunks)
    lines = [
        "using Kernel = tiles::Gradient<Shape>;",
        f"if (phase == 0) Kernel::run({x}, {dy}, {workspace}, chunk);",
        f"else Kernel::finish({x}, {dy}, {workspace}, {out}, {finish});",
    ]
    kernel = make_kernel(
        node,
        ["\n".join([*loops.shape(loops.best), ""]), entry(node, lines, "phase")],
        (loops.chunks, loops.finish_chunks),
        4 * loops.parts * loops.size,
        nest.flops,
        header="convolution/conv_amx_gradient",
    )
    return replace(kernel, choice=loops.choice(loops.best))


def _cuts(extent: int) -> list[int]:
    """Sizes of equal pieces, of which the last may be smaller."""
    return sorted({-(-extent // n) for n in range(1, min(extent, 32) + 1)} | {1})


class _AmxGradientLoops:
    """The blocks of a nest, and the loops around them."""

    def __init__(self, nest: Nest, rows: Line, columns: Line) -> None:
        self.nest, self.rows, self.columns = nest, rows, columns
        self.extents = [axis.extent for axis in nest.axes]
        self.vectors, self.channels = self.extents[K] // TILE, self.extents[C] // TILE
        self.taps = self.extents[R] * self.extents[S]
        self.size, self.units = nest.extents((K, C, R, S)), self.vectors * self.channels
        self.planes = math.prod(a.step // math.gcd(a.step, a.tap) for a in (rows, columns))
        self.width = self.extents[Q] + columns.tap * (self.extents[S] - 1) // columns.step
        small = 4 * self.size < max(nest.a.type.nbytes, nest.b.type.nbytes)
        self.most_parts = self.extents[N] if small else 1
        self.best = min(self._candidates(), key=self._shared_cycles, default=None)
        if self.best is not None:
            self._cut_into_chunks(self.best)

    def choice(self, block: _Block) -> str:
        """The block and the reason for it, in words."""
        return (
            f"{block.vectors} x {block.channels} registers of {TILE} x {TILE} channels over "
            f"{block.rows} rows of {block.images}, bf16 by tiles (AMX): by a model of cycles the "
            "cheapest whose pixels the stack holds"
        )

    def _candidates(self) -> Iterator[_Block]:
        n, p = self.extents[N], self.extents[P]
        pixels = [*((1, rows) for rows in _cuts(p)), *((images, p) for images in _cuts(n))]
        registers = itertools.product(_cuts(self.vectors), _cuts(self.channels))
        for (vectors, channels), (images, rows) in itertools.product(registers, pixels):
            block = _Block(vectors, channels, images, rows)
            if self._bytes(block) <= STACK_BYTES:
                yield block

    def _steps(self, rows: int) -> int:
        return -(-((rows - 1) * self.width + self.extents[Q]) // PIXELS)

    def _height(self, rows: int) -> int:
        return rows + self.rows.tap * (self.extents[R] - 1) // self.rows.step

    def _plane_size(self, rows: int) -> int:
        """Positions of a plane, including those that registers read past its end."""
        across = self.columns.tap * (self.extents[S] - 1) // self.columns.step
        last = (self._height(rows) - rows) * self.width + across
        return max(self._height(rows) * self.width, last + self._steps(rows) * PIXELS)

    def _bytes(self, block: _Block) -> int:
        """Bytes of the gathered x and dy."""
        x = block.channels * self.planes * self._plane_size(block.rows) * TILE
        dy = self._steps(block.rows) * block.vectors * TILE * TILE
        return 4 * block.images * (x + dy)

    def _cycles(self, block: _Block) -> float:
        """Estimated cycles of the kernel: 16 per instruction, half of the 8 of a load, 24 to load
        and store a register of sums."""
        steps, plane = self._steps(block.rows), self._plane_size(block.rows)
        sums = block.vectors * block.channels * self.taps
        one = block.images * steps * sums * (TILE + 5.5) + 24 * sums
        one += 4.0 * block.images * block.channels * self.planes * plane
        one += float(TURN_CYCLES) * block.images * block.vectors * steps
        blocks = -(-self.extents[N] // block.images) * -(-self.extents[P] // block.rows)
        return self._groups(block) * blocks * one

    def _groups(self, block: _Block) -> int:
        return -(-self.vectors // block.vectors) * -(-self.channels // block.channels)

    def _shared_cycles(self, block: _Block) -> float:
        """Estimated cycles of the busiest worker if there are as many workers as useful, with few
        chunks."""
        cycles, most = self._cycles(block), self._groups(block) * self.most_parts
        return cycles * max(1.0, min(chunk_target(cycles), FEWEST_CHUNKS) / most)

    def _cut_into_chunks(self, block: _Block) -> None:
        groups = self._groups(block)
        wanted = min(chunk_target(self._cycles(block)), 2 * FEWEST_CHUNKS)
        self.parts = max(1, min(-(-wanted // groups), self.most_parts))
        self.chunks = self.parts * groups
        nanoseconds = self.size * (1.0 + self.parts / TILE)
        self.finish_chunks = balanced(chunk_count(nanoseconds, self.units), self.units)

    def shape(self, block: _Block) -> list[str]:
        """The C++ `struct Shape` of conv_amx_gradient.h."""
        x, dy, rows, columns = self.nest.a, self.nest.b, self.rows, self.columns
        k, c, r, s, n, p, q = self.extents
        registers = min(2, block.vectors)
        steps = {
            "ROW_LOW": rows.low,
            "ROW_HIGH": rows.high,
            "ROW": rows.unit,
            "COLUMN_LOW": columns.low,
            "COLUMN_HIGH": columns.high,
            "COLUMN": columns.unit,
            "X_0": x.offset,
            "X_N": x.strides[N],
            "X_B": x.block,
            "Y_0": dy.offset,
            "Y_N": dy.strides[N],
            "Y_K": dy.block,
            "Y_P": dy.strides[P],
            "Y_Q": dy.strides[Q],
        }
        return [
            "struct Shape {",
            integers(N=n, K=k, P=p, Q=q, C=c, R=r, T=s),
            integers(P_STEP=rows.step, R_STEP=rows.tap, Q_STEP=columns.step, S_STEP=columns.tap),
            integers(K_TILE=block.vectors, C_TILE=block.channels, IMAGES=block.images),
            integers(ROWS=block.rows, HEIGHT=self._height(block.rows), WIDTH=self.width),
            integers(ROOM=self._plane_size(block.rows), STEPS=self._steps(block.rows)),
            integers(RM=registers, NV=4 // registers, PARTS=self.parts),
            longs(steps),
            "};",
        ]
