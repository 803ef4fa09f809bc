"""What a contraction is to contract.cuh: rows, columns, batch and k, a tile, and splits of k.

The kept axes of the nest become the rows of the product (axes that only one operand has), its
columns (axes that only the other has) and the batch (the others); the summed axes become k. The
operand that has the output's fastest axis gives the columns, so that neighbouring threads store
neighbours.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from graphc.kernels.cuda.access import OperandAccess, operand_access
from graphc.kernels.cuda.shell import BLOCKS, SHARED_BYTES
from graphc.kernels.program.access import row_major_strides
from graphc.kernels.program.nest import Nest, Read

LEAST_STEPS = 4
"""Steps of the pipeline that a split is worth."""


@dataclass(frozen=True)
class Tile:
    """`m` x `n` sums per block, `tm` x `tn` of them per thread; `k` per step; `stages` pairs of
    shared tiles; `blocks` per multiprocessor. `speed` is what it reaches of the best one."""

    m: int
    n: int
    k: int
    tm: int
    tn: int
    stages: int
    blocks: int
    speed: float

    @property
    def threads(self) -> int:
        return self.m // self.tm * (self.n // self.tn)

    def fits(self, itemsize: int) -> bool:
        """Whether a block's tiles of such elements fit shared memory, and its sums registers."""
        bytes_per_step = (self.m + self.n) * (self.k * itemsize + 16)
        return self.stages * bytes_per_step <= SHARED_BYTES and (
            itemsize <= 4 or self.tm * self.tn <= 16
        )

    def units(self, sections: int) -> int:
        """Columns of each of `sections` in a tile: a multiple of 4, so that copies are of 4; 0 if
        the tile cannot hold them."""
        return self.n if sections == 1 else self.n // sections // 4 * 4

    def exchanges(self, itemsize: int, operand: int) -> bool:
        """Whether its sums fit where tiles of operands of such elements were."""
        return self.m * self.n * itemsize <= self.stages * (self.m + self.n) * self.k * operand

    def __str__(self) -> str:
        return f"Registers<{self.m}, {self.n}, {self.k}, {self.tm}, {self.tn}, {self.stages}>"


TILES = (
    Tile(128, 128, 16, 8, 8, 2, 2, 1.0),
    Tile(128, 64, 16, 8, 4, 2, 2, 0.9),
    Tile(64, 128, 16, 4, 8, 2, 2, 0.9),
    Tile(64, 64, 16, 4, 4, 3, 4, 0.8),
    Tile(32, 64, 16, 4, 4, 3, 6, 0.7),
    Tile(64, 32, 16, 4, 4, 3, 6, 0.7),
    Tile(32, 32, 16, 2, 4, 3, 6, 0.5),
    Tile(16, 64, 16, 4, 4, 3, 8, 0.5),
    Tile(64, 16, 16, 4, 2, 3, 8, 0.4),
)
"""Without measurements, from the ratio of multiply-adds to shared reads."""


@dataclass(frozen=True)
class Problem:
    """The contraction as a batch of matrix products: rows, columns and batch are axes of `nest`.
    Where the nest has sections, the columns are those of one section."""

    nest: Nest
    batch: tuple[int, ...]
    rows: tuple[int, ...]
    columns: tuple[int, ...]
    a: OperandAccess
    b: OperandAccess

    @property
    def kept(self) -> tuple[tuple[int, ...], ...]:
        """The axes of the batch, the rows and the columns."""
        return self.batch, self.rows, self.columns

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        """Batches, M, N, K; N of one section."""
        groups = (*self.kept, self.nest.summed)
        batches, m, n, k = (self.nest.extents(axes) for axes in groups)
        return batches, m, n, k


