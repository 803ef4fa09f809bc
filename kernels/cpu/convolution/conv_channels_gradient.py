"""Lower weight gradients of convolutions with channels in the lanes.

The rows of a tile are elements of x, some channels at all taps of a row of the filter; its columns
are registers of dy's channels. The sum is over pixels.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from graphc.base.target import Target
from graphc.kernels.cpu.contract.index_text import integers, longs
from graphc.kernels.cpu.contract.tile import FEWEST_CHUNKS, STACK_BYTES
from graphc.kernels.cpu.contract.tile_cost import chunk_target
from graphc.kernels.cpu.convolution.conv_channels import factor_lines, inside, products_per_step
from graphc.kernels.cpu.shared.kernel_source import balanced, chunk_count, entry, make_kernel
from graphc.kernels.loops.sum_orders import parts_of_images, stated_order
from graphc.kernels.program.kernel import Kernel
from graphc.kernels.program.nest import Nest
from graphc.ops.fused import KernelNode

K, C, R, S, N, P, Q = range(7)
"""The axes of the nest of `Conv2dWgrad`."""

SUMS_CYCLES = 4.0
"""Cycles to load and store a register of sums between blocks of pixels."""


@dataclass(frozen=True)
class _GradientTileSizes:
    """A tile of `channels` of x, at all taps of a row, by `vectors` registers of dy's channels."""

    channels: int
    vectors: int


def is_channel_gradient(nest: Nest) -> bool:
    """Whether the nest is a weight gradient that reads dy with channels in the lanes."""
    return nest.b.lanes == K and nest.node.op.name == "conv2d_wgrad"


def lower_channel_gradient(node: KernelNode, nest: Nest, target: Target) -> Kernel:
    """The kernel of a weight gradient with channels in the lanes and no epilogue."""
    assert node.body.outputs == nest.node.outputs, "a gradient of channels has no epilogue"
    loops = _ChannelGradientLoops(nest, target)
    x, dy = (f"(const Shape::X*)arguments[{read.input}]" for read in (nest.a, nest.b))
    out, workspace = (f"(float*)arguments[{len(node.inputs) + i}]" for i in (0, 1))
    lines = ["using namespace graphc::channels;", "", *loops.shape(), ""]
    calls = [
        f"if (phase == 0) add_products<Shape>({x}, {dy}, chunk, {workspace});",
        f"else finish<Shape>({workspace}, chunk, {out});",
    ]
    return make_kernel(
        node,
        ["\n".join(lines), entry(node, calls, "phase")],
        (loops.chunks, loops.finish_chunks),
        4 * loops.parts * loops.size,
        nest.flops,
        header="convolution/conv_channels_gradient",
    )


