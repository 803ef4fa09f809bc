"""Lower convolutions and their data gradients with channels in the lanes.

The rows of a tile are pixels, its columns registers of output channels. The weight has its output
channels in lanes too, so that a step is one channel of x at one tap: a few registers of the weight,
each multiplied by one broadcast element per pixel. The sums of a tile stay in registers and take
one product after the other, channel by channel.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace

from graphc.base.target import Target
from graphc.ir import FLOATS
from graphc.kernels.cpu.contract.epilogue import tile_epilogue
from graphc.kernels.cpu.contract.index_text import constant, integers, longs
from graphc.kernels.cpu.contract.kernel_text import functor, setup, sum_parameters
from graphc.kernels.cpu.contract.tile import TEXT, Cut
from graphc.kernels.cpu.contract.tile_cost import chunk_target
from graphc.kernels.cpu.shared.kernel_source import array_text, balanced, entry, make_kernel
from graphc.kernels.loops.sum_orders import stated_order
from graphc.kernels.program.epilogue import Epilogue
from graphc.kernels.program.kernel import Kernel
from graphc.kernels.program.nest import Border, Nest
from graphc.ops.fused import KernelNode
from graphc.ops.pointwise.logic import C_TYPES

N, K, P, Q, C, R, S = range(7)
"""The axes of the nest of `Conv2d`, and of `Conv2dDgrad`, which itself calls them c, h, w and k."""

MOST_CHUNKS = 48
"""The most chunks: enough for few workers to finish together; more would shrink the part of a chunk
that caches keep."""

MOST_PIXELS = 28
"""The most image columns of a tile."""

MOST_CUTS = 5
"""The most different tiles in a row, each with text of its own, if there is a choice."""


@dataclass(frozen=True)
class _TileSizes:
    """A tile of `images` x `columns` pixels by `vectors` registers of channels."""

    images: int
    columns: int
    vectors: int


def by_channels(nest: Nest) -> bool:
    """Whether the nest is a convolution with output channels in the lanes of its weight."""
    return nest.b.lanes == K and nest.node.op.name in ("conv2d", "conv2d_dgrad")


def lower_conv_channels(node: KernelNode, nest: Nest, target: Target) -> Kernel:
    """The kernel of a fused convolution or data gradient with channels in the lanes."""
    epilogue = tile_epilogue(node.body, nest, K, target.lanes)
    loops = _channel_loops(rows_as_one(nest, epilogue), target)
    lines = [
        "using namespace graphc::channels;",
        "",
        *loops.shape(),
        *functor("Epilogue", epilogue, sum_parameters(epilogue, False), ()),
    ]
    x, w = (f"(const Shape::X*)arguments[{read.input}]" for read in (nest.a, nest.b))
    call = f"run<Shape>({x}, {w}, chunk, {setup(node, 'Epilogue', epilogue, 0)});"
    return make_kernel(
        node,
        [array_text(epilogue.program.arrays), "\n".join([*lines, ""]), entry(node, [call])],
        (loops.chunks,),
        flops=nest.flops,
        inplace=epilogue.inplace,
        header="convolution/conv_channels",
    )


def direct_cycles(node: KernelNode, nest: Nest, target: Target) -> float:
    """Estimated cycles of the kernel of `lower_conv_channels`."""
    epilogue = tile_epilogue(node.body, nest, K, target.lanes)
    return _channel_loops(rows_as_one(nest, epilogue), target).cycles


def rows_as_one(nest: Nest, epilogue: Epilogue) -> Nest:
    """`nest` with all pixels of an image in one row, if every read and write allows it."""
    rows, columns = nest.axes[P].extent, nest.axes[Q].extent
    taps = nest.extents((R, S))
    memory = [(a.strides[P], a.strides[Q]) for a in epilogue.program.accesses]
    memory.append((nest.a.strides[P], nest.a.strides[Q]))
    if taps > 1 or nest.a.borders or any(p != columns * q for p, q in memory):
        return nest
    axes = list(nest.axes)
    axes[P], axes[Q] = replace(axes[P], extent=1), replace(axes[Q], extent=rows * columns)
    return replace(nest, axes=tuple(axes))


class _ChannelLoops:
    """The tile of a nest, and the loops around it."""

    def __init__(self, nest: Nest, target: Target) -> None:
        self.nest, self.target = nest, target
        self.extents = [axis.extent for axis in nest.axes]
        self.together = products_per_step(nest, target)
        self.vectors = self.extents[K] // target.lanes
        x = nest.a
        assert self.extents[K] % target.lanes == 0 and x.lanes in (None, C), "whole registers"
        self.block = target.lanes if x.lanes == C else self.extents[C]
        assert self.extents[C] % self.block == 0, "whole blocks of channels"
        assert stated_order(nest, target) in ("", self.order), nest.node.op
        assert not x.quotients and not nest.b.quotients and not nest.b.borders
        self.rows = [b for b in x.borders if b.axes <= {P, R}]
        self.columns = [b for b in x.borders if b.axes <= {Q, S} and b not in self.rows]
        assert len(self.rows) + len(self.columns) == len(x.borders)
        taps, width = range(self.extents[S]), self.extents[Q]
        self.live = [tuple(self._inside(q, s) for s in taps) for q in range(width)]
        """For each column of a row, which of its taps are in the image."""
        cuts = {size: self._cuts(size) for size in range(1, min(width, MOST_PIXELS) + 1)}
        most = max(MOST_CUTS, min(map(len, cuts.values())))
        self.cuts_of = {size: those for size, those in cuts.items() if len(those) <= most}
        self.sizes = min(self._candidates(), key=self._cycles)
        self.cuts = self.cuts_of[self.sizes.columns]
        self.cycles = self._cycles(self.sizes)
        self._cut_into_chunks()

    @property
    def order(self) -> str:
        """The order in which the loops of conv_channels.h add products one at a time."""
        return ",".join(self.nest.axes[a].name for a in (C, R, S))

    def _candidates(self) -> Iterator[_TileSizes]:
        registers, (n, width) = self.target.registers, (self.extents[N], self.extents[Q])
        images = [i for i in (1, 2, 4) if n % i == 0]
        vectors = range(1, min(self.vectors, 6) + 1)
        for i, q, v in itertools.product(images, self.cuts_of, vectors):
            if i * q * v + min(i * q, v) + 1 <= registers and (i == 1 or q == width):
                yield _TileSizes(i, q, v)

    def _cuts(self, size: int) -> list[Cut]:
        """The tiles of a row; neighbours that lose the same products to padding are merged."""
        starts = range(0, self.extents[Q], size)
        groups = itertools.groupby(starts, key=lambda start: self.live[start : start + size])
        return [Cut(first, 1 + len(others), len(live)) for live, (first, *others) in groups]

    def _inside(self, q: int, s: int) -> bool:
        """Whether pixel q reads inside the image at tap s."""
        return all(0 <= _value(b, q, s) < b.extent for b in self.columns)

    def _cycles(self, sizes: _TileSizes) -> float:
        """Estimated cycles of the kernel: two products per cycle, plus the loads that do not
        overlap."""
        cuts = self.cuts_of[sizes.columns]
        whole, rest = divmod(self.vectors, sizes.vectors)
        channels = [(sizes.vectors, whole)] + ([(rest, 1)] if rest else [])
        tiles = self.extents[N] // sizes.images * self.extents[P]
        return tiles * sum(
            cut.tiles * count * self._tile(sizes.images, cut, vectors)
            for cut, (vectors, count) in itertools.product(cuts, channels)
        )

    def _tile(self, images: int, cut: Cut, vectors: int) -> float:
        steps = -(-self.extents[C] // self.together) * self.extents[R]
        size = self.nest.b.type.numpy_dtype.itemsize * self.together
        weight = size * self.target.lanes * vectors * steps * self.extents[S]
        line = 0.3 if weight < self.target.caches.near else 1.0
        cycles = 0.0
        for column in zip(*self.live[cut.start : cut.start + cut.size], strict=True):
            live = images * sum(column)
            if live:
                step = max(live * vectors / 2, (live + vectors) / 2, 4.0)
                cycles += step + line * vectors + 0.15 * live
        pixels = images * cut.size
        return steps * cycles + 3.0 * pixels * vectors + 40

    def _cut_into_chunks(self) -> None:
        """Choose blocks of tiles whose part of x stays in the second-level cache, and chunks of
        blocks."""
        sizes, caches = self.sizes, self.target.caches
        self.column_tiles = sum(cut.tiles for cut in self.cuts)
        self.k_tiles = -(-self.vectors // sizes.vectors)
        tiles = self.extents[N] // sizes.images * self.extents[P] * self.column_tiles
        size = self.nest.b.type.numpy_dtype.itemsize
        weight, image = size * self.nest.extents((K, C, R, S)), self.nest.a.type.nbytes
        wanted = min(chunk_target(self.cycles), MOST_CHUNKS)
        fitting = 2 * caches.far * tiles // max(1, image)
        self.per_block = max(1, min(fitting, tiles * self.k_tiles // wanted))
        blocks = -(-tiles // self.per_block)
        self.per_block = -(-tiles // blocks)
        self.weights_first = weight > 2 * caches.far and image * self.k_tiles < weight * blocks
        units = -(-tiles // self.per_block) * self.k_tiles
        self.chunks = balanced(max(1, min(wanted, units)), units)

    def shape(self) -> list[str]:
        """The C++ `struct Shape` of conv_channels.h."""
        nest, sizes, extents = self.nest, self.sizes, self.extents
        x, w, block = nest.a, nest.b, self.block
        laned = x.lanes == C
        whole, rest = divmod(self.vectors, sizes.vectors)
        vectors = [f"{{0, {whole}, {sizes.vectors}}}"]
        vectors += [f"{{{whole * sizes.vectors}, 1, {rest}}}"] if rest else []
        columns = ", ".join(f"{{{c.start}, {c.tiles}, {c.size}}}" for c in self.cuts)
        products = sizes.images * sizes.columns * sizes.vectors * extents[S]
        pairs = block // self.together
        counts = (8, 4, 2) if extents[R] == 1 else ()
        fitting = (u for u in counts if pairs % u == 0 and u * products <= TEXT)
        steps = {
            "X_0": x.offset,
            "X_N": x.strides[N],
            "X_P": x.strides[P],
            "X_Q": x.strides[Q],
            "X_R": x.strides[R],
            "X_S": x.strides[S],
            "X_B": x.block,
            "X_C": 1 if laned else x.strides[C],
            "W_0": w.offset,
            "W_K": w.block,
            "W_C": w.strides[C],
            "W_R": w.strides[R],
            "W_S": w.strides[S],
        }
        return [
            "struct Shape {",
            *factor_lines(nest, self.target),
            integers(N=extents[N], P=extents[P], IMAGES=sizes.images),
            integers(TAPS=extents[S], ROWS_OF_TAPS=extents[R], UNROLL=next(fitting, 1)),
            integers(BLOCKS_OF_C=extents[C] // block, BLOCK_OF_C=block),
            longs(steps),
            f"    static constexpr Cut columns[] = {{{columns}}};",
            f"    static constexpr Cut vectors[] = {{{', '.join(vectors)}}};",
            integers(COLUMN_TILES=self.column_tiles, K_TILES=self.k_tiles),
            f"    static constexpr long PER_BLOCK = {self.per_block}, CHUNKS = {self.chunks};",
            f"    static constexpr bool WEIGHTS_FIRST = {str(self.weights_first).lower()};",
            *inside(self.rows, self.columns, (P, R), (Q, S)),
            "};",
        ]


@functools.lru_cache(maxsize=1024)
def _channel_loops(nest: Nest, target: Target) -> _ChannelLoops:
    """The loops of all equal nests: layers repeat."""
    return _ChannelLoops(nest, target)


def products_per_step(nest: Nest, target: Target) -> int:
    """Products that a step adds to each sum: 2 of bf16 where an instruction does, else 1."""
    (dtype,) = {nest.a.type.dtype, nest.b.type.dtype}
    assert dtype in FLOATS, "operands are of one kind"
    return 2 if dtype == "bf16" and target.multiplies_pairs else 1


def factor_lines(nest: Nest, target: Target) -> list[str]:
    """Members of a Shape that describe the operand types."""
    pairs = products_per_step(nest, target) == 2
    return [
        f"    using X = {C_TYPES[nest.a.type.dtype]};",
        f"    static constexpr bool PAIRS = {str(pairs).lower()};",
    ]


def _value(border: Border, q: int, s: int) -> int:
    return border.offset + border.coefficients[Q] * q + border.coefficients[S] * s


def inside(
    rows: list[Border], columns: list[Border], of_rows: tuple[int, int], of_columns: tuple[int, int]
) -> list[str]:
    """Members of a Shape that tell which rows and columns exist, given the axes of pixels and
    taps."""
    return [
        constant("row_inside", "long p, long r", _tests(rows, of_rows, "pr"), "bool"),
        constant("column_inside", "int q, int s", _tests(columns, of_columns, "qs"), "bool"),
    ]


def _tests(borders: list[Border], axes: tuple[int, int], names: str) -> str:
    """The C++ condition that the indices of `axes` are inside `borders`."""
    tests = []
    for border in borders:
        terms = [f"{border.coefficients[a]} * {n}" for a, n in zip(axes, names, strict=True)]
        value = f"{' + '.join(terms)} + {border.offset}"
        tests.append(f"contract::exists({value}, {border.extent}, 1)")
    return " && ".join(tests) or "true"