def make_problem(nest: Nest) -> Problem:
    """Which axes are rows, columns and batch, and how the operands are read so."""
    a, b = nest.a, nest.b
    if nest.sections is not None:
        return _sectioned_problem(nest)
    only_a, only_b = _read_alone(nest, a, b), _read_alone(nest, b, a)
    batch = tuple(i for i in nest.kept if i not in only_a + only_b)
    strides = output_strides(nest)
    wide = [i for i in nest.kept if nest.axes[i].extent > 1]
    fastest = min(wide, key=lambda i: strides[i], default=None)
    if fastest in only_a:
        a, b, only_a, only_b = b, a, only_b, only_a
    return Problem(
        nest,
        batch,
        only_a,
        only_b,
        operand_access(nest, a, batch, only_a, nest.summed),
        operand_access(nest, b, batch, only_b, nest.summed),
    )


def _sectioned_problem(nest: Nest) -> Problem:
    """The columns are the axis that was cut: rows are what the other operand alone reads. Where a
    broadcast hides the axis from both, an operand with other axes of its own has the rows."""
    a, b, sections = nest.a, nest.b, nest.sections
    assert sections is not None
    cut = (sections, sections + 1)
    if {*_read_alone(nest, a, b)} & {*cut} or {*_read_alone(nest, b, a)} - {*cut}:
        a, b = b, a
    rows = _read_alone(nest, a, b)
    assert {*_read_alone(nest, b, a)} <= {*cut}, "the columns are the axis that was cut"
    batch = tuple(i for i in nest.kept if i not in (*rows, *cut))
    access = operand_access(nest, b, batch, cut, nest.summed)
    if not access.along_k:
        access = replace(access, vector=math.gcd(access.vector, nest.axes[cut[1]].extent))
    return Problem(
        nest, batch, rows, cut[1:], operand_access(nest, a, batch, rows, nest.summed), access
    )


def choose_tile(
    batches: int,
    m: int,
    n: int,
    k: int,
    itemsize: int = 4,
    sections: int = 1,
    operand: int = 4,
) -> tuple[Tile, int]:
    """The tile and the number of splits of k that should be fastest on a device of `BLOCKS`
    blocks: padding, the tile's own speed and idle multiprocessors are what costs time. With
    `sections` of `n` columns each, whose epilogue takes them together, k is not split; `operand`
    is the size of its operands' elements."""
    best: tuple[float, Tile, int] | None = None
    fitting = [t for t in TILES if t.fits(itemsize)]
    if sections > 1:
        fitting = [t for t in fitting if t.units(sections) and t.exchanges(itemsize, operand)]
    for tile in fitting:
        tiles = -(-m // tile.m) * -(-n // tile.units(sections)) * batches
        steps = -(-k // tile.k)
        most = max(1, min(steps // LEAST_STEPS, -(-BLOCKS // tiles)))
        most = most if sections == 1 else 1
        for splits in sorted({1, most}):
            busy = min(1.0, tiles * splits / BLOCKS)
            work = tiles * tile.m * tile.n * max(k, tile.k) / (tile.speed * busy)
            # Partial sums are stored and read again, at about 100 multiply-adds each.
            partial = 200 * batches * m * n * splits if splits > 1 else 0
            cost = work + partial
            if best is None or cost < best[0]:
                best = (cost, tile, splits)
    assert best is not None
    return best[1], best[2]


def output_strides(nest: Nest) -> dict[int, int]:
    """Elements of the row-major output from one index of each kept axis to the next."""
    strides = row_major_strides(nest.node.output.type.shape)
    return {
        i: sum(s * a.coefficients[i] for s, a in zip(strides, nest.output, strict=True))
        for i in nest.kept
    }


def _read_alone(nest: Nest, read: Read, other: Read) -> tuple[int, ...]:
    """The axes of the output that `read` depends on and `other` does not."""
    return tuple(i for i in nest.kept if _reads(read, i) and not _reads(other, i))


def _reads(read: Read, axis: int) -> bool:
    return read.depends_on(axis) or any(axis in b.axes for b in read.borders)