class _ChannelGradientLoops:
    """The tile of a nest, and the loops around it."""

    def __init__(self, nest: Nest, target: Target) -> None:
        self.nest, self.target = nest, target
        self.extents = [axis.extent for axis in nest.axes]
        self.laned = nest.a.lanes == C
        self.vectors = self.extents[K] // target.lanes
        assert self.extents[K] % target.lanes == 0, "whole registers"
        assert self.laned or nest.a.lanes is None
        assert not nest.a.quotients and not nest.b.borders
        self.rows = [b for b in nest.a.borders if b.axes <= {P, R}]
        self.columns = [b for b in nest.a.borders if b not in self.rows]
        assert all(b.axes <= {Q, S} for b in self.columns)
        whole = [all(self._inside(q, s) for s in self._taps) for q in range(self.extents[Q])]
        self.head = whole.index(True) if True in whole else self.extents[Q]
        behind = whole[self.head :]
        self.main = self.head + (behind.index(False) if False in behind else len(behind))
        self.size = nest.extents((K, C, R, S))
        self.together = products_per_step(nest, target)
        self.images = 2 if self.together == 2 and self.laned and self.extents[N] % 2 == 0 else 1
        self._choose()
        if 4 * sum(self._pair_counts().values()) > STACK_BYTES:
            self.images = 1
            self._choose()
        assert stated_order(nest, target) in ("", self.order), nest.node.op

    def _choose(self) -> None:
        self.sizes = min(self._candidates(), key=self._cycles)
        self._cut_into_chunks()

    def _pair_counts(self) -> dict[str, int]:
        """Pairs of x and of dy that are joined for a block of pixels."""
        if self.images == 1:
            return {}
        x, dy, extents = self.nest.a, self.nest.b, self.extents
        reach = {P: self.block_of_p - 1, Q: extents[Q] - 1, R: extents[R] - 1, S: extents[S] - 1}
        x_image = sum(x.strides[a] * n for a, n in reach.items()) + self.target.lanes
        y_image = self.sizes.vectors * self.block_of_p * dy.strides[P]
        images = self.block_of_n // 2
        return {"X_ROOM": images * min(x.block, x_image), "Y_ROOM": images * y_image}

    @property
    def order(self) -> str:
        """The order in which the loops of conv_channels_gradient.h add products one at a time.

        Blocks of pixels are several images, or rows of one.
        """
        assert self.block_of_p == self.extents[P] or self.block_of_n == self.images
        parts = f"{self.parts}*" if self.parts > 1 else ""
        return parts + ",".join(self.nest.axes[a].name for a in (N, P, Q))

    @property
    def _taps(self) -> range:
        return range(self.extents[S])

    def _inside(self, q: int, s: int) -> bool:
        values = (b.offset + b.coefficients[Q] * q + b.coefficients[S] * s for b in self.columns)
        return all(0 <= v < b.extent for v, b in zip(values, self.columns, strict=True))

    def _candidates(self) -> Iterator[_GradientTileSizes]:
        registers, whole = self.target.registers, self.target.lanes if self.laned else 1
        several = range(1, (whole if self.laned else self.extents[C]) + 1)
        for channels in (c for c in several if self.extents[C] % c == 0):
            if self.laned and whole % channels:
                continue
            for vectors in range(1, min(self.vectors, 6) + 1):
                rows = channels * self.extents[S]
                if rows * vectors + min(rows, vectors) + 1 <= registers or channels == vectors == 1:
                    yield _GradientTileSizes(channels, vectors)

    def _cycles(self, sizes: _GradientTileSizes) -> float:
        whole, rest = divmod(self.vectors, sizes.vectors)
        rows = sizes.channels * self.extents[S]
        tiles = self.extents[C] // sizes.channels * self.extents[R]
        pixels, pairs = self._block(sizes), self.together == 2
        blocks = -(-self.nest.extents((N, P, Q)) // (self.images * pixels))
        load = 2.0 if pairs and self.images == 1 else 0.5  # two pixels of x, or one

        def tile(vectors: int) -> float:
            loads = load * rows + vectors / 2
            step = max(rows * vectors / 2, loads, 4.0) + 0.1 * (rows + vectors)
            step /= 2 if pairs and self.images == 1 else 1
            return blocks * (pixels * step + SUMS_CYCLES * rows * vectors + 20)

        return tiles * (whole * tile(sizes.vectors) + (tile(rest) if rest else 0.0))

    def _block(self, sizes: _GradientTileSizes) -> int:
        """Pixels per block: their dy, and as much of x again as one or two registers, stay in
        cache."""
        line = self.images * self.nest.b.type.numpy_dtype.itemsize * self.target.lanes
        return max(1, self.target.caches.near // (line * (sizes.vectors + 2)))

    def _cut_into_chunks(self) -> None:
        extents, sizes, block = self.extents, self.sizes, self._block(self.sizes)
        self.block_of_p = max(1, min(extents[P], block // max(1, extents[Q])))
        whole = self.block_of_p == extents[P]
        image = max(1, extents[P] * extents[Q])
        several = extents[N] // self.images
        self.block_of_n = self.images * (max(1, min(several, block // image)) if whole else 1)
        self.k_tiles = -(-self.vectors // sizes.vectors)
        wanted = min(chunk_target(self._cycles(sizes)), 2 * FEWEST_CHUNKS)
        lacking = -(-wanted // self.k_tiles)
        self.parts = math.gcd(parts_of_images(self.nest), several)
        groups = -(-lacking // self.parts)
        self.groups = max(1, min(groups, extents[C] // sizes.channels))
        self.chunks = self.k_tiles * self.groups * self.parts
        lanes = self.target.lanes
        units = self.vectors * -(-(self.size // max(1, extents[K])) // lanes)
        nanoseconds = units * lanes * (1.0 + self.parts)
        self.finish_chunks = balanced(chunk_count(nanoseconds, max(1, units)), max(1, units))

    def shape(self) -> list[str]:
        """The C++ `struct Shape` of conv_channels_gradient.h."""
        x, dy, sizes, extents = self.nest.a, self.nest.b, self.sizes, self.extents
        lanes = self.target.lanes
        whole, rest = divmod(self.vectors, sizes.vectors)
        vectors = [f"{{0, {whole}, {sizes.vectors}}}"]
        vectors += [f"{{{whole * sizes.vectors}, 1, {rest}}}"] if rest else []
        steps = {
            "X_0": x.offset,
            "X_N": x.strides[N],
            "X_IMAGE": x.strides[N],
            "X_P": x.strides[P],
            "X_Q": x.strides[Q],
            "X_R": x.strides[R],
            "X_S": x.strides[S],
            "X_B": x.block,
            "X_C": 1 if self.laned else x.strides[C],
            "Y_0": dy.offset,
            "Y_N": dy.strides[N],
            "Y_P": dy.strides[P],
            "Y_Q": dy.strides[Q],
            "Y_K": dy.block,
            "DY_IMAGE": dy.strides[N],
            "DY_K": dy.block,
            "SUMS_K": math.prod(extents[a] for a in (C, R, S)) * lanes,
            "SIZE": self.size,
        }
        if rooms := self._pair_counts():
            steps |= rooms
            steps["X_N"] = 2 * steps["X_ROOM"] // self.block_of_n
            steps["Y_N"] = 2 * steps["Y_ROOM"] // self.block_of_n
            steps["Y_K"] = self.block_of_p * dy.strides[P]
        return [
            "struct Shape {",
            *factor_lines(self.nest, self.target),
            integers(N=extents[N], P=extents[P], Q=extents[Q], HEAD=self.head, MAIN=self.main),
            integers(IMAGES=self.images, C=extents[C], TAPS=extents[S], ROWS_OF_TAPS=extents[R]),
            integers(CHANNELS=sizes.channels, BLOCK_OF_C=lanes if self.laned else 1),
            integers(BLOCK_OF_N=self.block_of_n, BLOCK_OF_P=self.block_of_p, PARTS=self.parts),
            integers(K_TILES=self.k_tiles, GROUPS=self.groups, FINISH_CHUNKS=self.finish_chunks),
            longs(steps),
            f"    static constexpr Cut vectors[] = {{{', '.join(vectors)}}};",
            *inside(self.rows, self.columns, (P, R), (Q, S)),
            "};",
        ]
