"""Lower convolutions of bf16 and their data gradients to AMX tile registers.

The rows of a tile register are pixels of one or several image rows. Their inputs are gathered into
a patch with consecutive rows; the weight is first written in pairs.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from graphc.base.target import Target
from graphc.kernels.cpu.contract.epilogue import tile_epilogue
from graphc.kernels.cpu.contract.index_text import integers, longs
from graphc.kernels.cpu.contract.kernel_text import functor, setup, sum_parameters
from graphc.kernels.cpu.contract.tile import FEWEST_CHUNKS, STACK_BYTES, TILE
from graphc.kernels.cpu.contract.tile_cost import chunk_target
from graphc.kernels.cpu.convolution.conv_channels import (
    C,
    K,
    N,
    P,
    Q,
    R,
    S,
    products_per_step,
    rows_as_one,
)
from graphc.kernels.cpu.shared.kernel_source import array_text, balanced, entry, make_kernel, share
from graphc.kernels.program.kernel import Kernel
from graphc.kernels.program.nest import Border, Nest
from graphc.ops.fused import KernelNode

REGISTERS = ((2, 2), (4, 1), (1, 4), (2, 1), (1, 2), (1, 1))
"""(pixel registers, output channel registers) whose sums fit four tile registers."""

PACK_CYCLES = 60
"""Estimated cycles to write a register of the weight, from its 16 loads of two rows."""


@dataclass(frozen=True)
class Line:
    """The image positions along one axis that pixel i reads at tap t: `step` * i + `tap` * t."""

    step: int
    tap: int
    low: int
    """The first position in memory."""
    high: int
    """The end of the positions in memory."""
    unit: int
    """Elements between neighbouring positions."""

    def places(self, pixels: int, taps: int) -> int:
        """Positions that `pixels` neighbouring pixels read at all `taps`."""
        return (pixels - 1) * self.step + abs(self.tap) * (taps - 1) + 1


@dataclass(frozen=True)
class _AmxTile:
    """A tile of `rows` x `columns` pixels in `registers`, by `vectors` registers of output
    channels."""

    rows: int
    columns: int
    registers: int
    vectors: int


def lower_conv_amx(node: KernelNode, nest: Nest, target: Target) -> Kernel | None:
    """The kernel of a convolution or data gradient with channels in the lanes.

    None if it is not bf16, has too few channels for whole registers, or fits no tile.
    """
    if not target.multiplies_tiles or products_per_step(nest, target) != 2 or nest.a.lanes != C:
        return None
    epilogue = tile_epilogue(node.body, nest, K, target.lanes)
    nest = rows_as_one(nest, epilogue)
    rows, columns = line(nest, P, R), line(nest, Q, S)
    if rows is None or columns is None or not all(axis.extent for axis in nest.axes):
        return None
    loops = _AmxLoops(nest, target, rows, columns)
    if loops.best is None:
        return None
    workspace = 4 * loops.filters * TILE * TILE
    first = balanced(
        max(1, min(loops.filters, chunk_target(PACK_CYCLES * loops.filters))), loops.filters
    )
    second = balanced(max(1, min(loops.units, chunk_target(loops.cycles))), loops.units)
    lines = [
        *loops.shape(loops.best),
        *functor("Epilogue", epilogue, sum_parameters(epilogue, False), ()),
    ]
    x, w = (f"(const bfloat*)arguments[{read.input}]" for read in (nest.a, nest.b))
    call = [
        f"uint32_t* const weights = (uint32_t*)arguments[{len(node.inputs) + len(node.outputs)}];",
        "using Kernel = tiles::Convolution<Shape>;",
        "if (phase == 0)",
        f"  Kernel::pack_weight({w}, weights, {share(loops.filters, first)});",
        "else",
        f"  Kernel::run({x}, weights, {share(loops.units, second)}, "
        f"{setup(node, 'Epilogue', epilogue, 0)});",
    ]
    kernel = make_kernel(
        node,
        [
            array_text(epilogue.program.arrays),
            "\n".join([*lines, ""]),
            entry(node, call, "phase"),
        ],
        (first, second),
        workspace,
        nest.flops,
        epilogue.inplace,
        header="convolution/conv_amx",
    )
    return replace(kernel, choice=loops.choice(loops.best))


def line(nest: Nest, pixel: int, tap: int) -> Line | None:
    """The positions that the nest's axes `pixel` and `tap` read; None where a patch cannot hold
    them in order."""
    x, pixels, taps = nest.a, nest.axes[pixel].extent, nest.axes[tap].extent
    strides = (x.strides[pixel] if pixels > 1 else 0, x.strides[tap] if taps > 1 else 0)
    borders = [b for b in x.borders if b.axes & {pixel, tap}]
    unit = math.gcd(*strides) or 1
    if borders:
        (border,) = borders
        unit = _unit(border, pixel, strides[0]) or _unit(border, tap, strides[1]) or unit
    step, across = strides[0] // unit, strides[1] // unit
    low, high = min(0, across * (taps - 1)), step * (pixels - 1) + max(0, across * (taps - 1)) + 1
    for border in borders:
        if border.coefficients[pixel] != step or border.coefficients[tap] != across:
            return None
        low, high = max(low, -border.offset), min(high, border.extent - border.offset)
    return None if step < 0 else Line(max(1, step), across, low, high, unit)


def _unit(border: Border, axis: int, stride: int) -> int:
    """Elements between neighbouring positions; 0 where `axis` has only one."""
    factor = border.coefficients[axis]
    return stride // factor if factor else 0


class _AmxLoops:
    """The tile of a nest, and the loops around it."""

    def __init__(self, nest: Nest, target: Target, rows: Line, columns: Line) -> None:
        self.nest, self.target, self.rows, self.columns = nest, target, rows, columns
        self.extents = [axis.extent for axis in nest.axes]
        self.vectors = self.extents[K] // target.lanes
        self.blocks = -(-self.extents[C] // (2 * TILE))
        self.filters = self.vectors * self.blocks * nest.extents((R, S))
        self.best = min(self._candidates(), key=self._cycles, default=None)
        if self.best is None:
            return
        self.cycles = self._cycles(self.best)
        tiles, k_tiles = self._tiles(self.best), -(-self.vectors // self.best.vectors)
        weight = 4 * self.filters * TILE * TILE
        groups = max(-(-weight // (2 * target.caches.far)), -(-FEWEST_CHUNKS // tiles))
        self.groups = max(1, min(groups, k_tiles))
        self.units = tiles * self.groups

    def choice(self, tile: _AmxTile) -> str:
        """The tile and the reason for it, in words."""
        return (
            f"a tile of {tile.rows} x {tile.columns} pixels by {tile.vectors} x {TILE} channels, "
            "bf16 by tiles (AMX): by a model of cycles the cheapest that 4 registers of sums hold"
        )

    def _candidates(self) -> Iterator[_AmxTile]:
        extents, several = self.extents, self.rows.step == self.columns.step == 1
        most = range(1, (min(extents[P], 4 * TILE) if several else 1) + 1)
        for (registers, vectors), rows in itertools.product(REGISTERS, most):
            fitting = (
                columns
                for columns in range(min(extents[Q], registers * TILE), 0, -1)
                if (rows - 1) * self._width(columns) + columns <= registers * TILE
            )
            columns = next(fitting, 0)
            if columns and vectors <= self.vectors:
                equal = -(-extents[Q] // -(-extents[Q] // columns))
                tile = _AmxTile(rows, equal, registers, vectors)
                if 4 * TILE * self.blocks * self._patch_size(tile) <= STACK_BYTES:
                    yield tile

    def _width(self, columns: int) -> int:
        return self.columns.places(columns, self.extents[S])

    def _patch_size(self, tile: _AmxTile) -> int:
        """Positions of a patch, including those that registers read past its end."""
        width, taps = self._width(tile.columns), self.extents
        height = self.rows.places(tile.rows, taps[R])
        last = abs(self.rows.tap) * (taps[R] - 1) * width + abs(self.columns.tap) * (taps[S] - 1)
        return max(height * width, last + (tile.registers * TILE - 1) * self.columns.step + 1)

    def _tiles(self, tile: _AmxTile) -> int:
        extents = self.extents
        return extents[N] * -(-extents[P] // tile.rows) * -(-extents[Q] // tile.columns)

    def _cycles(self, tile: _AmxTile) -> float:
        """Estimated cycles of the kernel: 16 per instruction, and half of the 8 of a load."""
        registers, vectors = tile.registers, tile.vectors
        step = TILE * registers * vectors + 5.5 * (registers + vectors)
        one = self.blocks * self.nest.extents((R, S)) * step
        one += 3.0 * tile.rows * tile.columns * vectors + 40
        gather = 3.0 * self.blocks * self._patch_size(tile)
        sums = -(-self.vectors // vectors) * one
        return self._tiles(tile) * (sums + gather) + PACK_CYCLES * self.filters

    def shape(self, tile: _AmxTile) -> list[str]:
        """The C++ `struct Shape` of conv_amx.h."""
        x, w, rows, columns = self.nest.a, self.nest.b, self.rows, self.columns
        n, k, p, q, c, r, s = self.extents
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
            "W_0": w.offset,
            "W_K": w.block,
            "W_C": w.strides[C],
            "W_R": w.strides[R],
            "W_S": w.strides[S],
        }
        return [
            "struct Shape {",
            integers(N=n, K=k, P=p, Q=q, C=c, R=r, T=s),
            integers(P_STEP=rows.step, R_STEP=rows.tap, Q_STEP=columns.step, S_STEP=columns.tap),
            integers(TILE_P=tile.rows, TILE_Q=tile.columns, RM=tile.registers, NV=tile.vectors),
            integers(
                PATCH_ROWS=rows.places(tile.rows, r),
                PATCH_COLUMNS=self._width(tile.columns),
                PATCH_ROOM=self._patch_size(tile),
                GROUPS=self.groups,
            ),
            longs(steps),
            "};",
        ]
