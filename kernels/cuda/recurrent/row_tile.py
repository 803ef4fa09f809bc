"""Tiles of rows.cuh, whose blocks own rows, and which products in loops take them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from graphc.ir import Graph, Value
from graphc.kernels.cuda.contract.contract import Problem
from graphc.kernels.cuda.contract.tiles.tile import TileAnswers
from graphc.kernels.cuda.shared.block_partition import owned
from graphc.kernels.cuda.shared.gpu_model import GPU
from graphc.kernels.cuda.shared.kernel_source import RESIDENT, SHARED_BYTES, THREADS

NEAR_BYTES = 96 * 1024
"""Of a columns' operand that stays in L1 from one iteration of a loop to the next, beside the
shared memory of two blocks: of the 256 KB of a multiprocessor of an H100, the 192 KB of an A100."""
MOST_HELD = 64 * 1024
"""Bytes of a columns' operand that a block holds in registers: 64 of each thread, half of what each
has where two blocks are on a multiprocessor."""
ALONE = 1200
"""Cycles of a block beside its products: latencies of rows and epilogue, barriers."""
MOST_ROWS = 8
"""Of a block: each thread holds a sum of each of them for several columns."""
NEIGHBOURS = 8
"""Threads that share the k of a column where that runs fastest in memory."""


@dataclass(frozen=True)
class RowTile(TileAnswers):
    """As `Tile`: all `n` columns of `m` rows, which the block owns. It `holds` what the columns
    read in registers for all iterations, or reads it from L1."""

    m: int
    n: int
    holds: bool = False
    groups: ClassVar[int] = 1
    threads: ClassVar[int] = THREADS
    blocks: ClassVar[int] = RESIDENT
    header: ClassVar[str] = "recurrent/rows"
    template: ClassVar[str] = "RowProduct<Problem, Tile>"
    unit: ClassVar[str] = "registers"
    looped: ClassVar[bool] = True
    sums_columns: ClassVar[bool] = False

    @property
    def keeps(self) -> bool:
        return self.holds

    def units(self, sections: int) -> int:
        """Columns of each of `sections`: all."""
        return self.n // sections

    def call(self, operands: Sequence[str], maps: Sequence[str]) -> str:
        return f"{self.template}::run(block, {', '.join(operands)}"

    def kept_bytes(self, problem: Problem) -> int:
        size = problem.b.read.type.numpy_dtype.itemsize
        return problem.weights * size if self.holds else 0

    def owned(self, body: Graph, tiles: int, output: Value) -> tuple[int, ...]:
        return owned(body, tiles, output)

    def describe(self, cut: str) -> str:
        return f"blocks that own {self.m} rows, so that none waits for another in a loop"

    def __str__(self) -> str:
        return f"Rows<{self.m}, {self.threads}>"


def row_tile(m: int, n: int, k: int, sections: int, along_k: bool) -> tuple[float, RowTile] | None:
    """The tile of a product of floats in a loop whose blocks own as many rows of results as they
    have threads for, or fewer so that there are more blocks, with the cycles that it takes; None
    where its rows are no whole blocks, or what its columns read does not stay near. That lies
    `along_k`, or along columns."""
    columns, operand = n * sections, n * sections * k * 4
    across = THREADS // NEIGHBOURS if along_k else columns // 4
    if not across or columns % across or THREADS % across or k % (4 * THREADS // across):
        return None
    if THREADS % n or THREADS // n > MOST_ROWS or operand > NEAR_BYTES:
        return None
    groups = 1 if along_k else THREADS // across
    holds = operand <= MOST_HELD
    found = []
    for rows in range(1, THREADS // n + 1):
        whole = m % rows == rows * n % 32 == 0
        if not whole or rows * (k + groups * columns) * 4 > SHARED_BYTES:
            continue
        beside = -(-(m // rows) // GPU.multiprocessors)
        cycles = beside * max(
            0 if holds else operand / GPU.l1_rate, rows * columns * k / GPU.multiply_adds
        )
        cycles += -(-beside // RESIDENT) * ALONE
        found.append((cycles, RowTile(rows, columns, holds)))
    # Of the same work the most blocks: two on a multiprocessor hide each other's latencies.
    return min(found, key=lambda each: (each[0], each[1].m), default=None)
